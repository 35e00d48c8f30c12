// Package explore runs clients of the shipped protocol over regions in memory, in every
// order of their calls and with faults at every call, and judges each state that they
// reach. It never changes what the clients do: it only answers their calls.
//
// A client is a coroutine, and deterministic: what it does next follows from the answers
// it got since its pass began. A state is therefore what the regions store, the answers
// that each client has got, and the writes that are still under way. Two orders of calls
// that lead to equal states are explored once from there on.
package explore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Task is one thing that a client does, in as many passes as it takes. A pass begins with
// nothing in memory. A crash ends a pass at any call, and the next one begins.
type Task struct {
	Name string
	// Pass returns the task's result, or "" if it needs another pass.
	Pass func(stored.Call) (result string)
}

// Scenario is what is explored.
type Scenario struct {
	Start   []stored.Object // what is stored at first; the versions are ignored
	Clients [][]Task        // what each client does, one task after the other
	// Faults is how many there may be in all: crashes of a client, reads that fail,
	// writes whose answer is lost, and writes that are answered by Unknown and land
	// later, or never.
	Faults int
	// Memorable says which bodies judges remember once they were stored; see View.Memory.
	Memorable func(stored.Body) bool
	// Judge is asked about every state. It must not depend on anything but its arguments.
	Judge func(before, after View) error
	// Rest is asked about states in which all clients have finished.
	Rest func(View) error
	// Together: clients wait for each other, so that none need come to its end alone.
	Together bool
	// Limit ends the exploration after so many states; 0: none.
	Limit int
	// Fair is how many states are passed over between two of which it is checked that
	// all clients come to their end without faults, together and each alone; 0: each is
	// checked.
	Fair int
}

// Report says what was explored.
type Report struct {
	States int  // different ones
	Rests  int  // those in which all clients have finished
	Depth  int  // the longest way to a state
	Whole  bool // whether there is no state that was not looked at
}

func (r Report) String() string {
	whole := "to the end"
	if !r.Whole {
		whole = "cut there"
	}
	return fmt.Sprintf("%d states, %s; %d at rest; at most %d steps deep", r.States, whole, r.Rests, r.Depth)
}

// Violation is a state that must not be, with the steps that led to it.
type Violation struct {
	Err   error
	Steps []string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v, after %d steps:\n  %s", v.Err, len(v.Steps), strings.Join(v.Steps, "\n  "))
}

func (v *Violation) Unwrap() error { return v.Err }

// Run explores the scenario until it has seen every state, or finds a Violation.
func Run(s Scenario) (Report, error) {
	e := newExplorer(s)
	err := e.explore(e.first())
	e.report.States = len(e.seen)
	return e.report, err
}

// Walk goes n random ways from the start until all clients have finished, and judges each
// state on them. The same seed goes the same ways.
func Walk(s Scenario, seed uint64, n int) error {
	e := newExplorer(s)
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
	first := e.first()
	for range n {
		at := first
		for at.depth < patience && !e.finished(at) {
			steps := e.steps(at)
			if chance.IntN(8) > 0 { // otherwise all faults would come at the beginning
				steps = slices.DeleteFunc(steps, step.isFault)
			}
			next := e.take(at, steps[chance.IntN(len(steps))])
			if err := e.judge(at, next); err != nil {
				return err
			}
			at = next
			if chance.IntN(s.Fair+1) == 0 {
				if err := e.goOn(at); err != nil {
					return err
				}
			}
		}
		if err := e.goOn(at); err != nil {
			return err
		}
	}
	return nil
}

type explorer struct {
	scenario Scenario
	catalog  *catalog
	roots    [][]*node // of each client's tasks
	seen     map[[2]uint64]struct{}
	seeds    [2]maphash.Seed
	report   Report
}

func newExplorer(s Scenario) *explorer {
	return &explorer{scenario: s, catalog: newCatalog(), seen: map[[2]uint64]struct{}{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// first is the state in which nothing has happened.
func (e *explorer) first() *state {
	s := &state{faults: e.scenario.Faults}
	for _, o := range e.scenario.Start {
		key := e.catalog.key(objectKey{o.Place, o.Body.Kind(), o.Body.Name()})
		s.objects = s.objects.with(entry{key, 1, e.catalog.body(o.Body)})
	}
	for _, tasks := range e.scenario.Clients {
		var roots []*node
		for _, t := range tasks {
			roots = append(roots, e.catalog.root(t))
		}
		e.roots = append(e.roots, roots)
		s.clients = append(s.clients, client{node: roots[0], answers: make([]int, len(roots[0].batch))})
	}
	return s
}

// explore goes through all states that can be reached from s, depth first.
func (e *explorer) explore(s *state) error {
	if _, err := e.visit(s); err != nil {
		return err
	}
	for stack := []*state{s}; len(stack) > 0; {
		s, stack = stack[len(stack)-1], stack[:len(stack)-1]
		for _, step := range e.steps(s) {
			next := e.take(s, step)
			if err := e.judge(s, next); err != nil {
				return err
			}
			fresh, err := e.visit(next)
			if err != nil {
				return err
			}
			if fresh {
				stack = append(stack, next)
			}
		}
		if e.scenario.Limit > 0 && len(e.seen) >= e.scenario.Limit {
			return nil
		}
	}
	e.report.Whole = true
	return nil
}

// judge holds the step to next against the invariants.
func (e *explorer) judge(s, next *state) error {
	if sameObjects(s.objects, next.objects) && slices.Equal(s.results, next.results) {
		return nil
	}
	if err := e.scenario.Judge(View{e, s}, View{e, next}); err != nil {
		return &Violation{err, e.story(next)}
	}
	return nil
}

// visit notes a state, and says whether it was not seen before.
func (e *explorer) visit(s *state) (fresh bool, err error) {
	code := s.encode()
	sum := [2]uint64{maphash.Bytes(e.seeds[0], code), maphash.Bytes(e.seeds[1], code)}
	if _, ok := e.seen[sum]; ok {
		return false, nil
	}
	e.seen[sum] = struct{}{}
	e.report.Depth = max(e.report.Depth, s.depth)
	if e.finished(s) {
		e.report.Rests++
	}
	if len(e.seen)%(e.scenario.Fair+1) == 0 || e.finished(s) {
		return true, e.goOn(s)
	}
	return true, nil
}

func (e *explorer) finished(s *state) bool {
	return !slices.ContainsFunc(s.clients, func(c client) bool { return c.node != nil })
}

// patience is how many calls all clients together may need to come to their end.
const patience = 3000

var errStuck = errors.New("clients do not come to an end, though nothing goes wrong any more")

// goOn lets the clients take turns, without faults, until all have finished, and judges
// how they leave the regions. Then it lets each client go on alone, as if all others had
// died: it must come to its end, too.
func (e *explorer) goOn(s *state) error {
	end, err := e.turns(s, func(turn int) int { return turn % len(s.clients) })
	if err != nil {
		return err
	}
	if err := e.scenario.Rest(View{e, end}); err != nil {
		return &Violation{err, e.story(end)}
	}
	for i := range s.clients {
		if e.scenario.Together {
			break
		}
		if _, err := e.turns(s, func(int) int { return i }); err != nil {
			return err
		}
	}
	return nil
}

// turns lets the clients that next names go on, one call in each turn, until they have all
// finished.
func (e *explorer) turns(s *state, next func(turn int) int) (*state, error) {
	start, idle := s, 0
	for turn := 0; idle < len(s.clients); turn++ {
		if turn > patience {
			return nil, &Violation{errStuck, e.story(start)}
		}
		i := next(turn)
		c := s.clients[i]
		if c.node == nil {
			idle++
			continue
		}
		idle = 0
		after := e.take(s, step{client: i, request: slices.Index(c.answers, 0)})
		if err := e.judge(s, after); err != nil {
			return nil, err
		}
		s = after
	}
	return s, nil
}
