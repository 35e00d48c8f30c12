// Package lease says which leases have expired, by this replica's own clock. It never ends
// a lease: it returns requests that end one once they are applied.
package lease

import (
	"maps"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// Clock measures how long leases have gone unrenewed. A lease expires once some replica has
// seen it unrenewed for its whole time to live. If that replica restarts, its measure
// starts anew, as in etcd. Any replica may propose the expiry. To keep all of them from
// doing so, the replica that proposed the grant or last renewal goes first, and each other
// replica waits for some more seconds of its own.
type Clock struct {
	me    mvcc.WriterID
	alone bool                          // nobody else can propose
	seen  map[mvcc.LeaseID]sighting     // Invariant: the leases that existed when Expired was last called
	mine  map[mvcc.LeaseID]journal.Slot // the slot of this replica's own last grant or renewal of a lease
}

type sighting struct {
	since    journal.Slot // the slot of the grant or renewal that the deadline counts from
	deadline time.Time
	standby  time.Duration // how long after the deadline an expiry is proposed
}

// A replica that stands by learns of another's expiry by its next poll, within a second
// and a round trip: leastStandby is longer.
const (
	leastStandby = 2 * time.Second
	standbyStep  = time.Second
	standbySteps = 4
)

// NewClock returns the clock of a writer. alone says that nobody else can write the
// journal.
func NewClock(me mvcc.WriterID, alone bool) Clock { return Clock{me: me, alone: alone} }

// standby returns how long this replica leaves the expiry of a lease to others.
func (c *Clock) standby(id mvcc.LeaseID, since journal.Slot) time.Duration {
	if c.alone || c.mine[id] == since {
		return 0
	}
	spread := (uint64(c.me) ^ uint64(id)) * 0x9e3779b97f4a7c15 >> 32 // by the golden ratio, as Fibonacci hashing does
	return leastStandby + time.Duration(spread%standbySteps)*standbyStep
}

// Proposed notes which leases a batch of this replica granted or renewed at a slot.
func (c *Clock) Proposed(slot journal.Slot, requests []mvcc.Request) {
	for i := range requests {
		if r := &requests[i]; r.Kind == mvcc.LeaseGrant || r.Kind == mvcc.LeaseRenew {
			if c.mine == nil {
				c.mine = map[mvcc.LeaseID]journal.Slot{}
			}
			c.mine[r.Lease] = slot
		}
	}
}

// proposeAgain is how long after its proposal an expiry is proposed again.
const proposeAgain = 10 * time.Second

// Expired looks at all leases, and returns a request for each lease that is to expire.
func (c *Clock) Expired(state *mvcc.State, now time.Time) []*mvcc.Request {
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

// maxTTL bounds a time to live to what fits in a time.Duration.
const maxTTL = 100 * 365 * 24 * time.Hour

func deadline(now time.Time, ttl int64) time.Time {
	return now.Add(min(time.Duration(min(ttl, int64(maxTTL/time.Second)))*time.Second, maxTTL))
}

// Remaining returns what is left of a lease's time to live: all of it if the lease is
// newer than the last call of Expired.
func (c *Clock) Remaining(id mvcc.LeaseID, ttl time.Duration) time.Duration {
	if s, ok := c.seen[id]; ok {
		return time.Until(s.deadline)
	}
	return ttl
}
