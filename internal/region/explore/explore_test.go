package explore

import (
	"errors"
	"flag"
	"testing"
	"time"
)

var (
	limit  = flag.Int("states", states, "explore at most so many states of each scenario; 0: all")
	walks  = flag.Int("walks", ways, "go so many random ways of each scenario, with more faults")
	seed   = flag.Uint64("seed", 1, "which random ways")
	faults = flag.Int("faults", 2, "how many faults scenarios with two short clients have; longer ones have fewer")
)

// run explores a scenario, and says how far it came.
func run(t *testing.T, w *world, s Scenario) {
	t.Helper()
	s.Judge, s.Memorable, s.Limit, s.Fair = w.judge, decided, *limit, 63
	if s.Rest == nil {
		s.Rest = w.rest
	}
	if s.Start == nil {
		s.Start = w.start()
	}
	began := time.Now()
	report, err := Run(s)
	t.Logf("%v, in %s", report, time.Since(began).Round(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	s.Faults += 2
	if err := Walk(s, *seed, *walks); err != nil {
		t.Fatal(err)
	}
}

// bothWays runs a test without a centre and with one.
func bothWays(t *testing.T, n int, test func(t *testing.T, w *world)) {
	t.Run("records at home", func(t *testing.T) { test(t, regions(n)) })
	t.Run("records in the centre", func(t *testing.T) { test(t, withCentre(n)) })
}

func TestTwoCreatesInTwoRegions(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults, Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}}})
	})
}

func TestTwoCreatesInThreeRegions(t *testing.T) {
	bothWays(t, 3, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}}})
	})
}

// Clients that wait for each other do not wait for ever, nor does each abort the other:
// one of them gets the key.
func TestPatientCreates(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		w.patient = true
		run(t, w, Scenario{Faults: max(*faults-1, 0), Together: true,
			Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}},
			Rest: func(v View) error {
				if len(w.look(v).creates) != 1 {
					return errors.New("at rest, nobody has got the key")
				}
				return w.rest(v)
			}})
	})
}

func TestThreeCreates(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}, {w.create("c", "r1")}}})
	})
}

func TestTwoClientsWithOneOperation(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.create("a", "r1")}}})
	})
}

// Agents go on with what a client is at, or has left behind.
func TestAgentsBesideACreate(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.resume("a", "r1"), w.settle("r1")}, {w.settle("r2")}}})
	})
}

func TestAgentsBesideADelete(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r2"), w.create("b", "r2")}, {w.settle("r1"), w.resume("d", "r2")}}})
	})
}

func TestAgentsBesideRivals(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}, {w.settle("r2"), w.resume("a", "r1")}}})
	})
}

func TestAnAgentBesideARemoval(t *testing.T) {
	bothWays(t, 3, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-2, 0), Clients: [][]Task{{w.create("a", "r2")}, {w.expel("r2")}, {w.settle("r3")}}})
	})
}

func TestDeleteAgainstCreate(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1")}, {w.create("b", "r2")}}})
	})
}

func TestTwoDeletes(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1")}, {w.remove("e", "r2")}}})
	})
}

func TestDeleteAndReuse(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 2, Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1"), w.create("b", "r1")}, {w.remove("e", "r2"), w.create("c", "r2")}}})
	})
}

func TestCreateAgainstDeleteOfIt(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: *faults - 1,
			Clients: [][]Task{{w.create("a", "r1")}, {w.remove("d", "r2"), w.create("b", "r2")}}})
	})
}

func TestJoinAgainstCreate(t *testing.T) {
	bothWays(t, 1, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-1, 0), Clients: [][]Task{{w.create("a", "r1")}, {w.join("r2")}}})
	})
}

// The create reads a copy of the membership, and not the register.
func TestJoinAgainstCreateElsewhere(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Clients: [][]Task{{w.create("a", "r2")}, {w.join("r3")}}})
	})
}

func TestJoinAgainstDelete(t *testing.T) {
	bothWays(t, 1, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-1, 0), Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r1"), w.create("b", "r1")}, {w.join("r2")}}})
	})
}

func TestJoinAgainstTwoCreates(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Clients: [][]Task{{w.create("a", "r1")}, {w.create("b", "r2")}, {w.join("r3")}}})
	})
}

func TestTwoClientsJoinOneRegion(t *testing.T) {
	bothWays(t, 1, func(t *testing.T, w *world) {
		run(t, w, Scenario{Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.join("r2")}, {w.join("r2")}, {w.remove("d", "r1")}}})
	})
}

// A client that repeats its operation after the records were collected is told that
// nobody knows any more, and nothing is created a second time.
func TestCollectAgainstRepeatedCreate(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-1, 0),
			Clients: [][]Task{{w.create("a", "r1"), w.remove("d", "r1")}, {w.create("a", "r1")}, {w.collect(1)}}})
	})
}

// The removed region can still be reached, and its clients know nothing of its removal.
func TestRemovalAgainstCreates(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-1, 0),
			Clients: [][]Task{{w.create("a", "r2")}, {w.expel("r2"), w.create("b", "r1")}}})
	})
}

func TestRemovalAgainstCreatesInThreeRegions(t *testing.T) {
	bothWays(t, 3, func(t *testing.T, w *world) {
		run(t, w, Scenario{
			Clients: [][]Task{{w.create("a", "r3")}, {w.create("b", "r2")}, {w.expel("r3")}}})
	})
}

func TestRemovalAgainstDelete(t *testing.T) {
	bothWays(t, 3, func(t *testing.T, w *world) {
		run(t, w, Scenario{Start: w.start(w.owned("a", "r1")...),
			Clients: [][]Task{{w.remove("d", "r3")}, {w.expel("r3"), w.create("b", "r2")}}})
	})
}

func TestRemovalOfTheHome(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{Faults: max(*faults-1, 0), Start: w.start(w.owned("a", "r2")...),
			Clients: [][]Task{{w.expel("r2")}, {w.remove("d", "r1"), w.create("b", "r1")}}})
	})
}

func TestRemovalAndJoin(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{
			Clients: [][]Task{{w.create("a", "r2")}, {w.expel("r2"), w.join("r2"), w.remove("d", "r1")}}})
	})
}

func TestCollectAfterRejoin(t *testing.T) {
	bothWays(t, 2, func(t *testing.T, w *world) {
		run(t, w, Scenario{
			Clients: [][]Task{{w.create("a", "r2")}, {w.expel("r2"), w.join("r2"), w.collect(1)}}})
	})
}
