package protocol

import (
	"errors"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// ErrRemoved is returned to clients in a region that is no member any more. If the other
// members have found a claim of the operation that stands, they finish it; otherwise they
// take it back.
var ErrRemoved = errors.New("this region was removed: the other regions decide what becomes of the operation")

// errOrphaned is returned for a committed operation whose home was removed since.
var errOrphaned = errors.New("the operation's home was removed")

// ErrRegister is returned if the register is in the region that is to be removed.
var ErrRegister = errors.New("the region holds the register of members, and cannot be removed")

// Remove makes a region a member no more, whether or not it can be reached, and returns the
// membership without it. It is called in another member. Operations of that region that the others cannot see completed are
// finished or taken back. Whoever calls it for a region that somebody else began to remove
// goes on from there.
func (p *Pass) Remove(r stored.Region) (stored.Membership, error) {
	if r.Place() == p.layout.Register {
		return stored.Membership{}, ErrRegister
	}
	at, m, err := p.register()
	if err != nil {
		return m, err
	}
	if _, member := m.Find(r); member {
		if at, err = p.raise(at, m.Without(r)); err != nil {
			return m, err
		}
		m = at.Body.(stored.Membership)
	}
	if err := p.push(m); err != nil {
		return m, err
	}
	if err := p.renew(m); err != nil {
		return m, err
	}
	return m, p.adopt(m)
}

// orphaned says whether a stake's home is no member any more, or was removed since. Its
// record is then not asked any more: nobody could change it there. A central store can
// always be asked.
func (p *places) orphaned(s stored.Stake, m stored.Membership) bool {
	return !p.layout.Central && !m.Covers(s.Home, s.Epoch)
}

// adopt takes over all operations of removed regions that have claims in the members.
func (p *Pass) adopt(m stored.Membership) error {
	for _, x := range m.Members {
		claims, names, err := p.list(x)
		if err != nil {
			return err
		}
		for _, name := range names {
			c := claims[name]
			switch {
			case c.Phase == stored.FrozenIntent, c.Phase == stored.Intent && p.orphaned(c.Owner, m):
				return p.takeOver(c.Key, c.Owner)
			case c.Deleter != (stored.Stake{}) && p.orphaned(c.Deleter, m):
				return p.takeOver(c.Key, c.Deleter)
			}
		}
	}
	return nil
}

// takeOver decides about an operation whose home is no member any more. First all members
// know that, and its intents and marks are frozen: now nobody can take the operation on by
// what was read before. What the members have of it then decides: if one claim stands that
// only a committed operation can have, it is finished, and otherwise taken back. It always
// returns an error.
func (p *Pass) takeOver(k stored.Key, of stored.Stake) error {
	m, err := p.pushed()
	if err != nil {
		return err
	}
	if !p.orphaned(of, m) {
		return ErrAgain
	}
	claims, err := p.claims(k, m.Members)
	if err != nil {
		return err
	}
	var freeze plan
	for i := range claims {
		c := &claims[i]
		if ours, by := c.reservedBy(of.Op); ours && p.orphaned(by, m) {
			freeze.add(c, c.Frozen())
		}
	}
	if err := p.make(freeze); err != nil {
		return err
	}
	if claims, err = p.claims(k, m.Members); err != nil {
		return err
	}
	return p.conclude(claims, of.Op)
}

// conclude finishes or takes back an operation all of whose intents and marks are frozen.
func (p *Pass) conclude(claims []claim, id stored.OpID) error {
	held, buried := false, false
	for _, c := range claims {
		held = held || c.Owner.Op == id && (c.Owned() || c.Phase == stored.Tomb)
		buried = buried || c.Phase == stored.Tomb && c.Deleter.Op == id
	}
	var writes, last []stored.Request
	for _, c := range claims {
		switch {
		case c.Phase == stored.FrozenIntent && c.Owner.Op == id && held:
			writes = append(writes, c.to(c.Held()))
		case c.Phase == stored.FrozenIntent && c.Owner.Op == id && buried:
			last = append(last, stored.RemoveOf(c.object))
		case c.Phase == stored.FrozenIntent && c.Owner.Op == id:
			writes = append(writes, stored.RemoveOf(c.object))
		case c.Phase == stored.FrozenMark && c.Deleter.Op == id && buried:
			writes = append(writes, c.to(c.Buried()))
		case c.Phase == stored.FrozenMark && c.Deleter.Op == id:
			writes = append(writes, c.to(c.Unmark()))
		case c.Phase == stored.Tomb && c.Deleter.Op == id:
			last = append(last, stored.RemoveOf(c.object))
		}
	}
	if len(writes) == 0 {
		writes = last // Tombs are removed once there are no marks any more
	}
	_, err := p.write(writes...)
	return again(err)
}

// disown aborts the operations that a region was at when it was removed: the other members
// have finished them or taken them back without asking it.
func (p *places) disown(x stored.Member) error {
	if p.layout.Central {
		return nil
	}
	records, err := p.records(stored.Membership{Members: []stored.Member{x}})
	if err != nil {
		return err
	}
	var writes []stored.Request
	for _, rec := range records {
		if (rec.State == stored.Committed || rec.State == stored.Pending) && rec.Epoch < x.Since {
			to := rec.Operation
			to.State, to.Reason, to.Members = stored.Aborted, stored.Removed, nil
			writes = append(writes, stored.ReplaceOf(rec.object, to))
		}
	}
	_, err = p.write(writes...)
	return err
}
