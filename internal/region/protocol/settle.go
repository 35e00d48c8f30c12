package protocol

import (
	"errors"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// fate is what has become of an operation, seen from a claim that names it.
type fate int

const (
	void      fate = iota // it will never go on from this claim: it is aborted, collected, or at another attempt
	undecided             // it is pending
	committed             // it is to be finished
	done                  // it is over, so that the claim has changed since it was read
	orphaned              // its home is no member any more, so that its record does not count
)

// fateOf reads what has become of the operation that wrote s. The claim with s was read
// before; it must be changed at that version only.
func (p *Pass) fateOf(s stored.Stake, m stored.Membership) (fate, *record, error) {
	if p.orphaned(s, m) {
		return orphaned, nil, nil
	}
	rec, err := p.lookUp(s.Op, s.Home)
	if err != nil || rec == nil || rec.Attempt != s.Attempt {
		return void, nil, err
	}
	switch rec.State {
	case stored.Pending:
		return undecided, rec, nil
	case stored.Committed:
		return committed, rec, nil
	case stored.Done:
		return done, rec, nil
	case stored.Aborted:
	}
	return void, rec, nil
}

// contest settles what stands in the way of a create in one region: it aborts the create
// if the key has an owner, or takes one step to clear the way. It always returns an error.
// first says whether the create has the key in the first member.
func (p *Pass) contest(rec record, m stored.Membership, c claim, first bool) error {
	if c.Owner.Epoch < c.member.Since {
		return p.remove(c) // it was written before the region was removed
	}
	switch c.Phase {
	case stored.Held, stored.Real:
		return p.abort(rec, stored.Taken)
	case stored.Marked:
		f, _, err := p.fateOf(c.Deleter, m)
		if err != nil {
			return err
		}
		if f == void || f == undecided {
			return p.abort(rec, stored.Taken)
		}
	default:
	}
	return p.clear(m, c, first)
}

// clear takes one step to have a claim that is not final become final or go away. It always
// returns an error. Of two pending operations only the one that has the key in the first
// member may abort the other at once, so that they do not abort each other for ever.
func (p *Pass) clear(m stored.Membership, c claim, first bool) error {
	by := c.Owner
	if c.Deleter != (stored.Stake{}) {
		by = c.Deleter
	}
	if c.Phase == stored.FrozenIntent || c.Phase == stored.FrozenMark {
		return p.takeOver(c.Key, by)
	}
	f, rec, err := p.fateOf(by, m)
	switch {
	case err != nil:
		return err
	case f == orphaned:
		return p.takeOver(c.Key, by)
	case f == committed:
		return p.settle(*rec)
	case f == undecided:
		return p.displace(*rec, first)
	case c.Phase == stored.Intent:
		return p.remove(c)
	case c.Phase == stored.Marked && f == void:
		_, err := p.write(c.to(c.Unmark()))
		return again(err)
	}
	return ErrAgain
}

// displace aborts another operation that is not decided, or waits for it.
func (p *Pass) displace(of record, first bool) error {
	if first || p.hasty {
		return p.abort(of, stored.Contended)
	}
	return &Waiting{of.ID}
}

// settle finishes another operation that is committed. It always returns an error.
func (p *Pass) settle(of record) error {
	_, err := p.finish(of)
	if errors.Is(err, errOrphaned) {
		return ErrAgain // the membership has changed; it is to be taken over
	}
	return again(err)
}

// remove removes a claim as it was read. It always returns an error.
func (p *places) remove(c claim) error {
	_, err := p.write(stored.RemoveOf(c.object))
	return again(err)
}

// again is err, or ErrAgain: a step succeeded, and the next pass sees what it has led to.
func again(err error) error {
	if err == nil {
		return ErrAgain
	}
	return err
}

// Resume takes an operation of the pass's region on to its end, whoever asked for it, and returns
// its record. If there is none, it returns a zero Operation.
func (p *Pass) Resume(id stored.OpID) (stored.Operation, error) {
	rec, err := p.lookUp(id, p.here)
	if err != nil || rec == nil {
		return stored.Operation{}, err
	}
	return p.advance(*rec)
}

// Settle takes a step to have the claim of a key in the pass's region become final or go away, if
// that region is an active member. It returns nil once the claim is final or gone, ErrAgain after a
// step, and Waiting if the claim belongs to an operation that is pending.
func (p *Pass) Settle(k stored.Key) error {
	m, err := p.membership()
	if err != nil {
		return err
	}
	here, _ := m.Find(p.here)
	if !here.Active {
		return nil
	}
	found, err := p.claims(k, []stored.Member{here})
	if err != nil {
		return err
	}
	c := found[0]
	switch {
	case c.Phase == "" || c.Final():
		return nil
	case c.Owner.Epoch < here.Since:
		return p.remove(c) // it was written before the region was removed
	}
	return p.clear(m, c, false)
}
