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

// proposal is requests on their way, most often one. It is queued, and then either
// claimed for a batch or abandoned, never both. Requests that were abandoned never happen.
// Those of one proposal are in the same batch, with no other between them.
type proposal struct {
	reqs     []*mvcc.Request
	size     int           // the requests' weight; their wire form is not longer
	state    atomic.Uint32 // queued, claimed or abandoned
	until    time.Time     // when its caller stops waiting
	done     chan struct{} // closed once results and err are set
	results  []mvcc.Result // one for each request, unless err is set
	err      error
	resolved bool // done is closed; only the loop reads and writes it
}

const (
	queued uint32 = iota
	claimed
	abandoned
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

// withdraw abandons the proposal, unless it is claimed for a batch. It returns whether
// it did.
func (p *proposal) withdraw() bool { return p.state.CompareAndSwap(queued, abandoned) }

// abandon ends its caller's wait, because of cause, and returns what the caller is told.
func (p *proposal) abandon(cause error) ([]mvcc.Result, error) {
	if p.withdraw() {
		return nil, errors.Join(ErrUnavailable, cause)
	}
	select {
	case <-p.done: // its outcome came just now
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
	signal chan struct{} // receives once proposals came
}

func (q *queue) init() { q.signal = make(chan struct{}, 1) }

// length returns how many proposals are queued, and their weight.
func (q *queue) length() (proposals, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), q.bytes
}

// add queues requests whose caller waits until then. limit is the greatest weight of a
// batch. The error wraps ErrTooLarge, ErrStopped or ErrBusy.
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

// take claims as many proposals as fit in a batch of the weight limit, in order.
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
			if p.state.CompareAndSwap(queued, claimed) {
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

// expire abandons the proposals whose callers' wait is over. If all is set,
// it abandons every proposal and closes the queue.
func (q *queue) expire(now time.Time, all bool) {
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
