package roster

import (
	"maps"
	"slices"
	"sync"

	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// standing is what holds for all Services of a peer. When it changes, Services that were
// decided on the old standing are decided again.
type standing struct {
	health    clusterset.Health
	synced    bool
	confirmed bool
	reads     bool
}

func standingOf(p clusterset.Peer) standing {
	return standing{p.Health, p.Synced, p.Confirmed, p.Reads}
}

// standings are those that decisions on a peer's Services were made on, since follow last
// had Services decided again. The zero value is ready for use.
type standings struct {
	mu     sync.Mutex
	last   standing          // the newest that follow saw; guarded by mu
	passed map[standing]bool // the others; guarded by mu. Invariant: last is not in it
}

// replace makes now the last standing. It returns the other standings that decisions may
// have been made on since the last turn.
func (s *standings) replace(now standing) []standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(s.last)
	delete(s.passed, now)
	before := slices.Collect(maps.Keys(s.passed))
	clear(s.passed)
	s.last = now
	return before
}

// decided notes the standing that a decision was made on. It returns whether follow does
// not know of that standing yet.
func (s *standings) decided(on standing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == s.last || s.passed[on] {
		return false
	}
	s.note(on)
	return true
}

// note adds to passed. s.mu is held.
func (s *standings) note(on standing) {
	if s.passed == nil {
		s.passed = map[standing]bool{}
	}
	s.passed[on] = true
}
