package replica

import (
	"errors"
	"fmt"
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
	size  int // of its wire form, roughly, at least
	state atomic.Uint32
	done  chan struct{} // closed once result and err are set
	res   mvcc.Result
	err   error
}

const (
	queued uint32 = iota
	claimed
	abandoned
)

func (p *proposal) outcome() (mvcc.Result, error) { return p.res, p.err }

// settle gives the proposal its outcome. Only the loop calls it, once.
func (p *proposal) settle(res mvcc.Result, err error) {
	p.res, p.err = res, err
	close(p.done)
}

// abandon gives up waiting, because of cause, or of time if that is nil.
func (p *proposal) abandon(cause error) (mvcc.Result, error) {
	if p.state.CompareAndSwap(queued, abandoned) {
		return mvcc.Result{}, errors.Join(ErrUnavailable, cause)
	}
	select {
	case <-p.done: // it came to an end just now
		return p.outcome()
	default:
		return mvcc.Result{}, errors.Join(ErrUnknown, cause)
	}
}

// maxQueued bounds the proposals that wait, and so the memory they hold.
const maxQueued = 16 << 10

// queue holds proposals in the order they came.
type queue struct {
	mu     sync.Mutex
	items  []*proposal // guarded by mu
	signal chan struct{}
}

func (q *queue) init() { q.signal = make(chan struct{}, 1) }

func (q *queue) add(req *mvcc.Request, limit int) (*proposal, error) {
	p := &proposal{req: req, size: wireSize(req), done: make(chan struct{})}
	if p.size > limit {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", p.size, limit, ErrTooLarge)
	}
	q.mu.Lock()
	if len(q.items) >= maxQueued {
		q.mu.Unlock()
		return nil, ErrBusy
	}
	q.items = append(q.items, p)
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
		n++
	}
	left := copy(q.items, q.items[n:])
	clear(q.items[left:])
	q.items = q.items[:left]
	return taken
}

// wireSize is an upper bound of the request's wire form, in bytes.
func wireSize(r *mvcc.Request) int {
	n := 64
	for i := range r.Compares {
		c := &r.Compares[i]
		n += 40 + len(c.Range.Key) + len(c.Range.End) + len(c.Value)
	}
	for _, ops := range [...][]mvcc.Op{r.Then, r.Else} {
		for i := range ops {
			n += 96 + len(ops[i].Range.Key) + len(ops[i].Range.End) + len(ops[i].Value)
		}
	}
	return n
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
