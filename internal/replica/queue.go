package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// proposal holds the requests of one caller, most often one request. A proposal is
// queued, and then either batched or withdrawn, never both. A withdrawn request never
// happens. The requests of a proposal are in one batch, with no other between them.
type proposal struct {
	reqs     []*mvcc.Request
	size     int           // the requests' weight; their wire form is not longer
	state    atomic.Uint32 // queued, batched or withdrawn
	until    time.Time     // when its caller stops waiting
	done     chan struct{} // closed once results and err are set
	results  []mvcc.Result // one for each request, unless err is set
	err      error
	resolved bool // done is closed; only the loop reads and writes it
}

const (
	queued uint32 = iota
	batched
	withdrawn
)

func (p *proposal) outcome() ([]mvcc.Result, error) { return p.results, p.err }

// resolve gives the proposal its outcome, if it has none yet. Only the loop calls it.
func (p *proposal) resolve(results []mvcc.Result, err error) {
	if p.resolved {
		return
	}
	p.results, p.err, p.resolved = results, err, true
	close(p.done)
}

// withdraw takes the proposal back, unless a batch has it. It returns whether it did.
func (p *proposal) withdraw() bool { return p.state.CompareAndSwap(queued, withdrawn) }

// giveUp ends the caller's wait because of cause, and returns what the caller is told.
func (p *proposal) giveUp(cause error) ([]mvcc.Result, error) {
	if p.withdraw() {
		return nil, errors.Join(ErrUnavailable, cause)
	}
	select {
	case <-p.done: // the outcome came just now
		return p.outcome()
	default:
		return nil, errors.Join(ErrUnknown, cause)
	}
}

// The queue is bounded by the number of its proposals and by their weight.
const (
	maxQueued      = 16 << 10
	maxQueuedBytes = 64 << 20
)

// queue holds proposals in the order in which they came.
type queue struct {
	mu     sync.Mutex
	items  []*proposal   // guarded by mu
	bytes  int           // guarded by mu. Invariant: the sum of the items' sizes
	closed bool          // guarded by mu
	signal chan struct{} // holds a value once proposals have come
}

func (q *queue) init() { q.signal = make(chan struct{}, 1) }

// length returns how many proposals are queued, and their weight.
func (q *queue) length() (proposals, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), q.bytes
}

// add queues requests as one proposal, whose caller waits until the moment until. limit is
// the greatest weight of a batch. The error wraps ErrTooLarge, ErrStopped or ErrBusy.
func (q *queue) add(limit int, until time.Time, reqs ...*mvcc.Request) (*proposal, error) {
	p := &proposal{reqs: reqs, until: until, done: make(chan struct{})}
	for _, r := range reqs {
		p.size += r.Weight()
	}
	if p.size > limit || len(reqs) > mvcc.MaxBatchRequests {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", p.size, limit, ErrTooLarge)
	}
	q.mu.Lock()
	if q.closed || len(q.items) >= maxQueued || q.bytes+p.size > maxQueuedBytes {
		defer q.mu.Unlock()
		if q.closed {
			return nil, ErrStopped
		}
		return nil, ErrBusy
	}
	q.items = append(q.items, p)
	q.bytes += p.size
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
	return p, nil
}

// take returns the first proposals, as many as fit in a batch of the weight limit, and
// marks them as batched.
func (q *queue) take(limit int) []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, requests, n := 0, 0, 0
	var taken []*proposal
	for _, p := range q.items {
		if p.state.Load() == queued {
			size, requests = size+p.size, requests+len(p.reqs)
			if size > limit || requests > mvcc.MaxBatchRequests {
				break
			}
			if p.state.CompareAndSwap(queued, batched) {
				taken = append(taken, p)
			}
		}
		q.bytes -= p.size
		n++
	}
	left := copy(q.items, q.items[n:])
	clear(q.items[left:])
	q.items = q.items[:left]
	return taken
}

// timeOut withdraws the proposals whose callers' wait is over. If all is set, it
// withdraws every proposal and closes the queue.
func (q *queue) timeOut(now time.Time, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = q.closed || all
	err := ErrUnavailable
	if all {
		err = ErrStopped
	}
	q.items = slices.DeleteFunc(q.items, func(p *proposal) bool {
		if !all && now.Before(p.until) {
			return false
		}
		if p.withdraw() {
			p.resolve(nil, err)
		}
		q.bytes -= p.size
		return true
	})
}
