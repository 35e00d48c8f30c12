package explore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// outline is the fan-out as the multi-region proposal outlines it: append to the log,
// reserve everywhere, convert the reservation, delete the log's entry; and the next
// operation cleans up what it finds in the log. It has no decision that all must respect,
// so that a slow client cannot be told from a dead one. The proposal names no condition for
// the conversion; a careful client converts its own reservation only.
func (w *world) outline(unique string, home stored.Region, careful bool) Task {
	op := stored.Operation{ID: stored.OpID{Unique: unique}, Key: theKey, Home: home, State: stored.Pending}
	return Task{Name: unique, Pass: func(call stored.Call) string {
		for _, o := range call(stored.ListOf(stored.Central, stored.KindOperation))[0].Objects {
			if other := o.Body.(stored.Operation); other.ID != op.ID {
				w.unreserve(call, other.ID)
				call(stored.RemoveOf(o))
			}
		}
		call(stored.InsertOf(stored.Central, op))
		for _, m := range w.members {
			claim := stored.Claim{Key: theKey, Phase: stored.Intent, Owner: op.Stake(1)}
			if call(stored.InsertOf(m.Region.Place(), claim))[0].Outcome != stored.OK {
				w.unreserve(call, op.ID)
				return "Aborted"
			}
		}
		read := call(stored.ReadOf(home.Place(), stored.KindClaim, theKey.ClaimName()))[0].Object
		claim, ok := read.Body.(stored.Claim)
		if !ok || careful && claim.Owner.Op != op.ID {
			return "Aborted"
		}
		claim.Owner, claim.Phase = op.Stake(1), stored.Real
		if call(stored.ReplaceOf(read, claim))[0].Outcome != stored.OK {
			return "Aborted"
		}
		entry := call(stored.ReadOf(stored.Central, stored.KindOperation, op.Name()))[0].Object
		if entry.Body != nil {
			call(stored.RemoveOf(entry))
		}
		return "Done"
	}}
}

// unreserve removes an operation's reservations.
func (w *world) unreserve(call stored.Call, id stored.OpID) {
	for _, m := range w.members {
		read := call(stored.ReadOf(m.Region.Place(), stored.KindClaim, theKey.ClaimName()))[0].Object
		if claim, ok := read.Body.(stored.Claim); ok && claim.Owner.Op == id && claim.Phase == stored.Intent {
			call(stored.RemoveOf(read))
		}
	}
}

// TestTheOutlineHasTwoOwners: the explorer finds what is wrong with the proposal's outline,
// without a fault.
func TestTheOutlineHasTwoOwners(t *testing.T) {
	w := withCentre(3)
	refuted(t, w, false, func(after View) error {
		if real := w.realIn(after); len(real) > 1 {
			return fmt.Errorf("the key is real in %v", real)
		}
		return nil
	})
}

// TestTheCarefulOutlineLosesReservations: with a condition for the conversion, there are
// no two owners; but a create is acknowledged whose reservations are gone.
func TestTheCarefulOutlineLosesReservations(t *testing.T) {
	w := withCentre(3)
	refuted(t, w, true, func(after View) error {
		for _, r := range after.Results() {
			if n := len(w.claimedBy(after, r.Task)); r.Text == "Done" && n < 3 {
				return fmt.Errorf("%s is acknowledged, and %d regions have a claim of it", r.Task, n)
			}
		}
		return nil
	})
}

func refuted(t *testing.T, w *world, careful bool, judge func(View) error) {
	t.Helper()
	report, err := Run(Scenario{
		Start:   w.start(),
		Clients: [][]Task{{w.outline("a", "r1", careful)}, {w.outline("b", "r2", careful)}},
		Judge:   func(_, after View) error { return judge(after) },
		Rest:    func(View) error { return nil },

		Memorable: func(stored.Body) bool { return false },
		Fair:      63,
	})
	t.Logf("%v: %v", report, err)
	if v := (*Violation)(nil); !errors.As(err, &v) {
		t.Error("nothing was found")
	}
}

// realIn are the regions where the key is real.
func (w *world) realIn(v View) (found []stored.Region) {
	for _, m := range w.members {
		if c, ok := v.Read(m.Region.Place(), stored.KindClaim, theKey.ClaimName()).(stored.Claim); ok && c.Phase == stored.Real {
			found = append(found, m.Region)
		}
	}
	return found
}

// claimedBy are the regions with a claim of the operation.
func (w *world) claimedBy(v View, unique string) (found []stored.Region) {
	for _, m := range w.members {
		if c, ok := v.Read(m.Region.Place(), stored.KindClaim, theKey.ClaimName()).(stored.Claim); ok && c.Owner.Op.Unique == unique {
			found = append(found, m.Region)
		}
	}
	return found
}
