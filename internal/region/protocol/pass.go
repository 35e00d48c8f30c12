// Package protocol gives each key one owner in all regions. It reads and writes regions by
// calls that it is handed, and has no clock, no goroutine and no memory: a pass begins with
// what is stored, and all that it learns is forgotten when it ends.
//
// So there is one way to go on after a crash, a lost answer, a conflict or another client's
// step: another pass. docs/regions.md explains the protocol, and why each rule is needed.
package protocol

import (
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Layout says where the objects are that no key has.
type Layout struct {
	// Central: the records of operations are in the central store. Otherwise each record
	// is in the home region of its operation.
	Central bool
	// Register is where the membership is changed: the central store, or one of the
	// regions. The other regions have copies.
	Register stored.Place
}

// Log is where operations of this home have their records.
func (l Layout) Log(home stored.Region) stored.Place {
	if l.Central {
		return stored.Central
	}
	return home.Place()
}

// ErrAgain is returned by a pass that has not come to its end, because somebody else went
// on in the meantime, or a place did not answer. Another pass goes on from what is stored.
var ErrAgain = errors.New("another pass is needed")

// ErrOtherOperation is returned if the ID belongs to an operation that asks for something
// else. Nothing was changed.
var ErrOtherOperation = errors.New("another operation has this ID")

// Waiting is returned if an operation that is not decided holds the key. If it stays
// undecided for long, its client may have died, and a hasty pass aborts it.
type Waiting struct{ For stored.OpID }

func (w *Waiting) Error() string { return fmt.Sprintf("operation %s holds the key", w.For) }

// places reads what is stored in all regions, and changes it one step at a time, as it was
// read. It never decides which step is next.
type places struct {
	layout Layout
	here   stored.Region // where the client is; its copy of the membership is read
	call   stored.Call   // makes calls side by side, and returns an answer to each
}

// Pass is one pass: it decides which step is next, for an operation and for what is in its
// way. Invariant: it keeps nothing of what it reads.
type Pass struct {
	places
	hasty bool // it aborts undecided operations that are in its way
}

// Begin begins a pass of a client in a region, whose copy of the membership it reads. A
// hasty pass aborts undecided operations that are in its way, where any other would return
// Waiting.
func Begin(l Layout, here stored.Region, call stored.Call, hasty bool) *Pass {
	return &Pass{places{l, here, call}, hasty}
}

// read reads objects side by side; Body is nil of those that do not exist.
func (p *places) read(requests ...stored.Request) ([]stored.Object, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	objects := make([]stored.Object, len(requests))
	for i, a := range p.call(requests...) {
		switch a.Outcome {
		case stored.OK:
			objects[i] = a.Object
		case stored.NotFound:
		default:
			return nil, refusal(requests[i], a)
		}
	}
	return objects, nil
}

// write makes writes side by side, and returns the objects as they are then. It fails
// unless all are made.
func (p *places) write(requests ...stored.Request) ([]stored.Object, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	objects := make([]stored.Object, len(requests))
	for i, a := range p.call(requests...) {
		if a.Outcome != stored.OK {
			return nil, refusal(requests[i], a)
		}
		objects[i] = a.Object
	}
	return objects, nil
}

// Refusal is returned if a place has refused a request, so that no further pass would help.
// The operation is taken back if it was not decided.
type Refusal struct {
	Request stored.Request
	Err     error
}

func (r *Refusal) Error() string { return describe(r.Request) + ": " + r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

func describe(r stored.Request) string {
	at := string(r.Place)
	if r.Place == stored.Central {
		at = "the central store"
	}
	return fmt.Sprintf("%s %s in %s", r.Action, r.Kind, at)
}

// refusal is the error for an answer that is not OK.
func refusal(r stored.Request, a stored.Answer) error {
	switch {
	case a.Outcome == stored.Refused:
		return &Refusal{r, a.Err}
	case a.Err != nil:
		return fmt.Errorf("%s: %w: %w", describe(r), ErrAgain, a.Err)
	}
	return fmt.Errorf("%s: %s: %w", describe(r), a.Outcome, ErrAgain)
}

// membership reads this region's copy, which may be a change behind the register. It is
// empty if the region was never a member. With a central store, it reads the register: a
// removed region's copy stays as it was, and its clients could still write records there.
func (p *places) membership() (stored.Membership, error) {
	if p.layout.Central {
		_, m, err := p.register()
		return m, err
	}
	found, err := p.read(stored.ReadOf(p.here.Place(), stored.KindMembership, stored.MembershipName))
	if err != nil {
		return stored.Membership{}, err
	}
	m, _ := found[0].Body.(stored.Membership)
	return m, nil
}

// register reads the membership where it is changed.
func (p *places) register() (stored.Object, stored.Membership, error) {
	found, err := p.read(stored.ReadOf(p.layout.Register, stored.KindMembership, stored.MembershipName))
	if err != nil {
		return stored.Object{}, stored.Membership{}, err
	}
	m, ok := found[0].Body.(stored.Membership)
	if !ok {
		return stored.Object{}, stored.Membership{}, fmt.Errorf("there is no membership in %q: %w", p.layout.Register, ErrAgain)
	}
	return found[0], m, nil
}

// record is an operation as it was read.
type record struct {
	stored.Operation
	object stored.Object
}

func recordOf(o stored.Object) record { return record{o.Body.(stored.Operation), o} }

// lookUp reads the record of an operation; nil: there is none.
func (p *places) lookUp(id stored.OpID, home stored.Region) (*record, error) {
	found, err := p.read(stored.ReadOf(p.layout.Log(home), stored.KindOperation, id.String()))
	if err != nil || found[0].Body == nil {
		return nil, err
	}
	rec := recordOf(found[0])
	return &rec, nil
}

// change writes what has become of an operation, unless its record has changed.
func (p *places) change(rec record, to stored.Operation) (record, error) {
	written, err := p.write(stored.ReplaceOf(rec.object, to))
	if err != nil {
		return record{}, err
	}
	return recordOf(written[0]), nil
}

// abort decides that a pending operation is not carried out. It returns an error in any
// case: if it succeeds, ErrAgain.
func (p *places) abort(rec record, why stored.Reason) error {
	to := rec.Operation
	to.State, to.Reason = stored.Aborted, why
	if _, err := p.change(rec, to); err != nil {
		return err
	}
	return ErrAgain
}

// commit decides that a pending operation is carried out.
func (p *places) commit(rec record, m stored.Membership) (record, error) {
	to := rec.Operation
	to.State, to.Epoch, to.Members = stored.Committed, m.Epoch, m.Regions()
	return p.change(rec, to)
}

// done notes that nothing is left to do.
func (p *places) done(rec record) (record, error) {
	to := rec.Operation
	to.State = stored.Done
	return p.change(rec, to)
}

// claim is the claim of a key in one region, as it was read.
type claim struct {
	stored.Claim // with Phase "" if there is none
	member       stored.Member
	object       stored.Object
}

// claims reads a key's claims in these members.
func (p *places) claims(k stored.Key, members []stored.Member) ([]claim, error) {
	var requests []stored.Request
	for _, m := range members {
		requests = append(requests, stored.ReadOf(m.Region.Place(), stored.KindClaim, k.ClaimName()))
	}
	found, err := p.read(requests...)
	if err != nil {
		return nil, err
	}
	all := make([]claim, len(members))
	for i, m := range members {
		all[i].member = m
		all[i].set(found[i])
	}
	return all, nil
}

func (c *claim) set(o stored.Object) {
	c.object = o
	c.Claim, _ = o.Body.(stored.Claim)
}

// to asks for the claim to be changed.
func (c *claim) to(next stored.Claim) stored.Request {
	if c.Phase == "" {
		return stored.InsertOf(c.member.Region.Place(), next)
	}
	return stored.ReplaceOf(c.object, next)
}

// plan collects the next claims of a round, and makes the writes that they need.
type plan struct {
	claims []*claim
	writes []stored.Request
}

func (w *plan) add(c *claim, next stored.Claim) {
	w.claims, w.writes = append(w.claims, c), append(w.writes, c.to(next))
}

// make makes all writes of a plan, and notes in its claims what is stored then.
func (p *places) make(w plan) error {
	written, err := p.write(w.writes...)
	if err != nil {
		return err
	}
	for i, c := range w.claims {
		c.set(written[i])
	}
	return nil
}
