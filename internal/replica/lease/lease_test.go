package lease

import (
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// TestLeaseGrantedAgain: a lease is its grant, not its ID. If a lease is granted again
// with the ID of another, it has its own time to live, and an expiry that was meant for
// the other does not end it.
func TestLeaseGrantedAgain(t *testing.T) {
	s, slot := mvcc.New(), journal.Slot(0)
	apply := func(reqs ...mvcc.Request) {
		slot++
		s.Apply(slot, &mvcc.Batch{Writer: 1, Number: mvcc.BatchNumber(slot), Requests: reqs}, false)
	}
	grant := func(ttl int64) mvcc.Request { return mvcc.Request{Kind: mvcc.LeaseGrant, Lease: 7, TTL: ttl} }
	revoke := mvcc.Request{Kind: mvcc.LeaseRevoke, Lease: 7}
	c := Clock{alone: true}
	now := time.Now()
	look := func() []*mvcc.Request { return c.Expired(s, now) }

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

// TestWhoExpiresALease: the replica that granted or renewed a lease proposes its expiry.
// The others do only if that does not come, and not all at once.
func TestWhoExpiresALease(t *testing.T) {
	const leases, ttl, tick = 100, 10, 500 * time.Millisecond
	s := mvcc.New()
	var grants []mvcc.Request
	for id := range mvcc.LeaseID(leases) {
		grants = append(grants, mvcc.Request{Kind: mvcc.LeaseGrant, Lease: id + 1, TTL: ttl})
	}
	s.Apply(1, &mvcc.Batch{Writer: 1, Number: 1, Requests: grants}, false)
	clocks := make([]Clock, 4)
	for i := range clocks {
		clocks[i].me = mvcc.WriterID(1+i)*0x1234567 | 1
	}
	clocks[0].Proposed(1, grants)
	began := time.Now()
	first := map[mvcc.LeaseID]time.Duration{}
	standIns := map[mvcc.LeaseID]int{} // how many proposed in the second in which the first did
	for at := time.Duration(0); at < (ttl+10)*time.Second; at += tick {
		for i := range clocks {
			for _, r := range clocks[i].Expired(s, began.Add(at)) {
				switch {
				case i == 0 && at != ttl*time.Second && at != ttl*time.Second+proposeAgain:
					t.Fatalf("the replica that granted lease %d proposes its expiry after %v", r.Lease, at)
				case i == 0:
				case at < ttl*time.Second+leastStandby:
					t.Fatalf("a replica that stands by proposes the expiry of lease %d after %v", r.Lease, at)
				default:
					if first[r.Lease] == 0 {
						first[r.Lease] = at
					}
					if at < first[r.Lease]+standbyStep {
						standIns[r.Lease]++
					}
				}
			}
		}
	}
	all, together := 0, 0
	for _, n := range standIns {
		all++
		together += n
	}
	if all != leases || together > 2*leases {
		t.Errorf("%d of %d leases were expired by replicas that stand by, by %.1f of 3 at once", all, leases, float64(together)/leases)
	}
}
