package explore

import (
	"flag"
	"testing"
	"time"
)

var (
	limit  = flag.Int("states", states, "explore at most so many states of each scenario; 0: all")
	faults = flag.Int("faults", 2, "how many faults scenarios with two short clients have; longer ones have fewer")
)

// run explores a scenario, and says how far it came.
func run(t *testing.T, w *world, s Scenario) {
	t.Helper()
	s.Judge, s.Rest, s.Limit, s.Fair = w.judge, w.rest, *limit, 63
	if s.Start == nil {
		s.Start = w.start()
	}
	began := time.Now()
	report, err := Run(s)
	t.Logf("%v, in %s", report, time.Since(began).Round(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
}

// ways runs a test without a centre and with one.
func ways(t *testing.T, n int, test func(t *testing.T, w *world)) {
	t.Run("records at home", func(t *testing.T) { test(t, regions(n)) })
	t.Run("records in the centre", func(t *testing.T) { test(t, withCentre(n)) })
}

func TestTwoCreatesInTwoRegions(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults, Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}}})
	})
}

func TestTwoCreatesInThreeRegions(t *testing.T) {
	ways(t, 3, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}}})
	})
}

func TestThreeCreates(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}, {w.create("c", "r1")}}})
	})
}

func TestTwoClientsWithOneOperation(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.create("a", "r1")}}})
	})
}

func TestDeleteAgainstCreate(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1")}, {w.create("b", "r2")}}})
	})
}

func TestTwoDeletes(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1")}, {w.remove("e", "r2")}}})
	})
}

func TestDeleteAndReuse(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 2, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1"), w.create("b", "r1")}, {w.remove("e", "r2"), w.create("c", "r2")}}})
	})
}

func TestCreateAgainstDeleteOfIt(t *testing.T) {
	ways(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1,
			Clients: [][]Task{{w.create("a", "r1")}, {w.remove("d", "r2"), w.create("b", "r2")}}})
	})
}
