package replica

import "sync"

// index is the queue of linearizable reads. A linearizable read may be answered once the
// journal has shown, after the read asked, that some slot is empty, and once every slot
// below is applied. One Read of the journal serves all reads that wait: they are a round.
type index struct {
	mu      sync.Mutex
	waiting *round        // the round that the next Read to begin will answer; nil: nobody waits; guarded by mu
	signal  chan struct{} // holds a value once somebody waits
}

// round is a group of linearizable reads that share an answer, with the older rounds that
// get the same answer.
type round struct {
	done chan struct{}
	and  *round
}

// with adds an older round, which gets the same answer. older may be nil.
func (r *round) with(older *round) *round {
	last := r
	for last.and != nil {
		last = last.and
	}
	last.and = older
	return r
}

// answer lets all reads of the rounds go on. r may be nil.
func (r *round) answer() {
	for ; r != nil; r = r.and {
		close(r.done)
	}
}

func (x *index) init() { x.signal = make(chan struct{}, 1) }

// ask joins the next round. The channel is closed when the round is answered.
func (x *index) ask() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waiting == nil {
		x.waiting = &round{done: make(chan struct{})}
		select {
		case x.signal <- struct{}{}:
		default:
		}
	}
	return x.waiting.done
}

// waits says whether reads wait for a Read to begin.
func (x *index) waits() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.waiting != nil
}

// take returns the round of all reads that have asked up to now, or nil if none has. The
// caller must answer the round.
func (x *index) take() *round {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.waiting
	x.waiting = nil
	return r
}
