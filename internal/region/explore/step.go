package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// fate is what becomes of a call.
type fate int

const (
	answered fate = iota // it is carried out and answered
	lost                 // it is carried out, and the answer is lost
	delayed              // it is not answered, and may land later
	failed               // it is neither carried out nor answered
	crashed              // no call: the client crashes, and begins its pass again
	landed               // no call: a delayed write lands
)

// step is one thing that can happen in a state.
type step struct {
	client  int
	request int // the number of the call in the client's batch, or of the write under way
	fate    fate
}

func (t step) isFault() bool { return t.fate != answered && t.fate != landed }

// steps are all that can happen in s.
func (e *explorer) steps(s *state) (all []step) {
	for i := range s.late {
		all = append(all, step{request: i, fate: landed})
	}
	for i, c := range s.clients {
		if c.node == nil {
			continue
		}
		for j, a := range c.answers {
			if a != 0 {
				continue
			}
			all = append(all, step{i, j, answered})
			if s.faults == 0 {
				continue
			}
			switch c.node.batch[j].Action {
			case stored.Read, stored.List:
				all = append(all, step{i, j, failed})
			default:
				all = append(all, step{i, j, lost}, step{i, j, delayed})
			}
		}
		if s.faults > 0 && (c.node.parent != nil || slices.Max(c.answers) > 0) {
			all = append(all, step{client: i, fate: crashed})
		}
	}
	return all
}

// take returns the state after the step.
func (e *explorer) take(s *state, t step) *state {
	next := &state{objects: s.objects, clients: slices.Clone(s.clients), late: s.late, faults: s.faults,
		results: s.results, memory: s.memory, parent: s, step: t, depth: s.depth + 1}
	if t.isFault() {
		next.faults--
	}
	if t.fate == landed {
		next.late = slices.Delete(slices.Clone(s.late), t.request, t.request+1)
		e.carryOut(next, s.late[t.request].request)
		return next
	}
	c := &next.clients[t.client]
	if t.fate == crashed {
		e.begin(c)
		return next
	}
	request := c.node.batch[t.request]
	said := e.catalog.answer(stored.Unknown, nil, false)
	switch t.fate {
	case answered:
		said = e.carryOut(next, request)
	case lost:
		e.carryOut(next, request)
	case delayed:
		next.late = append(slices.Clip(s.late), flight{t.client, request})
	default: // nothing happens in the region
	}
	c.answers = slices.Clone(c.answers)
	c.answers[t.request] = said
	if !slices.Contains(c.answers, 0) {
		e.goTo(next, t.client, e.catalog.child(c.node, c.answers))
	}
	return next
}

// begin lets a client begin its pass again.
func (e *explorer) begin(c *client) {
	for c.node.parent != nil {
		c.node = c.node.parent
	}
	c.answers = make([]int, len(c.node.batch))
}

// goTo lets client i, which has got all answers, come to n: to further calls, to another
// pass, to its next task, or to its end.
func (e *explorer) goTo(s *state, i int, n *node) {
	c := &s.clients[i]
	c.node = n
	switch {
	case n.ended && n.result == "":
		e.begin(c)
		return
	case n.ended:
		s.results = append(slices.Clip(s.results), result{i, c.task, e.catalog.text(n.result)})
		c.task++
		if c.task == len(e.roots[i]) {
			*c = client{task: c.task}
			return
		}
		c.node = e.roots[i][c.task]
	}
	c.answers = make([]int, len(c.node.batch))
}

// carryOut does to the regions of s what the request asks for, as an API server would,
// and returns the answer's number.
func (e *explorer) carryOut(s *state, r call) int {
	c := e.catalog
	if r.Action == stored.List {
		var all objects
		for _, o := range s.objects {
			if k := c.keys[o.key]; k.place == r.Place && k.kind == r.Kind {
				all = append(all, o)
			}
		}
		return c.answer(stored.OK, all, true)
	}
	old, exists := s.objects.find(r.key)
	switch {
	case !exists && (r.Action == stored.Read || r.Action == stored.Remove):
		return c.answer(stored.NotFound, nil, false)
	case r.Action == stored.Read:
		return c.answer(stored.OK, objects{old}, false)
	case exists != (r.Action != stored.Insert), exists && old.version != r.version:
		return c.answer(stored.Conflict, nil, false)
	case r.Action == stored.Remove:
		s.objects = s.objects.without(r.key)
		return c.answer(stored.OK, nil, false)
	}
	written := entry{r.key, s.unused(r.key, c), r.body}
	s.objects = s.objects.with(written)
	if e.scenario.Memorable(r.Body) && !slices.Contains(s.memory, r.body) {
		s.memory = append(slices.Clip(s.memory), r.body)
	}
	return c.answer(stored.OK, objects{written}, false)
}

// story tells the steps that led to s.
func (e *explorer) story(s *state) (told []string) {
	for ; s.parent != nil; s = s.parent {
		told = append(told, e.tell(s.parent, s.step))
	}
	slices.Reverse(told)
	return told
}

func (e *explorer) tell(s *state, t step) string {
	if t.fate == landed {
		f := s.late[t.request]
		return fmt.Sprintf("%s's delayed call lands: %s", e.name(f.client, 0), describe(f.request))
	}
	c := s.clients[t.client]
	who := e.name(t.client, c.task)
	if t.fate == crashed {
		return who + " crashes"
	}
	said := ""
	if t.fate == answered {
		scratch := *s
		a := e.catalog.answers[e.carryOut(&scratch, c.node.batch[t.request])].said
		said = ": " + string(a.Outcome)
		if c.node.batch[t.request].Action == stored.Read && a.Outcome == stored.OK {
			said += fmt.Sprintf(" %v", a.Object.Body)
		}
	}
	return who + " " + describe(c.node.batch[t.request]) + said + []string{"", " (answer lost)", " (delayed)", " (fails)"}[t.fate]
}

func (e *explorer) name(client, task int) string {
	return e.scenario.Clients[client][task].Name
}

func describe(r call) string {
	at := string(r.Place)
	if r.Place == stored.Central {
		at = "the centre"
	}
	s := []string{string(r.Action), string(r.Kind), "in", at}
	if r.Kind == stored.KindOperation {
		s[1] += " " + r.Name
	}
	if r.Body != nil {
		s = append(s, fmt.Sprintf("%v", r.Body))
	}
	return strings.Join(s, " ")
}

// View is a state as judges see it.
type View struct {
	e *explorer
	s *state
}

// Read returns what is stored in a place under a name, or nil.
func (v View) Read(p stored.Place, k stored.Kind, name string) stored.Body {
	n, ok := v.e.catalog.keyOf[objectKey{p, k, name}]
	if !ok {
		return nil
	}
	o, ok := v.s.objects.find(n)
	if !ok {
		return nil
	}
	return v.e.catalog.bodies[o.body]
}

// All yields every stored object, in an order of its own.
func (v View) All(yield func(stored.Place, stored.Body) bool) {
	for _, o := range v.s.objects {
		if !yield(v.e.catalog.keys[o.key].place, v.e.catalog.bodies[o.body]) {
			return
		}
	}
}

// Memory are the memorable bodies that were ever written.
func (v View) Memory() (all []stored.Body) {
	for _, n := range v.s.memory {
		all = append(all, v.e.catalog.bodies[n])
	}
	return all
}

// Result is what a task has come to.
type Result struct {
	Task string
	Text string
}

// Results are those of all tasks that have ended, in this order.
func (v View) Results() (all []Result) {
	for _, r := range v.s.results {
		all = append(all, Result{v.e.name(r.client, r.task), v.e.catalog.texts[r.text]})
	}
	return all
}
