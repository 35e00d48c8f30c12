package ledger

import (
	"slices"
	"sync"
	"time"
)

// Set has the handles of all ledgers that one gateway uses, and knows since when
// the gateway has seen each pending create. It is safe for concurrent use.
type Set struct {
	store  Store
	pause  Pause
	queued func(Key)

	mu      sync.Mutex
	handles map[Key]*Handle
	// seen has when this gateway first saw each pending create, by id. Gateways'
	// clocks may differ, so that each measures by its own how long it is pending.
	seen map[Key]map[string]time.Time
}

// NewSet makes a Set over a store. pause is called between two attempts to write,
// and queued after each change that waits for a Flush.
func NewSet(store Store, pause Pause, queued func(Key)) *Set {
	return &Set{store: store, pause: pause, queued: queued, handles: map[Key]*Handle{}, seen: map[Key]map[string]time.Time{}}
}

// At returns the handle of a namespace's ledger.
func (s *Set) At(k Key) *Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[k]
	if h == nil {
		h = &Handle{store: s.store, key: k, pause: s.pause, queued: s.queued, turn: make(chan struct{}, 1)}
		s.handles[k] = h
	}
	return h
}

// Forget drops what is kept in memory of a namespace that is gone.
func (s *Set) Forget(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.handles, k)
	delete(s.seen, k)
}

// Expired returns the ids, sorted, of the pending creates that this gateway has
// seen for as long as their requests can live.
func (s *Set) Expired(k Key, l *Ledger) []string {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	before, seen := s.seen[k], map[string]time.Time{}
	var expired []string
	for id, f := range l.Pending {
		first, ok := before[id]
		if !ok {
			first = now
		}
		seen[id] = first
		if now.Sub(first) >= time.Duration(f.Seconds)*time.Second {
			expired = append(expired, id)
		}
	}
	s.seen[k] = seen
	slices.Sort(expired)
	return expired
}
