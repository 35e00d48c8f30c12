package protocol

import "github.com/xbernetes/xbernetes/internal/region/stored"

// reserve writes an Intent for a pending Create in all members, and returns the claims.
func (p *Pass) reserve(rec record, m stored.Membership) ([]claim, error) {
	want := stored.Claim{Key: rec.Key, Phase: stored.Intent, Owner: rec.Stake(m.Epoch), Payload: rec.Payload}
	claims, err := p.insert(want, m.Members)
	if err != nil {
		return nil, err
	}
	var raise plan
	for i := range claims {
		c := &claims[i]
		switch {
		case c.Phase == stored.Copy: // below, once nothing else is in the way
		case c.Owner.Op != rec.ID:
			return nil, p.contest(rec, m, *c, claims[0].Owner.Op == rec.ID)
		case c.Phase != stored.Intent, newer(c.Owner, want.Owner):
			return nil, p.refresh() // this pass is behind
		case c.Owner != want.Owner:
			raise.add(c, want)
		}
	}
	for i := range claims {
		// All other members hold this operation's intent, so that the source of the copy
		// is gone: the joining region would find that out when it reads it again.
		if c := &claims[i]; c.Phase == stored.Copy {
			raise.add(c, want)
		}
	}
	return claims, p.make(raise)
}

// newer says whether a stake was written by a later pass than want would be.
func newer(s, want stored.Stake) bool {
	return s.Attempt > want.Attempt || s.Epoch > want.Epoch
}

// insert writes a claim wherever there is none, and returns what there is everywhere.
func (p *places) insert(want stored.Claim, members []stored.Member) ([]claim, error) {
	var writes []stored.Request
	for _, m := range members {
		writes = append(writes, stored.InsertOf(m.Region.Place(), want))
	}
	claims := make([]claim, len(members))
	var held []stored.Member
	for i, a := range p.call(writes...) {
		claims[i].member = members[i]
		switch a.Outcome {
		case stored.OK:
			claims[i].set(a.Object)
		case stored.Conflict:
			held = append(held, members[i])
		default:
			return nil, refusal(writes[i], a)
		}
	}
	if len(held) == 0 {
		return claims, nil
	}
	found, err := p.claims(want.Key, held)
	if err != nil {
		return nil, err
	}
	for i := range claims {
		if claims[i].Phase == "" {
			if claims[i], found = found[0], found[1:]; claims[i].Phase == "" {
				return nil, ErrAgain // it was removed in between
			}
		}
	}
	return claims, nil
}

// hold turns the intents of a committed Create into claims that stand, that of its home
// after all others.
func (p *Pass) hold(rec record, claims []claim) error {
	var others, home plan
	for i := range claims {
		c := &claims[i]
		next := c.Held()
		switch {
		case c.Owner.Op == rec.ID && c.Owned():
		case c.Owner.Op != rec.ID, c.Owner.Attempt != rec.Attempt, c.Phase != stored.Intent:
			return p.refresh() // it was taken over, or this pass is behind
		case c.member.Region == rec.Home:
			next.Phase = stored.Real
			home.add(c, next)
		default:
			others.add(c, next)
		}
	}
	if err := p.make(others); err != nil {
		return err
	}
	return p.make(home)
}
