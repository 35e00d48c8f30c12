package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// loop owns the state. Everything that changes it happens on one goroutine;
// I/O runs beside it and reports back through channels.
type loop struct {
	*Replica
	ctx   context.Context // of the I/O beside the loop
	group *errgroup.Group

	state  *mvcc.State
	chains *record.Chains
	leases leaseClock
	snaps  snapshots

	number  mvcc.BatchNumber            // the last one given out
	next    journal.Slot                // where the next batch is placed
	known   map[journal.Slot]held       // records above the state's slot
	flying  map[journal.Slot]*batch     // Appends under way
	open    map[mvcc.BatchNumber]*batch // placed at least once, no outcome yet
	again   []*batch                    // lost their slot; to be placed anew, in order
	foreign journal.Slot                // the last slot that another writer won
	pace    pace                        // where batches are placed
	empty   journal.Slot                // an empty slot below records of ours that landed; 0: none

	placed  chan placement
	fetched chan fetch
	asking  *round // answered by the fetch under way, or the next one
	behind  bool   // the last Read found all that it asked for
	reading bool   // a fetch is under way
	hinted  bool   // read again when it is done
	ready   bool
}

// held is the record of one slot, with the batch it is if it is ours.
type held struct {
	rec  []byte
	ours *batch
}

const (
	fetchLimit   = 64
	crowdLimit   = 8
	tick         = 500 * time.Millisecond
	pruneAtOnce  = 512
	pipeline     = 2  // batches in flight at most
	aloneFor     = 64 // slots without another writer, before batches are pipelined
	maxBatchSize = 4 << 20
	overdue      = 2 * time.Second // for an Append, before what is below it is looked after
)

// Run brings the replica to life: restores the state, follows the journal,
// and serves proposals and reads until ctx ends, which gives nil. Any other
// end is an error that a restart may or may not mend.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.done)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	group, inner := errgroup.WithContext(inner)
	l := &loop{
		Replica: r, ctx: inner, group: group,
		known:   map[journal.Slot]held{},
		flying:  map[journal.Slot]*batch{},
		open:    map[mvcc.BatchNumber]*batch{},
		behind:  true,
		pace:    pace{me: r.writer},
		placed:  make(chan placement),
		fetched: make(chan fetch),
	}
	if err := l.restore(); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if !r.info.Exclusive {
		group.Go(func() error { return r.cfg.Notifier.Run(inner) })
	}
	group.Go(func() error {
		defer cancel()
		return l.serve()
	})
	err := group.Wait()
	l.giveUp()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// serve is the loop: take what happened, apply what can be, place what waits.
func (l *loop) serve() error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	l.fetch()
	for {
		var err error
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-l.queue.signal:
		case <-l.index.signal:
			l.fetch()
		case p := <-l.placed:
			err = l.onPlaced(p)
		case f := <-l.fetched:
			err = l.onFetched(f)
		case <-l.cfg.Notifier.C():
			l.fetch()
		case f := <-l.calls:
			f(l)
		case h := <-l.snaps.done:
			err = l.onSnapshot(h)
		case now := <-ticks.C:
			l.onTick(now)
		}
		if err != nil {
			return err
		}
		l.launch()
		if err := l.advance(); err != nil {
			return err
		}
		l.launch()
	}
}

// learn notes the record of a slot.
func (l *loop) learn(slot journal.Slot, h held) {
	if slot <= l.state.Slot() {
		return
	}
	if _, ok := l.known[slot]; !ok {
		l.known[slot] = h
	}
	l.next = max(l.next, slot+1)
}

// launch places batches while there are some and the journal takes more. A slot
// that holds others up is filled whatever is in flight: that may be waiting
// for it.
func (l *loop) launch() {
	for l.ready {
		slot, fill := l.pick()
		if !fill && len(l.flying) >= l.depth() {
			return
		}
		b := l.nextBatch(fill)
		if b == nil {
			return
		}
		b.slot, b.sent = slot, time.Now()
		b.encode(record.Header{
			Journal: l.info.ID, Writer: l.writer,
			Anchor: l.chains.Slot(), AnchorChain: l.chains.Last(),
		}, l.cfg.CompressFrom)
		l.next = max(l.next, slot+1)
		l.flying[slot] = b
		l.open[b.number] = b
		l.group.Go(func() error { return l.place(b) })
	}
}

// pick is the slot for the next batch: an empty one that holds up records of
// ours above it, to be filled even with nothing to say; otherwise past all
// that is known or in flight, by the lead that contention has taught.
func (l *loop) pick() (slot journal.Slot, fill bool) {
	if l.empty > l.state.Slot() && l.flying[l.empty] == nil {
		return l.empty, true
	}
	last := l.state.Slot() + journal.Slot(l.info.Depth)
	return min(l.pace.aim(l.next, time.Now()), max(l.next, last)), false
}

// depth is how many batches may be in flight. Beside another writer it is
// one: batches that collide cost both a round trip.
func (l *loop) depth() int {
	if l.foreign != 0 && l.state.Slot() < l.foreign+aloneFor {
		return 1
	}
	return min(l.info.Depth, pipeline)
}

func (l *loop) nextBatch(fill bool) *batch {
	for len(l.again) > 0 {
		b := l.again[0]
		l.again = l.again[1:]
		if b.slot == 0 || l.open[b.number] == b { // not placed yet, or still without an outcome
			return b
		}
	}
	proposals := l.queue.take(l.maxBatch())
	if len(proposals) == 0 && !fill {
		return nil
	}
	l.number++
	return &batch{number: l.number, kind: record.Batch, proposals: proposals}
}

// control makes a batch of a control record and lets it be placed.
func (l *loop) control(kind record.Kind, body []byte) {
	l.number++
	l.again = append(l.again, &batch{number: l.number, kind: kind, body: body})
}

func (r *Replica) maxBatch() int { return min(r.info.MaxRecord-record.Overhead-16, maxBatchSize) }

func (l *loop) onPlaced(p placement) error {
	delete(l.flying, p.batch.slot)
	l.pace.placed(time.Since(p.batch.sent), p.taken)
	switch {
	case p.err != nil:
		return fmt.Errorf("append slot %d: %w", p.batch.slot, p.err)
	case p.taken:
		// What holds the slot is read and applied in its turn. If it is ours
		// after all, the copy that is placed anew is void on every replica.
		l.foreign = max(l.foreign, p.batch.slot)
		if len(p.batch.proposals) > 0 || p.batch.kind != record.Batch {
			l.again = append(l.again, p.batch)
		} else {
			delete(l.open, p.batch.number) // it was to fill the slot, and somebody did
		}
		l.fetch()
	default:
		l.learn(p.batch.slot, held{rec: p.batch.rec, ours: p.batch})
		l.cfg.Notifier.Active()
		if p.batch.slot > l.state.Slot()+1 {
			l.fetch() // what is below it?
		}
	}
	return nil
}

// fetch reads what comes after the state, now or once the Read under way is
// done. Reads that asked before it starts are answered by it.
func (l *loop) fetch() {
	if l.reading {
		l.hinted = true
		return
	}
	l.reading, l.hinted = true, false
	if asked := l.index.take(); asked != nil {
		l.asking = asked.with(l.asking)
	}
	// While following, the next record is worth more at once than with the
	// ones after it; while behind, many are read together.
	from, limit := l.state.Slot()+1, 1
	switch {
	case l.behind:
		limit = fetchLimit
	case l.pace.losses > crowded:
		limit = crowdLimit
	}
	l.group.Go(func() error { return l.read(from, limit) })
}

func (l *loop) onFetched(f fetch) error {
	l.reading = false
	for i, rec := range f.recs {
		l.learn(f.from+journal.Slot(i), held{rec: rec})
	}
	if len(f.recs) > 0 {
		l.cfg.Notifier.Active()
	}
	if err := l.advance(); err != nil {
		return err
	}
	l.behind = len(f.recs) == f.limit
	l.pace.fetched(time.Now(), !l.behind)
	if l.behind {
		l.fetch()
		return nil
	}
	l.sawEmpty(f.from + journal.Slot(len(f.recs)))
	if !l.ready {
		l.ready = true
		close(l.Replica.ready)
		l.next = max(l.next, l.state.Slot()+1)
	}
	if l.asking != nil {
		l.asking.answer()
		l.asking = nil
	}
	if l.hinted {
		l.fetch()
	}
	return nil
}

// sawEmpty notes that a slot was empty. Where it holds up records of ours above
// it, which landed or have been under way for long, it is to be filled.
func (l *loop) sawEmpty(slot journal.Slot) {
	l.empty = 0
	if slot != l.state.Slot()+1 || l.flying[slot] != nil {
		return
	}
	held := len(l.known) > 0
	for _, b := range l.flying {
		held = held || time.Since(b.sent) > overdue
	}
	if held {
		l.empty = slot
	}
}

// giveUp settles what is left when the loop has ended.
func (l *loop) giveUp() {
	for _, b := range l.open {
		b.settle(nil, ErrUnknown)
	}
	l.queue.expire(time.Time{}, true)
}

func (l *loop) onTick(now time.Time) {
	for _, req := range l.leases.expired(l.state, now) {
		// Nobody waits for it: an expiry that is lost is proposed again.
		if _, err := l.queue.add(req, l.maxBatch(), now.Add(l.cfg.Timeout)); err != nil {
			return
		}
	}
	l.queue.expire(now, false)
	for _, b := range l.open {
		b.expire(now)
	}
	if !l.snaps.working {
		l.state.Prune(64 * pruneAtOnce)
	}
}
