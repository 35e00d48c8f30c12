package roster

import (
	"maps"
	"sync"
)

// A board holds what this server last learnt of the roster, and tells its
// listeners when what is trusted changes.
type board struct {
	id   string // of this server
	self Member

	mu        sync.Mutex
	revision  int64             // of the store, that members reflects. Invariant: it never falls.
	members   map[string]Member // by server id
	trust     *Trust            // Invariant: newTrust(id, self, members)
	changed   chan struct{}     // closed and replaced when trust changes
	listeners []func()
}

func newBoard(id string, self Member) *board {
	return &board{id: id, self: self, trust: newTrust(id, self, nil), changed: make(chan struct{})}
}

// install replaces the members, unless the board has something newer.
func (b *board) install(revision int64, members map[string]Member) {
	for _, tell := range b.replace(revision, members) {
		tell()
	}
}

// replace returns the listeners that are to be told.
func (b *board) replace(revision int64, members map[string]Member) []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if revision < b.revision {
		return nil
	}
	b.revision, b.members = revision, members
	t := newTrust(b.id, b.self, members)
	if t.equal(b.trust) {
		return nil
	}
	b.trust = t
	close(b.changed)
	b.changed = make(chan struct{})
	return append([]func(){}, b.listeners...)
}

// look returns a copy of the members, and the revision that they are of.
func (b *board) look() (int64, map[string]Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	members := maps.Clone(b.members)
	if members == nil {
		members = map[string]Member{}
	}
	return b.revision, members
}

// Current returns what to trust now, and a channel that closes when that changes.
func (b *board) Current() (*Trust, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trust, b.changed
}

// Listen has tell called whenever what is trusted changes. It must not wait.
func (b *board) Listen(tell func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, tell)
}
