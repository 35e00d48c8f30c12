package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// What a ledger answers to a step it does not take.
var (
	errClosed     = errors.New("the namespace is being deleted")
	errNotHeld    = errors.New("the server's finalizer is not on the namespace")
	errLeaving    = errors.New("the server's finalizer is being taken off the namespace")
	errUncounted  = errors.New("the resource has not been counted")
	errExceeded   = errors.New("the quota is used up")
	errCrowded    = errors.New("too many creates are under way in the namespace")
	errShare      = errors.New("too many creates of one user are under way")
	errStale      = errors.New("the ledger is not the one that was read")
	errUnreadable = errors.New("the ledger cannot be read")
)

const (
	// maxFlights bounds the ledger's text to a fraction of what a ConfigMap may
	// hold; more creates than that at once in one namespace have to wait.
	maxFlights = 2000
	// maxUserFlights is how many of them one user may have.
	maxUserFlights = 200
	// noLimit is the hard limit where there is no quota.
	noLimit = -1
)

// ledger is what all gateways know together about one namespace. Its methods
// decide and change; they do no I/O, read no clock, and are idempotent, for a
// write whose answer was lost is applied again to what is found.
type ledger struct {
	// Born tells this ledger from one that was there before it.
	Born string `json:"born"`
	// Left counts how often a server's finalizer was taken off; it only grows.
	Left int64 `json:"left,omitempty"`
	// Closed says that the namespace is being deleted: no flight is let in.
	Closed bool `json:"closed,omitempty"`
	// Held are the servers whose finalizer is on the namespace.
	Held map[string]holding `json:"held,omitempty"`
	// Counts are kept by resource, in the form resource.group.
	Counts map[string]count `json:"counts,omitempty"`
	// Flights are the creates under way, by id.
	Flights map[string]flight `json:"flights,omitempty"`
}

// holding says how a server's finalizer stands.
type holding string

const (
	held    holding = "held"    // it is on the namespace, and stays
	leaving holding = "leaving" // it is being taken off: the server holds nothing
)

// count is what is known of one resource.
type count struct {
	// Version is the API version at which a create was last let in: discovery
	// may not show, or not show yet, what is there.
	Version string `json:"version,omitempty"`
	// Landed counts the flights that left and may have created an object. It
	// only grows, so that who lists can tell what landed meanwhile.
	Landed int64 `json:"landed,omitempty"`
	// Counted says that Used is kept. It is while a quota limits the resource.
	Counted bool `json:"counted,omitempty"`
	// Used is the objects that exist and the flights, or more.
	Used int64 `json:"used,omitempty"`
	// Exact says that Used came of a list while nothing was under way, and has
	// followed every create since.
	Exact bool `json:"exact,omitempty"`
}

// flight is a create that has been let in and whose outcome is not written yet.
type flight struct {
	Server   string `json:"server"`
	Resource string `json:"resource"`
	Version  string `json:"version,omitempty"`
	// Seconds is how long the flight must be watched before it lapses.
	Seconds int64 `json:"seconds"`
	// By is who made the reservation: a gateway, or a server's own user.
	By string `json:"by,omitempty"`
	// User stands for whose create it is; "" if nobody has said.
	User string `json:"user,omitempty"`
}

func newLedger(born string) *ledger {
	return &ledger{
		Born:    born,
		Held:    map[string]holding{},
		Counts:  map[string]count{},
		Flights: map[string]flight{},
	}
}

// parseLedger reads what encode wrote; anything else is errUnreadable.
func parseLedger(text string) (*ledger, error) {
	l := newLedger("")
	if err := json.Unmarshal([]byte(text), l); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	fill(&l.Held)
	fill(&l.Counts)
	fill(&l.Flights)
	if l.Born == "" {
		return nil, fmt.Errorf("%w: it does not say when it was born", errUnreadable)
	}
	for r, c := range l.Counts {
		if c.Landed < 0 || c.Counted && c.Used < int64(l.flying(r)) {
			return nil, fmt.Errorf("%w: %s has %d used with %d under way", errUnreadable, r, c.Used, l.flying(r))
		}
	}
	for id, f := range l.Flights {
		if f.Seconds <= 0 {
			return nil, fmt.Errorf("%w: flight %s never lapses", errUnreadable, id)
		}
	}
	return l, nil
}

// fill makes a map where a null was read.
func fill[M ~map[K]V, K comparable, V any](m *M) {
	if *m == nil {
		*m = M{}
	}
}

// encode writes the ledger; equal ledgers give equal texts.
func (l *ledger) encode() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("encode a ledger: %v", err)) // it holds plain values only
	}
	return string(text)
}

func (l *ledger) clone() *ledger {
	c := *l
	c.Held, c.Counts, c.Flights = maps.Clone(l.Held), maps.Clone(l.Counts), maps.Clone(l.Flights)
	return &c
}

// reserve lets a flight in, if used stays within hard. mustHold says that the
// server's finalizer has to be on the namespace.
func (l *ledger) reserve(id string, f flight, hard int64, mustHold bool) error {
	if _, again := l.Flights[id]; again {
		return nil
	}
	c := l.Counts[f.Resource]
	switch {
	case l.Closed:
		return errClosed
	case mustHold && l.Held[f.Server] == leaving:
		return errLeaving
	case mustHold && l.Held[f.Server] != held:
		return errNotHeld
	case hard != noLimit && !c.Counted:
		return errUncounted
	case hard != noLimit && c.Used+1 > hard:
		return errExceeded
	case len(l.Flights) >= maxFlights:
		return errCrowded
	case f.User != "" && !l.shares(f, hard):
		return errShare
	}
	if c.Counted {
		c.Used++
	}
	if f.Version != "" {
		c.Version = f.Version
	}
	l.Counts[f.Resource] = c
	l.Flights[id] = f
	return nil
}

// shares says whether a user may have one more create under way: of the places
// that no object holds yet, no more than half, rounded up. So nobody's creates
// that are lost use up a quota, as long as it has two places left.
func (l *ledger) shares(f flight, hard int64) bool {
	all, same, flying := 0, int64(0), int64(0)
	for _, o := range l.Flights {
		if o.User == f.User {
			all++
		}
		if o.Resource == f.Resource {
			flying++
			if o.User == f.User {
				same++
			}
		}
	}
	if all >= maxUserFlights {
		return false
	}
	free := hard - (l.Counts[f.Resource].Used - flying)
	return hard == noLimit || same < (free+1)/2
}

// landed takes out a flight whose object exists, or may.
func (l *ledger) landed(id string) {
	if f, ok := l.Flights[id]; ok {
		delete(l.Flights, id)
		c := l.Counts[f.Resource]
		c.Landed++
		l.Counts[f.Resource] = c
	}
}

// returned takes out a flight that has created nothing, and never will.
func (l *ledger) returned(id string) {
	if f, ok := l.Flights[id]; ok {
		delete(l.Flights, id)
		c := l.Counts[f.Resource]
		if c.Counted {
			c.Used--
		}
		l.Counts[f.Resource] = c
	}
}

// arrived counts an object that was created without a flight. If its write is
// repeated it counts twice, which the next list puts right.
func (l *ledger) arrived(resource string) {
	c := l.Counts[resource]
	c.Landed++
	if c.Counted {
		c.Used++
		c.Exact = false
	}
	l.Counts[resource] = c
}

// recount is a list of one resource's objects in the namespace.
type recount struct {
	Resource string
	// Born and Landed are what the ledger said before the list began.
	Born   string
	Landed int64
	// Lapsed are flights that had lapsed before the list began: the list shows
	// what became of them.
	Lapsed []string
	// Listed is how many objects there were.
	Listed int64
}

// recount takes the outcome of a list in. What exists now existed when it was
// listed, or is of a flight that is under way now, or has landed since before
// the list: the sum of the three is a bound, whatever happened in between. It is
// exact where the latter two are none.
func (l *ledger) recount(r recount) error {
	if l.Born != r.Born {
		return errStale
	}
	c := l.Counts[r.Resource]
	since := c.Landed - r.Landed
	for _, id := range r.Lapsed {
		if f, ok := l.Flights[id]; ok && f.Resource == r.Resource {
			delete(l.Flights, id)
			c.Landed++
		}
	}
	flying := int64(l.flying(r.Resource))
	bound := r.Listed + flying + since
	exact := flying == 0 && since == 0
	// Used is a bound as well: the lower one is taken, unless objects came
	// around the gateways, which an exact list proves, or one with more than Used.
	if !c.Counted || bound <= c.Used || exact || r.Listed > c.Used {
		c.Used = bound
	}
	c.Counted, c.Exact = true, exact
	l.Counts[r.Resource] = c
	return nil
}

// lapse takes out flights that have lapsed, of resources whose count is of no
// interest: no quota limits them, or the namespace is going. That they may have
// landed matters to who is listing, and to nobody else.
func (l *ledger) lapse(ids []string) {
	for _, id := range ids {
		if f, ok := l.Flights[id]; ok && (l.Closed || !l.Counts[f.Resource].Counted) {
			l.landed(id)
		}
	}
}

// uncount ends the counting of a resource that no quota limits any more.
func (l *ledger) uncount(resource string) {
	c := l.Counts[resource]
	l.Counts[resource] = count{Version: c.Version, Landed: c.Landed}
}

// hold writes down that the server's finalizer is on the namespace: who calls
// has seen it there, after it read the ledger that said born and left.
func (l *ledger) hold(server, born string, left int64) error {
	switch {
	case l.Born != born || l.Left != left:
		return errStale
	case l.Closed:
		return errClosed
	case l.Held[server] == leaving:
		return errLeaving
	}
	l.Held[server] = held
	return nil
}

// leave begins to take the finalizer of a server off, which held nothing when
// it was looked at; landed is what everLanded said before that. It is refused
// if something may have come since.
func (l *ledger) leave(server, born string, landed int64) error {
	if l.Born != born || l.everLanded() != landed || l.flyingTo(server) > 0 {
		return errStale
	}
	if _, ok := l.Held[server]; ok {
		l.Held[server] = leaving
	}
	return nil
}

// left ends what leave began: the finalizer has been seen to be off, after the
// ledger was read that said born and left.
func (l *ledger) left(server, born string, left int64) error {
	if l.Born != born || l.Left != left || l.Held[server] != leaving {
		return errStale
	}
	delete(l.Held, server)
	l.Left++
	return nil
}

// flying is how many flights would create an object of the resource.
func (l *ledger) flying(resource string) int {
	n := 0
	for _, f := range l.Flights {
		if f.Resource == resource {
			n++
		}
	}
	return n
}

// flyingTo is how many flights are under way to the server.
func (l *ledger) flyingTo(server string) int {
	n := 0
	for _, f := range l.Flights {
		if f.Server == server {
			n++
		}
	}
	return n
}

// known are the resources of which something may have been created, with the
// version at which that was.
func (l *ledger) known() map[string]string {
	found := map[string]string{}
	for r, c := range l.Counts {
		if c.Version != "" {
			found[r] = c.Version
		}
	}
	return found
}

// everLanded is the sum of Landed over all resources; it only grows.
func (l *ledger) everLanded() int64 {
	var n int64
	for _, c := range l.Counts {
		n += c.Landed
	}
	return n
}

// servers are those that the ledger knows of, in order.
func (l *ledger) servers() []string {
	names := map[string]bool{}
	for s := range l.Held {
		names[s] = true
	}
	for _, f := range l.Flights {
		names[f.Server] = true
	}
	return slices.Sorted(maps.Keys(names))
}
