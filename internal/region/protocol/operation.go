package protocol

import (
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Create takes a Create operation on to its end, and returns its record: Done, if the
// operation's claim is Held in all members, and Real in its home; or Aborted.
//
// The caller fills in ID, Key and Payload. The home is the region of the pass.
func (p *Pass) Create(op stored.Operation) (stored.Operation, error) {
	op.Verb, op.Home = stored.Create, p.here
	rec, err := p.open(op)
	if err != nil {
		return stored.Operation{}, err
	}
	return p.advance(rec)
}

// Delete takes a Delete operation on to its end, and returns its record: Done, if whatever
// owned the key in the operation's home is deleted in all members; or Aborted. If there was
// no owner, the operation is Aborted as Absent, and need not have a record.
//
// The caller fills in ID and Key. The home is the region of the pass.
func (p *Pass) Delete(op stored.Operation) (stored.Operation, error) {
	op.Verb, op.Home = stored.Delete, p.here
	known, err := p.lookUp(op.ID, op.Home)
	switch {
	case err != nil:
		return stored.Operation{}, err
	case known != nil:
		op.Target, op.TargetHome = known.Target, known.TargetHome
		if err := sameOperation(*known, op); err != nil {
			return stored.Operation{}, err
		}
		return p.advance(*known)
	}
	if why, err := p.aim(&op); err != nil || why != "" {
		op.State, op.Reason = stored.Aborted, why
		return op, err
	}
	rec, err := p.open(op)
	if err != nil {
		return stored.Operation{}, err
	}
	return p.advance(rec)
}

// aim finds out whose claim a Delete is to remove, or why there is none. The membership is
// read first: if the home is active then, it has the claims of all acknowledged creates.
func (p *Pass) aim(op *stored.Operation) (stored.Reason, error) {
	m, err := p.membership()
	if err != nil {
		return "", err
	}
	home, _ := m.Find(op.Home)
	if !home.Active {
		return stored.NotActive, nil
	}
	found, err := p.claims(op.Key, []stored.Member{home})
	if err != nil {
		return "", err
	}
	if !found[0].Owned() {
		return stored.Absent, nil
	}
	op.Target, op.TargetHome = found[0].Owner.Op, found[0].Owner.Home
	return "", nil
}

// open writes the record of an operation, or finds it.
func (p *Pass) open(op stored.Operation) (record, error) {
	op.State, op.Attempt = stored.Pending, 1
	insert := stored.InsertOf(p.layout.Log(op.Home), op)
	answer := p.call(insert)[0]
	switch answer.Outcome {
	case stored.OK:
		return recordOf(answer.Object), nil
	case stored.Conflict:
	default:
		return record{}, refusal(insert, answer)
	}
	known, err := p.lookUp(op.ID, op.Home)
	if err != nil {
		return record{}, err
	}
	if known == nil {
		return record{}, ErrAgain
	}
	return *known, sameOperation(*known, op)
}

func sameOperation(known record, op stored.Operation) error {
	if known.Verb != op.Verb || known.Key != op.Key || known.Home != op.Home ||
		known.Payload != op.Payload || known.Target != op.Target {
		return fmt.Errorf("%w: %s is to %s %s %s", ErrOtherOperation, op.ID, known.Verb, known.Key.Kind, known.Key.Name)
	}
	return nil
}

// advance takes the pass's own operation on to its end.
func (p *Pass) advance(rec record) (stored.Operation, error) {
	var err error
	switch rec.State {
	case stored.Pending:
		rec, err = p.decide(rec)
	case stored.Committed:
		if rec, err = p.finish(rec); errors.Is(err, errOrphaned) {
			err = ErrRemoved
		}
	case stored.Aborted:
		p.tidy(rec)
	case stored.Done:
	}
	return rec.Operation, err
}

// decide reserves the key for a pending operation, commits it, and carries it out. The
// membership is read after the record was written: whoever changes the membership raises
// this region's copy before it lists the records, and so either this pass sees the change,
// or the record is found and has to reserve its key anew.
func (p *Pass) decide(rec record) (record, error) {
	m, err := p.membership()
	if err != nil {
		return record{}, err
	}
	if m.Epoch < rec.Epoch {
		return record{}, p.refresh() // the membership changed after it was read
	}
	if why := refuse(rec.Operation, m); why != "" {
		return record{}, p.abort(rec, why)
	}
	var claims []claim
	if rec.Verb == stored.Create {
		claims, err = p.reserve(rec, m)
	} else {
		claims, err = p.mark(rec, m)
	}
	if refused := (*Refusal)(nil); errors.As(err, &refused) {
		if given := p.abort(rec, stored.Forbidden); !errors.Is(given, ErrAgain) {
			return record{}, given
		}
		p.tidy(rec)
	}
	if err != nil {
		return record{}, err
	}
	if rec, err = p.commit(rec, m); err != nil {
		return record{}, err
	}
	return p.carryOut(rec, claims)
}

// refuse says why an operation must not be carried out under this membership.
func refuse(op stored.Operation, m stored.Membership) stored.Reason {
	home, _ := m.Find(op.Home)
	switch {
	case op.ID.Window != m.Horizon:
		return stored.Expired
	case !home.Active:
		return stored.NotActive
	}
	return ""
}

// finish carries out a committed operation, whoever's it is. The claims are read first and
// the record after them: a write to a claim that succeeds then is made while the operation
// was not over.
func (p *Pass) finish(rec record) (record, error) {
	m, err := p.membership()
	if err != nil {
		return record{}, err
	}
	switch {
	case m.Epoch < rec.Epoch:
		return record{}, p.refresh() // it may lack a member of the decision
	case p.orphaned(rec.Stake(rec.Epoch), m):
		return record{}, errOrphaned
	}
	var members []stored.Member
	for _, r := range rec.Members {
		if x, ok := m.Find(r); ok && x.Since <= rec.Epoch {
			members = append(members, x)
		}
	}
	claims, err := p.claims(rec.Key, members)
	if err != nil {
		return record{}, err
	}
	now, err := p.lookUp(rec.ID, rec.Home)
	if err != nil {
		return record{}, err
	}
	if now == nil || now.State != stored.Committed || now.Attempt != rec.Attempt {
		return record{}, ErrAgain
	}
	return p.carryOut(*now, claims)
}

// carryOut takes the claims of a committed operation on, and notes that it is done.
func (p *Pass) carryOut(rec record, claims []claim) (record, error) {
	if err := p.fence(rec, claims); err != nil {
		return record{}, err
	}
	var err error
	if rec.Verb == stored.Create {
		err = p.hold(rec, claims)
	} else {
		err = p.bury(rec, claims)
	}
	if err != nil {
		return record{}, err
	}
	return p.done(rec)
}

// fence asks each region whether the home is still a member there, and has been ever since
// the decision. If it is not, its record counts no longer. A record in the central store
// does not need this: it can be changed there.
func (p *Pass) fence(rec record, claims []claim) error {
	if p.layout.Central {
		return nil
	}
	var requests []stored.Request
	for _, c := range claims {
		requests = append(requests, stored.ReadOf(c.member.Region.Place(), stored.KindMembership, stored.MembershipName))
	}
	found, err := p.read(requests...)
	if err != nil {
		return err
	}
	for _, o := range found {
		if m, _ := o.Body.(stored.Membership); !m.Covers(rec.Home, rec.Epoch) {
			return p.refresh()
		}
	}
	return nil
}

// refresh raises the copies of the membership, one of which was found to be behind. It
// always returns an error.
func (p *places) refresh() error {
	_, err := p.pushed()
	return again(err)
}

// pushed returns the membership as it is in the register, once all copies have it.
func (p *places) pushed() (stored.Membership, error) {
	_, m, err := p.register()
	if err != nil {
		return m, err
	}
	if _, member := m.Find(p.here); !member {
		return m, ErrRemoved
	}
	return m, p.push(m)
}

// tidy removes the reservations of an aborted operation, as far as it can: whatever is
// left is removed by whoever finds it in the way.
func (p *places) tidy(rec record) {
	m, err := p.membership()
	if err != nil {
		return
	}
	claims, err := p.claims(rec.Key, m.Members)
	if err != nil {
		return
	}
	var writes []stored.Request
	for _, c := range claims {
		switch {
		case c.Phase == stored.Intent && c.Owner.Op == rec.ID:
			writes = append(writes, stored.RemoveOf(c.object))
		case c.Phase == stored.Marked && c.Deleter.Op == rec.ID:
			writes = append(writes, c.to(c.Unmark()))
		}
	}
	if len(writes) > 0 {
		p.call(writes...)
	}
}
