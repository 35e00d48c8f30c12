package replica

import "sync"

// index is the queue of linearizable reads. Each needs to know that some slot
// was empty at a moment after it asked, and that every slot below is applied.
// Reads that wait share the question: a round is asked once for all.
type index struct {
	mu      sync.Mutex
	waiting *round // what a question asked from now on will answer; guarded by mu
	signal  chan struct{}
}

// round is reads that share an answer, and rounds that wait for the same one.
type round struct {
	done chan struct{}
	and  *round
}

// with adds older rounds, which the question answers too.
func (r *round) with(older *round) *round {
	last := r
	for last.and != nil {
		last = last.and
	}
	last.and = older
	return r
}

func (r *round) answer() {
	for ; r != nil; r = r.and {
		close(r.done)
	}
}

func (x *index) init() { x.signal = make(chan struct{}, 1) }

// ask joins the next round; the channel is closed when it is answered.
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

// take starts a question for everyone who asked up to now; nil if nobody did.
func (x *index) take() *round {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.waiting
	x.waiting = nil
	return r
}
