package replica

import (
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// TestLeaseGrantedAgain: a lease is its grant, not its ID. One that is granted
// again under the ID of another has its own time, and an expiry that was meant
// for the other does not end it.
func TestLeaseGrantedAgain(t *testing.T) {
	s, slot := mvcc.New(), journal.Slot(0)
	apply := func(reqs ...mvcc.Request) {
		slot++
		s.Apply(slot, &mvcc.Batch{Writer: 1, Number: mvcc.BatchNumber(slot), Requests: reqs}, false)
	}
	grant := func(ttl int64) mvcc.Request { return mvcc.Request{Kind: mvcc.LeaseGrant, Lease: 7, TTL: ttl} }
	revoke := mvcc.Request{Kind: mvcc.LeaseRevoke, Lease: 7}
	var c leaseClock
	now := time.Now()
	look := func() []*mvcc.Request { return c.expired(s, now) }

	apply(grant(10))
	look()
	now = now.Add(9 * time.Second)
	apply(revoke, grant(3600)) // between two looks
	look()
	now = now.Add(2 * time.Second)
	if out := look(); len(out) != 0 {
		t.Fatalf("a lease of an hour is expired after 2 s: %+v", out[0])
	}

	apply(revoke, grant(10))
	look()
	now = now.Add(11 * time.Second)
	late := look()
	if len(late) != 1 {
		t.Fatalf("%d expiries of a lease that is over, want 1", len(late))
	}
	apply(revoke, grant(3600))
	apply(*late[0])
	if _, _, _, ok := s.Lease(7); !ok {
		t.Error("an expiry that was on its way ended the lease that was granted meanwhile")
	}
}
