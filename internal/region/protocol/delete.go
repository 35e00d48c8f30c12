package protocol

import (
	"slices"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// mark reserves the key for a pending Delete: it marks the target's claim in all active
// members, and keeps the place of the claim in a joining one that has none yet.
func (p *Pass) mark(rec record, m stored.Membership) ([]claim, error) {
	claims, err := p.claims(rec.Key, m.Members)
	if err != nil {
		return nil, err
	}
	if err := p.targetStands(rec, m, claims); err != nil {
		return nil, err
	}
	by := rec.Stake(m.Epoch)
	keep := stored.Claim{Key: rec.Key, Phase: stored.Intent, Owner: by}
	var marks plan
	for i := range claims {
		c := &claims[i]
		switch ours, stake := c.reservedBy(rec.ID); {
		case ours && newer(stake, by):
			return nil, p.refresh() // this pass is behind
		case ours && stake == by:
		case ours && c.Phase == stored.Intent:
			marks.add(c, keep)
		case ours, c.Owner.Op == rec.Target && (c.Phase == stored.Held || c.Phase == stored.Real):
			marks.add(c, c.Mark(by))
		case !c.member.Active && (c.Phase == "" || c.Phase == stored.Copy):
			marks.add(c, keep)
		default:
			first, _ := claims[0].reservedBy(rec.ID)
			return nil, p.contestMark(rec, m, *c, first)
		}
	}
	return claims, p.make(marks)
}

// reservedBy says whether a Delete has reserved the key in this region, and how.
func (c *claim) reservedBy(id stored.OpID) (bool, stored.Stake) {
	switch {
	case c.Phase == stored.Marked && c.Deleter.Op == id:
		return true, c.Deleter
	case c.Phase == stored.Intent && c.Owner.Op == id:
		return true, c.Owner
	}
	return false, stored.Stake{}
}

// targetStands returns nil if the target of a Delete is done, so that it has a claim in all
// active members. If the target is only decided, it is finished first.
func (p *Pass) targetStands(rec record, m stored.Membership, claims []claim) error {
	i := slices.IndexFunc(claims, func(c claim) bool { return c.Owner.Op == rec.Target })
	if i < 0 || p.orphaned(claims[i].Owner, m) {
		return nil // claims of it that do not stand are in the way of the mark
	}
	target, err := p.lookUp(rec.Target, rec.TargetHome)
	if err != nil || target == nil {
		return err // without a record, it was done and has been collected
	}
	switch target.State {
	case stored.Committed:
		return p.settle(*target)
	case stored.Pending, stored.Aborted:
		return p.abort(rec, stored.Absent)
	case stored.Done:
	}
	return nil
}

// contestMark settles what stands where rec wants to mark its target. It always returns an
// error.
func (p *Pass) contestMark(rec record, m stored.Membership, c claim, first bool) error {
	switch {
	case c.Phase == "":
	case c.Owner.Epoch < c.member.Since:
		return p.remove(c)
	case c.Owner.Op == rec.Target, c.Phase == stored.Tomb, c.Phase == stored.Intent && !c.member.Active:
		return p.clear(m, c, first)
	}
	return p.abort(rec, stored.Absent)
}

// bury removes the claims that a committed Delete has marked. All of them become Tombs
// before the first is removed, so that whoever finds a key half deleted can tell it from
// one that was never complete.
func (p *Pass) bury(rec record, claims []claim) error {
	var tombs plan
	for i := range claims {
		c := &claims[i]
		switch ours, by := c.reservedBy(rec.ID); {
		case ours && by.Attempt != rec.Attempt:
			return p.refresh()
		case ours && c.Phase == stored.Marked:
			tombs.add(c, c.Buried())
		case !ours && c.Owner.Op == rec.Target && c.Owned():
			return p.refresh() // the delete was taken over
		}
	}
	if err := p.make(tombs); err != nil {
		return err
	}
	var removes []stored.Request
	for _, c := range claims {
		ours, _ := c.reservedBy(rec.ID)
		if ours || c.Phase == stored.Tomb && c.Deleter.Op == rec.ID {
			removes = append(removes, stored.RemoveOf(c.object))
		}
	}
	_, err := p.write(removes...)
	return err
}
