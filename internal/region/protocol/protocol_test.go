package protocol_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// memory is regions in memory; one of them refuses claims.
type memory struct {
	objects map[stored.Place]map[string]stored.Object
	refuses stored.Place
	version int
	trips   map[stored.Place]int // calls that had to wait for this place
}

var errForbidden = errors.New("the user may not create claims")

func (m *memory) call(requests ...stored.Request) (answers []stored.Answer) {
	asked := map[stored.Place]int{}
	for _, r := range requests {
		asked[r.Place] = 1
		answers = append(answers, m.answer(r))
	}
	for place := range asked {
		m.trips[place]++
	}
	return answers
}

func newMemory(places ...stored.Place) *memory {
	m := &memory{objects: map[stored.Place]map[string]stored.Object{}, trips: map[stored.Place]int{}}
	for _, p := range places {
		m.objects[p] = map[string]stored.Object{}
	}
	return m
}

func (m *memory) answer(r stored.Request) stored.Answer {
	at, name := m.objects[r.Place], string(r.Kind)+r.Name
	old, exists := at[name]
	switch {
	case r.Place == m.refuses && r.Kind == stored.KindClaim && r.Action == stored.Insert:
		return stored.Answer{Outcome: stored.Refused, Err: errForbidden}
	case r.Action == stored.Read && !exists:
		return stored.Answer{Outcome: stored.NotFound}
	case r.Action == stored.Read:
		return stored.Answer{Outcome: stored.OK, Object: old}
	case exists != (r.Action != stored.Insert), exists && old.Version != r.Version:
		return stored.Answer{Outcome: stored.Conflict}
	case r.Action == stored.Remove:
		delete(at, name)
		return stored.Answer{Outcome: stored.OK}
	}
	m.version++
	at[name] = stored.Object{Place: r.Place, Version: stored.Version(strconv.Itoa(m.version)), Body: r.Body}
	return stored.Answer{Outcome: stored.OK, Object: at[name]}
}

var twoMembers = stored.Membership{Epoch: 1, Members: []stored.Member{
	{Region: "eu", Active: true, Since: 1}, {Region: "us", Active: true, Since: 1}}}

// TestRoundTrips: how often an operation in one region waits for another, and for a central
// store, if nothing is in its way.
func TestRoundTrips(t *testing.T) {
	for name, test := range map[string]struct {
		layout                     protocol.Layout
		create, delete             int // to the other region
		createCentre, deleteCentre int // to the central store
	}{
		"records at home":       {protocol.Layout{Register: "eu"}, 3, 5, 0, 0},
		"records in the centre": {protocol.Layout{Central: true, Register: stored.Central}, 2, 4, 4, 7},
	} {
		t.Run(name, func(t *testing.T) {
			m, key := withTwoMembers(), theKey
			clear(m.trips)
			p := protocol.Begin(test.layout, "eu", m.call, false)
			if _, err := p.Create(stored.Operation{ID: stored.OpID{Unique: "a"}, Key: key, Home: "eu"}); err != nil {
				t.Fatal(err)
			}
			if m.trips["us"] != test.create || m.trips[stored.Central] != test.createCentre {
				t.Errorf("a create takes %v, want %d and %d in the centre", m.trips, test.create, test.createCentre)
			}
			clear(m.trips)
			if _, err := p.Delete(stored.Operation{ID: stored.OpID{Unique: "d"}, Key: key, Home: "eu"}); err != nil {
				t.Fatal(err)
			}
			if m.trips["us"] != test.delete || m.trips[stored.Central] != test.deleteCentre {
				t.Errorf("a delete takes %v, want %d and %d in the centre", m.trips, test.delete, test.deleteCentre)
			}
		})
	}
}

// TestRefusedReservation: a client that may not write in one region gets that region's
// error, and leaves nothing behind that others would have to wait for.
func TestRefusedReservation(t *testing.T) {
	m := newMemory("eu", "us")
	m.refuses = "us"
	m.call(stored.InsertOf("eu", twoMembers), stored.InsertOf("us", twoMembers))
	op := stored.Operation{ID: stored.OpID{Unique: "a"}, Key: stored.Key{Kind: "Account", Name: "a"}, Home: "eu"}
	pass := func() (stored.Operation, error) {
		return protocol.Begin(protocol.Layout{Register: "eu"}, "eu", m.call, false).Create(op)
	}

	if _, err := pass(); !errors.Is(err, errForbidden) || errors.Is(err, protocol.ErrAgain) {
		t.Errorf("the error is %v, want the region's own", err)
	}
	for _, place := range []stored.Place{"eu", "us"} {
		if a := m.answer(stored.ReadOf(place, stored.KindClaim, op.Key.ClaimName())); a.Outcome != stored.NotFound {
			t.Errorf("%s still has %v", place, a.Object.Body)
		}
	}
	if got, err := pass(); err != nil || got.State != stored.Aborted || got.Reason != stored.Forbidden {
		t.Errorf("asked again, the operation is %s for %s (%v), want it aborted", got.State, got.Reason, err)
	}
}

func TestAnIDBelongsToOneOperation(t *testing.T) {
	m := newMemory("eu")
	layout := protocol.Layout{Register: "eu"}
	if _, err := protocol.Begin(layout, "eu", m.call, false).Found("eu"); err != nil {
		t.Fatal(err)
	}
	create := func(name string) error {
		op := stored.Operation{ID: stored.OpID{Unique: "a"}, Key: stored.Key{Kind: "Account", Name: name}, Home: "eu"}
		_, err := protocol.Begin(layout, "eu", m.call, false).Create(op)
		return err
	}
	if err := create("one"); err != nil {
		t.Fatal(err)
	}
	if err := create("two"); !errors.Is(err, protocol.ErrOtherOperation) {
		t.Errorf("a second operation with the ID gets %v", err)
	}
}
