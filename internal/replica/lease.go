package replica

import (
	"maps"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// leaseClock sees leases live, by this replica's own clock. A lease expires
// once some replica has seen it for its whole time to live, unrenewed; after
// a restart it starts anew, as in etcd. Any replica may propose the expiry; so that
// not all do, the one that proposed the grant or last renewal goes first, and the
// others stand by for a while, each for another.
type leaseClock struct {
	me    mvcc.WriterID
	alone bool // nobody else can propose
	seen  map[mvcc.LeaseID]sighting
	mine  map[mvcc.LeaseID]journal.Slot // where this replica's last grant or renewal of a lease is
}

type sighting struct {
	since    journal.Slot // of the grant or renewal that the deadline is counted from
	deadline time.Time
	standby  time.Duration // after the deadline, before an expiry is proposed
}

// Who stands by sees an expiry of another's by the next time it polls, which is a
// second at most, and a round trip.
const (
	leastStandby = 2 * time.Second
	standbyStep  = time.Second
	standbySteps = 4
)

// standby is how long this replica leaves a lease to others.
func (c *leaseClock) standby(id mvcc.LeaseID, since journal.Slot) time.Duration {
	if c.alone || c.mine[id] == since {
		return 0
	}
	spread := (uint64(c.me) ^ uint64(id)) * 0x9e3779b97f4a7c15 >> 32 // by the golden ratio, as Fibonacci hashing does
	return leastStandby + time.Duration(spread%standbySteps)*standbyStep
}

// proposed notes which leases a batch of this replica's granted or renewed.
func (c *leaseClock) proposed(slot journal.Slot, requests []mvcc.Request) {
	for i := range requests {
		if r := &requests[i]; r.Kind == mvcc.LeaseGrant || r.Kind == mvcc.LeaseRenew {
			if c.mine == nil {
				c.mine = map[mvcc.LeaseID]journal.Slot{}
			}
			c.mine[r.Lease] = slot
		}
	}
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
			s = sighting{since: since, deadline: deadline(now, ttl), standby: c.standby(id, since)}
		case !now.Before(s.deadline.Add(s.standby)):
			s.standby = now.Sub(s.deadline) + proposeAgain
			out = append(out, &mvcc.Request{Kind: mvcc.LeaseExpire, Lease: id, Since: since})
		}
		live[id] = s
	})
	c.seen = live
	maps.DeleteFunc(c.mine, func(id mvcc.LeaseID, _ journal.Slot) bool { _, ok := live[id]; return !ok })
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
