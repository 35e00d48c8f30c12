package door

import "sync"

// Shares gives out places, of which there are so many, to callers. A caller may
// hold as many as are free at the time, so that one caller gets half of them,
// three get a quarter each, and somebody who holds none always finds one as long
// as there are fewer callers than places. All methods may be called from many
// goroutines.
type Shares struct {
	limit int // negative: no limit

	mu    sync.Mutex
	total int            // guarded by mu. Invariant: the sum of by
	by    map[string]int // guarded by mu. Invariant: no value is 0
}

// NewShares makes places; a negative number of them is no limit.
func NewShares(limit int) *Shares { return &Shares{limit: limit, by: map[string]int{}} }

// Enter takes a place for a caller, if the caller may have one, to be given back
// by Leave.
func (s *Shares) Enter(caller string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := s.limit - s.total; s.limit >= 0 && s.by[caller] >= free {
		return false
	}
	s.total++
	s.by[caller]++
	return true
}

// Leave gives back a place that Enter took for a caller.
func (s *Shares) Leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.by[caller]--; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}

// Taken is how many places are taken.
func (s *Shares) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
