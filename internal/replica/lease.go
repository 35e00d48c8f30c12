package replica

import (
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// leaseClock sees leases live, by this replica's own clock. A lease expires
// once some replica has seen it for its whole time to live, unrenewed; after
// a restart it starts anew, as in etcd.
type leaseClock struct {
	seen map[mvcc.LeaseID]sighting
}

type sighting struct {
	since    journal.Slot // of the grant or renewal that the deadline is counted from
	deadline time.Time
}

// proposeAgain is how long an expiry that was proposed is left alone.
const proposeAgain = 10 * time.Second

// expired returns an expiry for each lease that has been seen long enough.
func (c *leaseClock) expired(state *mvcc.State, now time.Time) []*mvcc.Request {
	var out []*mvcc.Request
	live := make(map[mvcc.LeaseID]sighting, len(c.seen))
	state.Leases(func(id mvcc.LeaseID, ttl int64, since journal.Slot) {
		s, ok := c.seen[id]
		switch {
		case !ok || s.since != since:
			s = sighting{since: since, deadline: deadline(now, ttl)}
		case !now.Before(s.deadline):
			s.deadline = now.Add(proposeAgain)
			out = append(out, &mvcc.Request{Kind: mvcc.LeaseExpire, Lease: id, Since: since})
		}
		live[id] = s
	})
	c.seen = live
	return out
}

// maxTTL keeps a deadline within what a time.Time can be moved by.
const maxTTL = 100 * 365 * 24 * time.Hour

func deadline(now time.Time, ttl int64) time.Time {
	return now.Add(min(time.Duration(min(ttl, int64(maxTTL/time.Second)))*time.Second, maxTTL))
}

// remaining is the time left to a lease; its whole time to live if it was not
// looked at yet.
func (c *leaseClock) remaining(id mvcc.LeaseID, ttl time.Duration) time.Duration {
	if s, ok := c.seen[id]; ok {
		return time.Until(s.deadline)
	}
	return ttl
}
