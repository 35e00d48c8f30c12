package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// A proposal is one request on its way: queued, then either claimed for a
// batch or abandoned by its caller. What is abandoned in time never happens.
type proposal struct {
	req   *mvcc.Request
	size  int // its weight, which its wire form is not longer than
	state atomic.Uint32
	until time.Time     // when waiting for it ends
	done  chan struct{} // closed once result and err are set
	res   mvcc.Result
	err   error
	told  bool // done is closed; the loop's own
}

const (
	queued uint32 = iota
	claimed
	abandoned
)

func (p *proposal) outcome() (mvcc.Result, error) { return p.res, p.err }

// settle gives the proposal its outcome; the first one counts. Only the loop
// calls it.
func (p *proposal) settle(res mvcc.Result, err error) {
	if p.told {
		return
	}
	p.res, p.err, p.told = res, err, true
	close(p.done)
}

// withdraw takes back what was not claimed for a batch yet: it never happens.
func (p *proposal) withdraw() bool { return p.state.CompareAndSwap(queued, abandoned) }

// abandon gives up waiting, because of cause.
func (p *proposal) abandon(cause error) (mvcc.Result, error) {
	if p.withdraw() {
		return mvcc.Result{}, errors.Join(ErrUnavailable, cause)
	}
	select {
	case <-p.done: // it came to an end just now
		return p.outcome()
	default:
		return mvcc.Result{}, errors.Join(ErrUnknown, cause)
	}
}

// What waits is bounded by its number and by its weight.
const (
	maxQueued      = 16 << 10
	maxQueuedBytes = 64 << 20
)

// queue holds proposals in the order they came.
type queue struct {
	mu     sync.Mutex
	items  []*proposal // guarded by mu
	bytes  int         // the weight of items; guarded by mu
	closed bool        // guarded by mu
	signal chan struct{}
}

func (q *queue) init() { q.signal = make(chan struct{}, 1) }

func (q *queue) add(req *mvcc.Request, limit int, until time.Time) (*proposal, error) {
	p := &proposal{req: req, size: req.Weight(), until: until, done: make(chan struct{})}
	if p.size > limit {
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

// take claims as many proposals as fit in one batch, in order.
func (q *queue) take(limit int) []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, n := 0, 0
	var taken []*proposal
	for _, p := range q.items {
		if p.state.Load() == queued {
			if size += p.size; size > limit || len(taken) == mvcc.MaxBatchRequests {
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

// expire settles the proposals that have waited until now; with all set, every
// one, for good. What is queued has not happened, and will not.
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
			p.settle(mvcc.Result{}, err)
		}
		q.bytes -= p.size
		return true
	})
}

// A batch is the proposals of one record, and what is known of its fate.
type batch struct {
	number    mvcc.BatchNumber
	kind      record.Kind
	proposals []*proposal
	body      []byte
	// As it was last placed:
	slot   journal.Slot
	sent   time.Time
	head   record.Header
	rec    []byte
	digest record.Digest
}

// encode makes the record for the batch, anchored where the chain stands. The
// body is encoded once; only what surrounds it depends on the place.
func (b *batch) encode(h record.Header, compressFrom int) {
	if b.body == nil {
		reqs := make([]*mvcc.Request, len(b.proposals))
		for i, p := range b.proposals {
			reqs[i] = p.req
		}
		b.body = mvcc.AppendRequests(nil, reqs)
	}
	h.Kind, h.Number = b.kind, b.number
	b.head = h
	b.rec = record.Append(make([]byte, 0, len(b.body)+record.Overhead), &h, b.body, compressFrom > 0 && len(b.body) >= compressFrom)
	b.digest = record.DigestOf(b.rec)
}

// requests are the batch's, as decoding its record would give them.
func (b *batch) requests() []mvcc.Request {
	reqs := make([]mvcc.Request, len(b.proposals))
	for i, p := range b.proposals {
		reqs[i] = *p.req
	}
	return reqs
}

// idle says that there is nothing in it: it only fills a slot, and has no number.
func (b *batch) idle() bool { return b.number == 0 }

// expire tells the proposers that have waited until now that nothing is known.
func (b *batch) expire(now time.Time) {
	for _, p := range b.proposals {
		if !now.Before(p.until) {
			p.settle(mvcc.Result{}, ErrUnknown)
		}
	}
}

// settle tells every proposer. A batch whose first copy to be applied is void
// has no results; that cannot be, and if it is, nothing is known of it.
func (b *batch) settle(results []mvcc.Result, err error) {
	if err == nil && len(results) != len(b.proposals) {
		err = ErrUnknown
	}
	for i, p := range b.proposals {
		var res mvcc.Result
		if err == nil {
			res = results[i]
		}
		p.settle(res, err)
	}
}
