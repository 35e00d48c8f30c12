package replica

import (
	"context"
	"errors"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/turns"
)

const (
	fetchLimit = 64
	// catchUp is how many records a replica that is behind asks for at once. The driver
	// bounds how many bytes they may hold.
	catchUp = 1024
	// pursuers is how many Reads are under way at most: one more than the first while records
	// of other writers are expected, or linearizable reads wait.
	pursuers = 2
	// nearby is how many slots are searched above a slot that turns up empty while the
	// journal is followed: if a writer took that slot, its next records are close above
	// it. At the start, every slot is searched that may hold a record.
	nearby = 8
)

// reads is what the loop knows of its Reads, which look for records above the state.
type reads struct {
	// caughtUp says that a Read has found the tail. Once true, it stays true.
	caughtUp bool
	sighted  journal.Slot // the tail, when a Read last found it

	fetched  chan fetch
	underway int         // Reads that have not reported back. Invariant: 0 <= underway <= pursuers
	began    time.Time   // when the last one began
	hinted   bool        // the tail may have moved since began: read again after the Read under way
	again    *time.Timer // when to begin another Read beside the one under way
	asking   *round      // linearizable reads that the next Read is to answer

	// Of the last Read that reported back:
	found  int  // how many records it returned
	limit  int  // how many records it asked for
	behind bool // the journal may hold more records after those
}

// newReads returns the reads of a replica that has not read yet.
func newReads() reads {
	return reads{behind: true, limit: fetchLimit, fetched: make(chan fetch), again: time.NewTimer(tick)}
}

// fetch is one Read of the records above the state, and its result.
type fetch struct {
	from  journal.Slot
	limit int
	began time.Time
	asked *round // linearizable reads, answered if the Read finds the tail
	// checkAbove: if the Read finds the slots empty from one above checkAbove on, the
	// slots after that one are searched for proof that it was held.
	checkAbove journal.Slot
	recs       [][]byte
}

// full says whether there may be more records after those that the Read returned.
func (f *fetch) full() bool {
	size := 0
	for _, rec := range f.recs {
		size += len(rec)
	}
	return len(f.recs) == f.limit || size >= journal.MaxRead
}

// fetch reads the records above the state. If a Read is under way, another one follows it,
// because the first may have looked too early.
func (l *loop) fetch() {
	if l.reads.underway > 0 {
		l.reads.hinted = true
		return
	}
	l.beginRead()
}

// pursue keeps Reads under way, a part of a round trip apart, while records of other
// writers are expected. If linearizable reads wait for the end of a Read that began before
// they asked, pursue begins another one beside it.
func (l *loop) pursue(now time.Time) {
	far := l.reads.underway > 0 && l.turns.RTT() >= longRTT
	if l.reads.underway == pursuers || !l.expecting(now) && !(far && l.index.waits()) {
		return
	}
	pause := l.turns.RTT() / pursuers
	if wait := pause - now.Sub(l.reads.began); wait > 0 && l.reads.underway > 0 {
		l.reads.again.Reset(wait)
		return
	}
	l.beginRead()
	l.reads.again.Reset(pause)
}

// expecting says whether this replica needs records that other writers are about to
// write: they bring its turn nearer, or lie below batches of its own.
func (l *loop) expecting(now time.Time) bool {
	return l.turns.InForce(now) || l.turns.Contended() && len(l.window.open) > 0 && l.window.flying[l.window.applied+1] == nil
}

// beginRead begins a Read.
func (l *loop) beginRead() {
	r := &l.reads
	now := time.Now()
	f := fetch{from: l.window.applied + 1, limit: 1, began: now, asked: r.asking}
	if r.caughtUp {
		f.checkAbove = r.sighted + max(turns.Span, min(l.turns.PassIn(4), 4*turns.Span))
	}
	r.underway++
	r.hinted, r.began, r.asking = false, now, nil
	if more := l.index.take(); more != nil {
		f.asked = more.with(f.asked)
	}
	// A replica that follows the tail wants the next record at once, without waiting
	// for those after it. A replica that is behind reads many records together.
	switch {
	case r.behind:
		f.limit = min(2*r.limit, catchUp)
	case l.expecting(now):
		f.limit = min(r.found+l.turns.Busy()/2+2, fetchLimit)
	}
	l.group.Go(func() error {
		f, err := l.read(l.ctx, f)
		if err != nil {
			return err
		}
		select {
		case l.reads.fetched <- f:
			return nil
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	})
}

// read reads, beside the loop, until the journal answers.
func (r *Replica) read(ctx context.Context, f fetch) (fetch, error) {
	c := r.access.Begin(access.Read)
	defer c.End()
	for {
		recs, err := c.Read(ctx, f.from, f.limit)
		f.recs = recs
		if end := f.from + journal.Slot(len(recs)); err == nil && !f.full() && end > f.checkAbove {
			// At the start, or after a long pause: make sure that the journal ends here
			// before anybody is told so.
			err = r.access.NeverHeld(ctx, end, r.info.Depth)
		}
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, journal.ErrTrimmed) && r.outran(ctx, &f):
			continue
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt), errors.Is(err, ErrLost):
			return f, err
		}
		if err := c.Pause(ctx, err); err != nil {
			return f, err
		}
		f.began = time.Now()
	}
}

// outran moves a Read to the end of the state, if the state has come further meanwhile by
// this writer's own records. It returns whether it did. The slots that the Read asked for
// may have been trimmed since, even by this replica.
func (r *Replica) outran(ctx context.Context, f *fetch) bool {
	next := journal.Slot(0)
	if err := r.call(ctx, func(l *loop) { next = l.window.applied + 1 }); err != nil || next <= f.from {
		return false
	}
	f.from, f.began = next, time.Now()
	return true
}

// onFetched handles the result of a Read.
func (l *loop) onFetched(f fetch) error {
	r := &l.reads
	r.underway--
	for i, rec := range f.recs {
		l.window.learn(f.from+journal.Slot(i), entry{rec: rec})
	}
	if len(f.recs) > 0 {
		l.cfg.Notifier.Found(f.from + journal.Slot(len(f.recs)) - 1)
		l.counts.Known.Store(uint64(l.window.next - 1))
	}
	if err := l.advance(); err != nil {
		return err
	}
	r.found, r.limit, r.behind = len(f.recs), f.limit, f.full()
	if r.behind {
		if f.asked != nil {
			r.asking = f.asked.with(r.asking)
		}
		l.beginRead()
		return nil
	}
	now := time.Now()
	r.sighted = f.from + journal.Slot(len(f.recs)) - 1
	l.counts.TailAt.Set(f.began)
	l.turns.Sighted(r.sighted, f.began, now)
	l.sawEmpty(r.sighted+1, now)
	if !r.caughtUp {
		r.caughtUp = true
		close(l.ready)
	}
	f.asked.answer()
	if r.hinted {
		l.fetch()
	}
	l.pursue(now)
	return nil
}

// sawEmpty handles a slot that a Read found empty. If the slot holds up records or batches
// of this writer, it is to be filled, but only if it was never held. If the slot is
// another writer's turn, that writer gets some time to fill it first.
func (l *loop) sawEmpty(slot journal.Slot, now time.Time) {
	l.gap.fill = 0
	if slot != l.window.applied+1 || l.window.flying[slot] != nil || !l.window.blocked(now) {
		return
	}
	heir := l.turns.Heir(slot)
	if others := heir != 0 && heir != l.writer && l.turns.InForce(now); others && l.gap.leave(slot, now, 2*l.turns.RTT()) {
		return
	}
	if !l.gap.examine(slot) {
		return
	}
	l.group.Go(func() error {
		if err := l.access.NeverHeld(l.ctx, slot, nearby); err != nil {
			return err
		}
		return l.call(l.ctx, func(l *loop) {
			l.gap.cleared(slot, slot == l.window.applied+1 && l.window.flying[slot] == nil)
		})
	})
}

// gap is what is known of the empty slot after the state, while it holds up records. The
// slot is first left to the writer whose turn it is, then examined (was it ever held?),
// then filled. A slot that was held is never filled: the replica ends instead.
type gap struct {
	fill journal.Slot // to be filled now; 0: none

	left      journal.Slot // left to the writer whose turn it is; 0: none
	since     time.Time    // when it was first left
	examined  journal.Slot // the slots above it are being searched; 0: none
	neverHeld journal.Slot // the slots above it show that it was never held; 0: none
}

// leave says whether to leave the slot to another writer, which may have it for atMost.
func (g *gap) leave(slot journal.Slot, now time.Time, atMost time.Duration) bool {
	if g.left != slot {
		g.left, g.since = slot, now
	}
	return now.Sub(g.since) < atMost
}

// examine has the slot filled if it is known that the slot was never held. If that is not
// known, examine returns true once: the caller must then search the slots above.
func (g *gap) examine(slot journal.Slot) bool {
	switch slot {
	case g.neverHeld:
		g.fill = slot
		return false
	case g.examined:
		return false
	}
	g.examined = slot
	return true
}

// cleared notes that the slot was never held, and has it filled if it is empty still.
func (g *gap) cleared(slot journal.Slot, empty bool) {
	g.neverHeld, g.examined = slot, 0
	if empty {
		g.fill = slot
	}
}
