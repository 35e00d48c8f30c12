package replica

import (
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
)

// batch is what one record of this writer carries: proposals, the body of a control
// record, or nothing.
type batch struct {
	number    mvcc.BatchNumber // 0: a filler. No two batches of a writer share another number
	kind      record.Kind
	proposals []*proposal
	body      []byte // nil until the batch is encoded; never changed after that

	// As it was last placed:
	slot   journal.Slot // 0: not placed yet
	sent   time.Time
	head   record.Header
	rec    []byte
	digest record.Digest // of rec
}

// newFiller returns an empty batch, which only fills its slot. Fillers are unnumbered, so
// that they do not use up the writer's window of batch numbers. Otherwise filling the
// holes below a batch could make that batch come too late.
func newFiller() *batch { return &batch{kind: record.Batch} }

// filler says whether the batch only fills its slot.
func (b *batch) filler() bool { return b.number == 0 }

// encode makes the record for the batch. The body is encoded once; only the header
// depends on the slot.
func (b *batch) encode(h record.Header, compressFrom int) {
	if b.body == nil {
		reqs := make([]*mvcc.Request, 0, len(b.proposals))
		for _, p := range b.proposals {
			reqs = append(reqs, p.reqs...)
		}
		b.body = mvcc.AppendRequests(nil, reqs)
	}
	h.Kind, h.Number = b.kind, b.number
	b.head = h
	b.rec = record.Append(make([]byte, 0, len(b.body)+record.Overhead), &h, b.body, compressFrom > 0 && len(b.body) >= compressFrom)
	b.digest = record.DigestOf(b.rec)
}

// requests returns the batch's requests, as decoding its record would give them.
func (b *batch) requests() []mvcc.Request {
	reqs := make([]mvcc.Request, 0, len(b.proposals))
	for _, p := range b.proposals {
		for _, r := range p.reqs {
			reqs = append(reqs, *r)
		}
	}
	return reqs
}

// asked returns when the first request of the batch came, or now if the batch has no
// request. timeout is how long a request waits.
func (b *batch) asked(now time.Time, timeout time.Duration) time.Time {
	if len(b.proposals) == 0 {
		return now
	}
	return b.proposals[0].until.Add(-timeout)
}

// timeOut tells the proposers whose wait is over that the outcome is unknown.
func (b *batch) timeOut(now time.Time) {
	for _, p := range b.proposals {
		if !now.Before(p.until) {
			p.resolve(nil, ErrUnknown)
		}
	}
}

// resolve tells every proposer the outcome. The outcome is unknown if there are no
// results, because the first copy that was applied was void, which should not happen.
func (b *batch) resolve(results []mvcc.Result, err error) {
	if err == nil && len(results) != b.length() {
		err = ErrUnknown
	}
	for _, p := range b.proposals {
		if err != nil {
			p.resolve(nil, err)
			continue
		}
		p.resolve(results[:len(p.reqs)], nil)
		results = results[len(p.reqs):]
	}
}

// length returns how many requests the batch holds.
func (b *batch) length() int {
	n := 0
	for _, p := range b.proposals {
		n += len(p.reqs)
	}
	return n
}

// count counts a launch of the batch. again says that it was launched before.
func (b *batch) count(counts *stats.Replica, again bool) {
	switch {
	case b.filler():
	case again:
		counts.Batches.Again.Add(1)
	default:
		counts.Batches.Requests.Observe(uint64(b.length()))
		counts.Batches.Bytes.Observe(uint64(len(b.rec)))
	}
}
