package protocol

import (
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// raise changes the membership in the register, if it still is as it was read. Copies are
// at most one change behind, because they are raised to what was read before.
func (p *places) raise(at stored.Object, next stored.Membership) (stored.Object, error) {
	now := at.Body.(stored.Membership)
	stay := slices.DeleteFunc(now.Regions(), func(r stored.Region) bool {
		_, found := next.Find(r)
		return !found // it may be away for good
	})
	if err := p.pushTo(stay, now); err != nil {
		return stored.Object{}, err
	}
	next.Epoch++
	written, err := p.write(stored.ReplaceOf(at, next))
	if err != nil {
		return stored.Object{}, err
	}
	return written[0], nil
}

// push raises the copies of the membership in all members. Anybody may do that: a copy is
// never older afterwards.
func (p *places) push(m stored.Membership) error { return p.pushTo(m.Regions(), m) }

func (p *places) pushTo(regions []stored.Region, m stored.Membership) error {
	var places []stored.Place
	var reads []stored.Request
	for _, r := range regions {
		if r.Place() != p.layout.Register {
			places = append(places, r.Place())
			reads = append(reads, stored.ReadOf(r.Place(), stored.KindMembership, stored.MembershipName))
		}
	}
	found, err := p.read(reads...)
	if err != nil {
		return err
	}
	var writes []stored.Request
	for i, o := range found {
		old, exists := o.Body.(stored.Membership)
		switch {
		case !exists:
			writes = append(writes, stored.InsertOf(places[i], m))
		case old.Epoch < m.Epoch:
			writes = append(writes, stored.ReplaceOf(o, m))
		}
	}
	_, err = p.write(writes...)
	return err
}

// Found makes a region the first member, if there is no membership yet, and returns the
// membership. All other regions join.
func (p *Pass) Found(r stored.Region) (stored.Membership, error) {
	first := stored.Membership{Epoch: 1, Members: []stored.Member{{Region: r, Active: true, Since: 1}}}
	insert := stored.InsertOf(p.layout.Register, first)
	if a := p.call(insert)[0]; a.Outcome != stored.OK && a.Outcome != stored.Conflict {
		return first, refusal(insert, a)
	}
	_, m, err := p.register()
	if err != nil {
		return m, err
	}
	return m, p.push(m)
}

// Joining is returned if another region joins at the moment. Only one does at a time.
type Joining struct{ Region stored.Region }

func (j *Joining) Error() string { return fmt.Sprintf("region %s is joining", j.Region) }

// Join makes a region an active member, and returns the membership with it. Whoever calls
// it for a region that somebody else began to join goes on from there.
func (p *Pass) Join(r stored.Region) (stored.Membership, error) {
	at, m, err := p.register()
	if err != nil {
		return m, err
	}
	for _, x := range m.Members {
		if !x.Active && x.Region != r {
			return m, &Joining{x.Region}
		}
	}
	me, known := m.Find(r)
	if me.Active {
		return m, p.push(m)
	}
	if !known {
		if at, err = p.raise(at, m.With(stored.Member{Region: r, Since: m.Epoch + 1})); err != nil {
			return m, err
		}
	}
	m = at.Body.(stored.Membership)
	me, _ = m.Find(r)
	if err := (&filling{p, at, m, me}).fill(); err != nil {
		return m, err
	}
	me.Active = true
	if at, err = p.raise(at, m.With(me)); err != nil {
		return m, err
	}
	m = at.Body.(stored.Membership)
	return m, p.push(m)
}

// filling gives a joining region the claims that the active members have.
type filling struct {
	*Pass
	at stored.Object     // the register, as it was read with the region in it
	m  stored.Membership // what the register holds. Invariant: `to` is in it, and is not active
	to stored.Member     // the joining region
}

// fill gives the region its claims. Operations that read the register from now on reserve
// their keys in the region, too; those that have read it before are made to do so.
func (f *filling) fill() error {
	if err := f.push(f.m); err != nil {
		return err
	}
	if err := f.disown(f.to); err != nil {
		return err
	}
	if err := f.renew(f.m); err != nil {
		return err
	}
	i := slices.IndexFunc(f.m.Members, func(x stored.Member) bool { return x.Active })
	if i < 0 {
		return nil
	}
	return f.copyClaims(f.m.Members[i])
}

// renew has every pending operation reserve its key anew under this membership.
func (p *places) renew(m stored.Membership) error {
	records, err := p.records(m)
	if err != nil {
		return err
	}
	var writes []stored.Request
	for _, rec := range records {
		if rec.State == stored.Pending && rec.Epoch < m.Epoch {
			to := rec.Operation
			to.Attempt++
			to.Epoch = m.Epoch
			writes = append(writes, stored.ReplaceOf(rec.object, to))
		}
	}
	_, err = p.write(writes...)
	return err
}

// records lists the records of all operations whose home is a member.
func (p *places) records(m stored.Membership) ([]record, error) {
	var lists []stored.Request
	if p.layout.Central {
		lists = append(lists, stored.ListOf(stored.Central, stored.KindOperation))
	} else {
		for _, r := range m.Regions() {
			lists = append(lists, stored.ListOf(r.Place(), stored.KindOperation))
		}
	}
	var records []record
	for i, a := range p.call(lists...) {
		if a.Outcome != stored.OK {
			return nil, refusal(lists[i], a)
		}
		for _, o := range a.Objects {
			records = append(records, recordOf(o))
		}
	}
	return records, nil
}

// list lists the claims of a member, by their names.
func (p *places) list(m stored.Member) (map[string]claim, []string, error) {
	request := stored.ListOf(m.Region.Place(), stored.KindClaim)
	answer := p.call(request)[0]
	if answer.Outcome != stored.OK {
		return nil, nil, refusal(request, answer)
	}
	claims, names := map[string]claim{}, make([]string, 0, len(answer.Objects))
	for _, o := range answer.Objects {
		c := claim{member: m}
		c.set(o)
		claims[c.Name()], names = c, append(names, c.Name())
	}
	return claims, names, nil
}

// copyClaims copies every claim that stands in a member. A Copy is
// written first; then the source is read again, and the register: only if both are
// unchanged does the Copy become a claim that stands. Otherwise a delete could have missed
// it.
func (f *filling) copyClaims(from stored.Member) error {
	there, names, err := f.list(f.to)
	if err != nil {
		return err
	}
	source, sources, err := f.list(from)
	if err != nil {
		return err
	}
	if err := f.sweep(there, names, source); err != nil {
		return err
	}
	var copies plan
	var open []*claim
	for _, name := range sources {
		s := source[name]
		c, known := there[name]
		if !known {
			c.member = f.to
		}
		next, err := f.copyOf(s, c)
		if err != nil {
			return err
		}
		if next.Phase != stored.Copy {
			continue
		}
		open = append(open, &c)
		if c.Claim != next {
			copies.add(&c, next)
		}
	}
	if err := f.make(copies); err != nil {
		return err
	}
	return f.confirm(from, source, open)
}

// copyOf returns the Copy that the joining region is to have of s in the place of c, or
// nothing if it needs none.
func (f *filling) copyOf(s, c claim) (stored.Claim, error) {
	if s.Phase != stored.Held && s.Phase != stored.Real {
		return stored.Claim{}, f.copyNone(s)
	}
	next := s.Claim
	next.Phase, next.Owner.Epoch = stored.Copy, f.m.Epoch
	if f.orphaned(s.Owner, f.m) {
		next.Owner.Home = "" // the home may become a member again, with other records
	}
	switch {
	case c.Phase == "", c.Phase == stored.Copy:
		return next, nil
	case c.Owned() && c.Owner.Op == s.Owner.Op:
		return stored.Claim{}, nil
	case c.Owned():
		return stored.Claim{}, ErrAgain // the source is not what it was any more
	}
	return stored.Claim{}, f.clear(f.m, c, false)
}

// copyNone has a claim settled that does not stand, unless it is the intent of a pending
// operation: that reserves its key in the joining region by itself.
func (f *filling) copyNone(s claim) error {
	if s.Phase == stored.Intent && !f.orphaned(s.Owner, f.m) {
		of, err := f.lookUp(s.Owner.Op, s.Owner.Home)
		if err != nil || of != nil && of.State == stored.Pending {
			return err
		}
	}
	return f.clear(f.m, s, false)
}

// sweep removes from the joining region what has no source: claims of an earlier membership,
// and Copies whose source is gone. The source was read after them.
func (f *filling) sweep(there map[string]claim, names []string, source map[string]claim) error {
	var removes []stored.Request
	for _, name := range names {
		c, s := there[name], source[name]
		gone := c.Phase == stored.Copy && (!s.Owned() || s.Owner.Op != c.Owner.Op)
		if gone || c.Owner.Epoch < c.member.Since {
			removes = append(removes, stored.RemoveOf(c.object))
		}
	}
	if len(removes) == 0 {
		return nil
	}
	if _, err := f.write(removes...); err != nil {
		return err
	}
	return ErrAgain
}

// confirm turns Copies into claims that stand, if nothing has changed since their source
// was read.
func (f *filling) confirm(from stored.Member, source map[string]claim, copies []*claim) error {
	if len(copies) == 0 {
		return nil
	}
	again, _, err := f.list(from)
	if err != nil {
		return err
	}
	now, _, err := f.register()
	if err != nil {
		return err
	}
	if now.Version != f.at.Version {
		return ErrAgain
	}
	var stand plan
	for _, c := range copies {
		if again[c.Name()].object.Version != source[c.Name()].object.Version {
			return ErrAgain
		}
		stand.add(c, c.Held())
	}
	return f.make(stand)
}

// Window is the window that new operations have.
func (p *Pass) Window() (stored.Window, error) {
	m, err := p.membership()
	return m.Horizon, err
}

// Collect removes the records of all operations that were made before the window, and
// raises the horizon to it, so that none of them can be carried out a second time.
func (p *Pass) Collect(before stored.Window) error {
	at, m, err := p.register()
	if err != nil {
		return err
	}
	if m.Horizon < before {
		m.Horizon = before
		if at, err = p.raise(at, m); err != nil {
			return err
		}
		m = at.Body.(stored.Membership)
	}
	if err := p.push(m); err != nil {
		return err
	}
	records, err := p.records(m)
	if err != nil {
		return err
	}
	var removes []stored.Request
	for _, rec := range records {
		switch {
		case rec.ID.Window >= before:
		case rec.State == stored.Pending:
			return p.abort(rec, stored.Expired)
		case rec.State == stored.Committed:
			return p.settle(rec)
		default:
			removes = append(removes, stored.RemoveOf(rec.object))
		}
	}
	_, err = p.write(removes...)
	return err
}
