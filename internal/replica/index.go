package replica

import "sync"

// index is the queue of linearizable reads. Each needs to know that some slot was empty
// at a moment after it asked, and that every slot below is applied. One Read of the
// journal tells that for all reads that wait: they are a round.
type index struct {
	mu      sync.Mutex
	waiting *round        // that the next Read to begin will answer; nil: nobody waits; guarded by mu
	signal  chan struct{} // receives once somebody waits
}

// round is linearizable reads that share an answer, and older rounds that wait for the
// same one.
type round struct {
	done chan struct{}
	and  *round
}

// with adds older rounds, which get the same answer.
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

// take returns the round of all who have asked up to now, which the caller answers; nil
// if nobody has.
func (x *index) take() *round {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.waiting
	x.waiting = nil
	return r
}
