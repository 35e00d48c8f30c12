package explore

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// world is what the scenarios are about: one key, some regions, one way of configuration.
type world struct {
	layout  protocol.Layout
	members []stored.Member // at the start
	ops     map[string]stored.Operation
	patient bool // clients wait for operations that are not decided
}

var theKey = stored.Key{Kind: "Account", Name: "team-a"}

// regions returns a world with n active regions, without a centre: the first one has the
// register.
func regions(n int) *world {
	w := &world{layout: protocol.Layout{Register: "r1"}, ops: map[string]stored.Operation{}}
	for i := range n {
		w.members = append(w.members, stored.Member{Region: stored.Region(fmt.Sprintf("r%d", i+1)), Active: true, Since: 1})
	}
	return w
}

// withCentre returns a world with n active regions and a central store.
func withCentre(n int) *world {
	w := regions(n)
	w.layout = protocol.Layout{Central: true, Register: stored.Central}
	return w
}

// start is what is stored at first.
func (w *world) start(more ...stored.Object) []stored.Object {
	m := stored.Membership{Epoch: 1, Members: w.members}
	all := []stored.Object{{Place: w.layout.Register, Body: m}}
	for _, x := range w.members {
		if x.Region.Place() != w.layout.Register {
			all = append(all, stored.Object{Place: x.Region.Place(), Body: m})
		}
	}
	return append(all, more...)
}

// owned is what is stored once a create from region home is done.
func (w *world) owned(unique string, home stored.Region) []stored.Object {
	op := stored.Operation{ID: stored.OpID{Unique: unique}, Verb: stored.Create, Key: theKey, Home: home,
		State: stored.Done, Attempt: 1, Epoch: 1}
	for _, m := range w.members {
		op.Members = append(op.Members, m.Region)
	}
	w.ops[unique] = op
	all := []stored.Object{{Place: w.log(home), Body: op}}
	for _, m := range w.members {
		c := stored.Claim{Key: theKey, Phase: stored.Held, Owner: op.Stake(1)}
		if m.Region == home {
			c.Phase = stored.Real
		}
		all = append(all, stored.Object{Place: m.Region.Place(), Body: c})
	}
	return all
}

func (w *world) log(home stored.Region) stored.Place {
	if w.layout.Central {
		return stored.Central
	}
	return home.Place()
}

// create is the task of creating the key from region home.
func (w *world) create(unique string, home stored.Region) Task {
	return w.task(unique, home, (*protocol.Pass).Create)
}

// remove is the task of deleting the key from region home.
func (w *world) remove(unique string, home stored.Region) Task {
	return w.task(unique, home, (*protocol.Pass).Delete)
}

// join is the task of making a region a member.
func (w *world) join(r stored.Region) Task {
	return Task{Name: "join " + string(r), Pass: func(call stored.Call) string {
		if _, err := protocol.Begin(w.layout, r, call, true).Join(r); err != nil {
			return ""
		}
		return "Active"
	}}
}

// expel is the task of removing a region.
func (w *world) expel(r stored.Region) Task {
	return Task{Name: "expel " + string(r), Pass: func(call stored.Call) string {
		if _, err := protocol.Begin(w.layout, "r1", call, true).Remove(r); err != nil {
			return ""
		}
		return "Expelled"
	}}
}

// collect is the task of removing the records of operations made before a window.
func (w *world) collect(before stored.Window) Task {
	return Task{Name: "collect", Pass: func(call stored.Call) string {
		if err := protocol.Begin(w.layout, "r1", call, true).Collect(before); err != nil {
			return ""
		}
		return "Collected"
	}}
}

// resume is the task of an agent that takes an operation of its region on to its end.
func (w *world) resume(unique string, home stored.Region) Task {
	return Task{Name: "resume " + unique, Pass: func(call stored.Call) string {
		_, err := protocol.Begin(w.layout, home, call, true).Resume(stored.OpID{Unique: unique})
		if err != nil && !errors.Is(err, protocol.ErrRemoved) {
			return ""
		}
		return "Resumed"
	}}
}

// settle is the task of an agent that settles the key's claim in its region, and leaves pending
// operations to their homes.
func (w *world) settle(r stored.Region) Task {
	return Task{Name: "settle " + string(r), Pass: func(call stored.Call) string {
		err := protocol.Begin(w.layout, r, call, false).Settle(theKey)
		if err != nil && !errors.As(err, new(*protocol.Waiting)) {
			return ""
		}
		return "Settled"
	}}
}

func (w *world) task(unique string, home stored.Region, run func(*protocol.Pass, stored.Operation) (stored.Operation, error)) Task {
	op := stored.Operation{ID: stored.OpID{Unique: unique}, Key: theKey, Home: home}
	w.ops[unique] = op
	return Task{Name: unique, Pass: func(call stored.Call) string {
		done, err := run(protocol.Begin(w.layout, home, call, !w.patient), op)
		switch {
		case errors.Is(err, protocol.ErrRemoved):
			return "Removed"
		case err != nil:
			return ""
		}
		return string(done.State) + string(done.Reason)
	}}
}

// facts are what a state says about the key.
type facts struct {
	claims   map[stored.Region]stored.Claim
	records  map[string]stored.Operation // by the unique part of the ID
	results  map[string]string           // of operations whose clients have their answer
	executed map[string]stored.Operation // that were committed, also if their records are gone
	creates  []stored.Operation          // executed, and their targets not deleted
	deletes  []stored.Operation          // executed
	register stored.Membership
}

// decided picks what judges remember: operations that were committed.
func decided(b stored.Body) bool {
	o, ok := b.(stored.Operation)
	return ok && o.State == stored.Committed
}

func (w *world) look(v View) facts {
	f := facts{
		claims: map[stored.Region]stored.Claim{}, records: map[string]stored.Operation{},
		results: map[string]string{}, executed: map[string]stored.Operation{},
	}
	f.register, _ = v.Read(w.layout.Register, stored.KindMembership, stored.MembershipName).(stored.Membership)
	for place, body := range v.All {
		switch b := body.(type) {
		case stored.Claim:
			// What a region has that is no member, or from the time before it joined, is void.
			if f.register.Covers(stored.Region(place), math.MaxUint64) && !f.void(stored.Region(place), b) {
				f.claims[stored.Region(place)] = b
			}
		case stored.Operation:
			f.records[b.ID.Unique] = b
		}
	}
	for _, r := range v.Results() {
		f.results[r.Task] = r.Text
	}
	for _, b := range v.Memory() {
		o := b.(stored.Operation)
		f.executed[o.ID.Unique] = o
	}
	for name, o := range f.records { // also those that were there at the start
		if o.State == stored.Done {
			f.executed[name] = o
		}
	}
	for _, o := range f.executed {
		if o.Verb == stored.Delete && (w.counts(f, o) || f.buried(o.ID) || !f.stands(o.Target)) {
			f.deletes = append(f.deletes, o)
		}
	}
	for _, o := range f.executed {
		gone := slices.ContainsFunc(f.deletes, func(d stored.Operation) bool { return d.Target == o.ID })
		if o.Verb == stored.Create && !gone && (w.counts(f, o) || f.stands(o.ID)) {
			f.creates = append(f.creates, o)
		}
	}
	return f
}

// void says whether a claim in a member is older than its membership.
func (f facts) void(r stored.Region, c stored.Claim) bool {
	x, _ := f.register.Find(r)
	return c.Owner.Epoch < x.Since
}

// counts says whether the decision in an operation's record counts by itself. If its home
// was removed, the claims in the members decide.
func (w *world) counts(f facts, o stored.Operation) bool {
	return w.layout.Central || f.register.Covers(o.Home, o.Epoch)
}

// stands says whether a member has a claim of an operation that stands.
func (f facts) stands(id stored.OpID) bool {
	for _, c := range f.claims {
		if c.Owned() && c.Owner.Op == id {
			return true
		}
	}
	return false
}

// buried says whether a member has a tomb that a delete has made.
func (f facts) buried(id stored.OpID) bool {
	for _, c := range f.claims {
		if c.Phase == stored.Tomb && c.Deleter.Op == id {
			return true
		}
	}
	return false
}

// judge holds each step against what must be true at all times.
func (w *world) judge(before, after View) error {
	was, is := w.look(before), w.look(after)
	if err := w.oneOwner(is); err != nil {
		return err
	}
	for name, o := range is.records {
		before := was.records[name]
		if _, twice := was.executed[name]; twice && o.State == stored.Committed && before.State != stored.Committed {
			return fmt.Errorf("%s is committed a second time", name)
		}
		if o.State == stored.Committed && before.State == stored.Pending && was.results[name] != "" && was.results[name] != "Removed" {
			return fmt.Errorf("%s is committed after its client was told %s", name, was.results[name])
		}
		if o.Reason == stored.Taken && len(was.executed) == 0 {
			return fmt.Errorf("%s is told that the key is taken, and nobody ever had it", name)
		}
	}
	for name, text := range is.results {
		if o := is.executed[name]; text == string(stored.Done) && o.Verb == stored.Delete && is.stands(o.Target) {
			return fmt.Errorf("%v stands, though %s, which has deleted it, was acknowledged", o.Target, name)
		}
		if lost := is.lost(name); was.results[name] == text && text == string(stored.Done) && lost {
			return fmt.Errorf("%s was acknowledged, and is gone without a delete", name)
		}
		if was.results[name] == "" && text == string(stored.Done) {
			if err := is.acknowledged(is.executed[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneOwner: at most one operation owns the key, and claims only say what was decided.
func (w *world) oneOwner(f facts) error {
	if len(f.creates) > 1 {
		return fmt.Errorf("the key has two owners: %v and %v", f.creates[0].ID, f.creates[1].ID)
	}
	targets := map[stored.OpID]stored.OpID{}
	for _, d := range f.deletes {
		if other, ok := targets[d.Target]; ok {
			return fmt.Errorf("%v and %v have both deleted %v", other, d.ID, d.Target)
		}
		targets[d.Target] = d.ID
	}
	for _, o := range f.creates {
		over := o.State == stored.Done || w.counts(f, o) && f.records[o.ID.Unique].State == stored.Done ||
			f.results[o.ID.Unique] == string(stored.Done)
		if err := f.acknowledged(o); over && err != nil {
			return err
		}
	}
	real, owner := stored.Region(""), stored.OpID{}
	for r, c := range f.claims {
		if c.Phase == stored.Real || c.WasReal {
			if real != "" {
				return fmt.Errorf("the key is real in %s and in %s", real, r)
			}
			real = r
		}
		if c.Owned() {
			if owner != (stored.OpID{}) && owner != c.Owner.Op {
				return fmt.Errorf("claims of %v and of %v stand", owner, c.Owner.Op)
			}
			owner = c.Owner.Op
		}
		if _, ok := f.executed[c.Owner.Op.Unique]; c.Owned() && !ok {
			return fmt.Errorf("the claim in %s stands, and %v was not committed", r, c.Owner.Op)
		}
		if _, ok := f.executed[c.Deleter.Op.Unique]; c.Phase == stored.Tomb && !ok {
			return fmt.Errorf("there is a tomb in %s, and %v was not committed", r, c.Deleter.Op)
		}
	}
	return nil
}

// lost says whether a create was executed, is neither owner nor deleted.
func (f facts) lost(name string) bool {
	o, ok := f.executed[name]
	return ok && o.Verb == stored.Create &&
		!slices.ContainsFunc(f.creates, func(c stored.Operation) bool { return c.ID == o.ID }) &&
		!slices.ContainsFunc(f.deletes, func(d stored.Operation) bool { return d.Target == o.ID })
}

// acknowledged: whatever a client is told to be done is done in all active members.
func (f facts) acknowledged(o stored.Operation) error {
	for _, m := range f.register.Members {
		c := f.claims[m.Region]
		switch {
		case o.Verb == stored.Create && m.Active && len(f.creates) == 1 && f.creates[0].ID == o.ID && (!c.Owned() || c.Owner.Op != o.ID):
			return fmt.Errorf("%v is acknowledged, and %s has no claim of it", o.ID, m.Region)
		case o.Verb == stored.Delete && (c.Owned() || c.Phase == stored.Tomb) && c.Owner.Op == o.Target && c.Owner.Epoch >= m.Since:
			return fmt.Errorf("%v is acknowledged, and %s still has a claim of %v", o.ID, m.Region, o.Target)
		}
	}
	return nil
}

// rest holds a state in which all clients have their answers against what must be true
// then: the owner has its claims everywhere, and no claim stands in anybody's way.
func (w *world) rest(v View) error {
	f := w.look(v)
	for _, m := range f.register.Members {
		c := f.claims[m.Region]
		if len(f.creates) == 1 && m.Active && (!c.Owned() || c.Owner.Op != f.creates[0].ID) {
			return fmt.Errorf("at rest, %v owns the key and has no claim in %s", f.creates[0].ID, m.Region)
		}
		if len(f.creates) == 1 && m.Region == f.creates[0].Home && m.Since <= f.creates[0].Epoch && c.Phase != stored.Real && !c.WasReal {
			return fmt.Errorf("at rest, %v is not real in its home", f.creates[0].ID)
		}
		if len(f.creates) == 0 && c.Owned() {
			return fmt.Errorf("at rest, nobody owns the key, and %s has a claim of %v", m.Region, c.Owner.Op)
		}
		if o := f.records[c.Deleter.Op.Unique]; c.Phase == stored.Tomb && w.counts(f, o) {
			return fmt.Errorf("at rest, there is a tomb in %s", m.Region)
		}
		if o := f.records[c.Owner.Op.Unique]; c.Phase == stored.Intent && w.counts(f, o) && (o.State == stored.Pending || o.State == stored.Committed) {
			return fmt.Errorf("at rest, %s has an intent of %v, which is %s", m.Region, o.ID, o.State)
		}
	}
	return nil
}
