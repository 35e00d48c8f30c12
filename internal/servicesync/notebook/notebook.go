// Package notebook remembers, from one decision about a Service to the next, what was
// noticed, written and said. It never reads or writes a cluster, and no decision
// depends on it: a process that starts with an empty notebook decides the same.
package notebook

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// Patience is how long an informer may take to show a write. After that, the object is
// taken to have been changed by somebody else before the informer saw it.
const Patience = 5 * time.Second

// Notebook holds the notes about all Services of a cluster. It is safe for concurrent
// use, except that only one worker at a time may call Take, CaughtUp, Wrote, Decided and
// Settle for a Service.
type Notebook struct {
	mu sync.Mutex
	// initial are the Services of the own cluster's first lists that still wait for
	// their first decision. Invariant: nothing is added once loaded is set.
	initial map[types.NamespacedName]struct{}
	loaded  bool // the first lists are complete
	notes   map[types.NamespacedName]*notes
}

// notes are the notes about one Service. Invariant: notes that are idle and that no
// worker is using may be dropped.
type notes struct {
	noticed Noticed
	written []receipt // in the order of their deadlines
	said    map[plan.Event]bool
	facts   model.Facts
}

// Noticed is when changes were noticed that no decision has taken into account yet.
type Noticed struct {
	Own   time.Time                   // the first change in the own cluster; zero: none
	Peers map[clusterset.ID]time.Time // the first change of each peer's publications
}

// receipt is a write that the informers must show before the next decision. Otherwise that
// decision would be about a state that this process itself has changed.
type receipt struct {
	shown    func() bool
	deadline time.Time
}

// New returns an empty notebook.
func New() *Notebook {
	return &Notebook{initial: make(map[types.NamespacedName]struct{}), notes: make(map[types.NamespacedName]*notes)}
}

// of returns the notes about a Service, and creates them if needed. n.mu is held.
func (n *Notebook) of(k types.NamespacedName) *notes {
	if n.notes[k] == nil {
		n.notes[k] = &notes{}
	}
	return n.notes[k]
}

// Changed notes a change in the own cluster; initial says that it came with a first list.
func (n *Notebook) Changed(k types.NamespacedName, initial bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if initial && !n.loaded {
		n.initial[k] = struct{}{}
	} else if at := &n.of(k).noticed.Own; at.IsZero() {
		*at = time.Now()
	}
}

// Received notes a change of what a peer publishes.
func (n *Notebook) Received(k types.NamespacedName, id clusterset.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	noticed := &n.of(k).noticed
	if noticed.Peers == nil {
		noticed.Peers = make(map[clusterset.ID]time.Time)
	}
	if _, ok := noticed.Peers[id]; !ok {
		noticed.Peers[id] = time.Now()
	}
}

// Take returns the changes that were noticed, and forgets them: the caller decides on them
// now.
func (n *Notebook) Take(k types.NamespacedName) Noticed {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.notes[k]
	if found == nil {
		return Noticed{}
	}
	taken := found.noticed
	found.noticed = Noticed{}
	return taken
}

// Wrote notes a write; shown reports whether the informers show it.
func (n *Notebook) Wrote(k types.NamespacedName, shown func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.of(k)
	found.written = append(found.written, receipt{shown, time.Now().Add(Patience)})
}

// CaughtUp reports whether the informers show all that was written for a Service.
func (n *Notebook) CaughtUp(k types.NamespacedName, now time.Time) bool {
	n.mu.Lock()
	found := n.notes[k]
	if found == nil || len(found.written) == 0 {
		n.mu.Unlock()
		return true
	}
	waiting := found.written
	n.mu.Unlock()
	for len(waiting) > 0 && (waiting[0].shown() || now.After(waiting[0].deadline)) { // shown takes the informers' locks
		waiting = waiting[1:]
	}
	if len(waiting) == 0 {
		waiting = nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	found.written = waiting
	return waiting == nil
}

// Overdue returns the Services with a write that the informers have not shown in time.
func (n *Notebook) Overdue(now time.Time) (late []types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, found := range n.notes {
		if len(found.written) > 0 && now.After(found.written[0].deadline) {
			late = append(late, k)
		}
	}
	return late
}

// Decided notes the outcome of a decision. It returns the facts of the last decision before
// it, and those events that the last decision did not have.
func (n *Notebook) Decided(k types.NamespacedName, facts model.Facts, events []plan.Event) (before model.Facts, fresh []plan.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.of(k)
	before, found.facts = found.facts, facts
	var said map[plan.Event]bool
	for _, e := range events {
		if !found.said[e] {
			fresh = append(fresh, e)
		}
		if said == nil {
			said = make(map[plan.Event]bool, len(events))
		}
		said[e] = true
	}
	found.said = said
	return before, fresh
}

// Settle notes that a Service is up to date. It drops idle notes, and returns the same as
// Settled.
func (n *Notebook) Settle(k types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.initial, k)
	if found := n.notes[k]; found != nil && found.idle() {
		delete(n.notes, k)
	}
	return n.settled()
}

// idle reports whether the notes hold nothing that a later decision needs.
func (n *notes) idle() bool {
	f := n.facts
	return n.noticed.Own.IsZero() && n.noticed.Peers == nil && n.written == nil && n.said == nil &&
		f.Conflict == "" && f.Holds == "" && f.Phase == "" && !f.Kept
}

// Loaded notes that the first lists of the own cluster are complete.
func (n *Notebook) Loaded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loaded = true
}

// Settled reports whether every Service of the first lists was brought up to date once.
func (n *Notebook) Settled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settled()
}

func (n *Notebook) settled() bool { return n.loaded && len(n.initial) == 0 }

// Totals count the Services by what their last decisions found.
type Totals struct {
	Holds     int            // migrations that wait
	Conflicts map[string]int // by reason
	Phases    map[string]int // handovers, by phase
}

// Totals counts the facts of all Services.
func (n *Notebook) Totals() Totals {
	t := Totals{Conflicts: make(map[string]int), Phases: make(map[string]int)}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, found := range n.notes {
		if found.facts.Holds != "" {
			t.Holds++
		}
		if found.facts.Conflict != "" {
			t.Conflicts[found.facts.Conflict]++
		}
		if found.facts.Phase != "" {
			t.Phases[string(found.facts.Phase)]++
		}
	}
	return t
}
