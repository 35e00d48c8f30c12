package protocol_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// errCrash is what a client dies of.
var errCrash = errors.New("the client is killed")

// crashing carries out a client's calls until it is killed in one of them, whose requests are
// carried out or not.
func (m *memory) crashing(at int, carriedOut bool) stored.Call {
	return func(requests ...stored.Request) []stored.Answer {
		if at--; at < 0 {
			if carriedOut {
				m.call(requests...)
			}
			panic(errCrash)
		}
		return m.call(requests...)
	}
}

// dies says whether a client is killed while it acts.
func dies(act func()) (killed bool) {
	defer func() {
		if why := recover(); why != nil {
			if why != errCrash { //nolint:errorlint // it is what was thrown
				panic(why)
			}
			killed = true
		}
	}()
	act()
	return false
}

// TestRecovery kills a client in each of its calls, and has the home's agent end what is left: how
// often that waits for another region and for a central store, whichever call it was. Then nothing
// is half done, and the key is free or has its owner.
func TestRecovery(t *testing.T) {
	for _, test := range []struct {
		name   string
		layout protocol.Layout
		verb   stored.Verb

		region, centre int // the most round trips to the other region, and to the central store
	}{
		{"create, records at home", protocol.Layout{Register: "eu"}, stored.Create, 4, 0},
		{"delete, records at home", protocol.Layout{Register: "eu"}, stored.Delete, 5, 0},
		{"create, records in the centre", protocol.Layout{Central: true, Register: stored.Central}, stored.Create, 3, 5},
		{"delete, records in the centre", protocol.Layout{Central: true, Register: stored.Central}, stored.Delete, 4, 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			var region, centre int
			for at, alive := 0, false; !alive; at++ {
				for _, carriedOut := range []bool{false, true} {
					m := withTwoMembers()
					if test.verb == stored.Delete {
						act(t, test.layout, m.call, stored.Create, stored.OpID{Unique: "old"})
					}
					id := stored.OpID{Unique: "new"}
					alive = !dies(func() { act(t, test.layout, m.crashing(at, carriedOut), test.verb, id) })
					clear(m.trips)
					if err := m.end(test.layout, id); err != nil {
						t.Errorf("killed in call %d, carried out: %t: %v", at, carriedOut, err)
					}
					t.Logf("killed in call %d, carried out: %t: ended after %d round trips to the other region, %d to the centre",
						at, carriedOut, m.trips["us"], m.trips[stored.Central])
					region, centre = max(region, m.trips["us"]), max(centre, m.trips[stored.Central])
				}
			}
			if region != test.region || centre != test.centre {
				t.Errorf("it takes up to %d round trips to the other region and %d to the centre, want %d and %d", region, centre, test.region, test.centre)
			}
		})
	}
}

var theKey = stored.Key{Kind: "Account", Name: "a"}

func withTwoMembers() *memory {
	m := newMemory("eu", "us", stored.Central)
	for place := range m.objects {
		m.call(stored.InsertOf(place, twoMembers))
	}
	return m
}

// act creates or deletes the key from eu.
func act(t *testing.T, l protocol.Layout, call stored.Call, verb stored.Verb, id stored.OpID) {
	t.Helper()
	p, op := protocol.Begin(l, "eu", call, false), stored.Operation{ID: id, Key: theKey}
	var err error
	if verb == stored.Create {
		op, err = p.Create(op)
	} else {
		op, err = p.Delete(op)
	}
	if err != nil || op.State != stored.Done {
		t.Fatalf("%s: %s, %v", verb, op.State, err)
	}
}

// end is the agent of eu ending an operation and settling the key. Both regions must then agree.
func (m *memory) end(layout protocol.Layout, id stored.OpID) error {
	for _, step := range []func(*protocol.Pass) error{
		func(p *protocol.Pass) error { _, err := p.Resume(id); return err },
		func(p *protocol.Pass) error { return p.Settle(theKey) },
	} {
		err := protocol.ErrAgain
		for tries := 0; errors.Is(err, protocol.ErrAgain); tries++ {
			if tries > 10 {
				return fmt.Errorf("it does not end: %w", err)
			}
			err = step(protocol.Begin(layout, "eu", m.call, true))
		}
		if err != nil {
			return err
		}
	}
	var owners [2]stored.OpID
	for i, place := range []stored.Place{"eu", "us"} {
		if a := m.answer(stored.ReadOf(place, stored.KindClaim, theKey.ClaimName())); a.Outcome == stored.OK {
			c := a.Object.Body.(stored.Claim)
			if !c.Final() {
				return fmt.Errorf("the claim in %s is %s", place, c.Phase)
			}
			owners[i] = c.Owner.Op
		}
	}
	if owners[0] != owners[1] {
		return fmt.Errorf("the owner is %v in one region and %v in the other", owners[0], owners[1])
	}
	return nil
}
