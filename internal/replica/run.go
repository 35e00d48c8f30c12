package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	trim   trimmer

	number  mvcc.BatchNumber            // the last one given out
	next    journal.Slot                // where the next batch is placed, with nobody beside us
	known   map[journal.Slot]held       // records above the state's slot
	lost    map[journal.Slot]bool       // slots above it that others hold, not read yet
	flying  map[journal.Slot]*batch     // Appends under way
	open    map[mvcc.BatchNumber]*batch // placed at least once, no outcome yet; no fillers
	again   []*batch                    // lost their slot; to be placed anew, in order
	placed  chan placement
	turns   turns     // where batches are placed, beside others
	pressed int       // batches that came before the ones ahead were settled for long, in a row
	settled time.Time // when a batch last had its outcome
	silent  bool      // the last batch placed had nothing in it

	tail  tailing
	ready bool // the tail was reached
}

// held is the record of one slot, with the batch it is if it is ours.
type held struct {
	rec  []byte
	ours *batch
}

const (
	tick        = 500 * time.Millisecond
	pruneAtOnce = 512
	pipeline    = 2               // batches in flight at most, without turns
	saturated   = 3               // batches in a row under pressure, before turns are asked for
	impatient   = 5               // slots lost in a row, before no Read is waited for
	overdue     = 2 * time.Second // for an Append, before what is below it is looked after
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
		known:  map[journal.Slot]held{},
		lost:   map[journal.Slot]bool{},
		flying: map[journal.Slot]*batch{},
		open:   map[mvcc.BatchNumber]*batch{},
		turns:  turns{me: r.writer},
		leases: leaseClock{me: r.writer, alone: r.info.Exclusive},
		placed: make(chan placement),
		tail:   tailing{behind: true, limit: fetchLimit, fetched: make(chan fetch)},
	}
	defer l.giveUp()
	if err := l.restore(); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l.turns.last = l.state.Slot()
	if !r.info.Exclusive {
		group.Go(func() error { return r.cfg.Notifier.Run(inner) })
	}
	group.Go(l.serve) // it always ends with an error, which ends the others: theirs must not come first
	err := group.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// serve is the loop: take what happened, apply what can be, place what waits.
func (l *loop) serve() error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	l.tail.more = time.NewTimer(tick)
	defer l.tail.more.Stop()
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
		case f := <-l.tail.fetched:
			err = l.onFetched(f)
		case <-l.cfg.Notifier.C():
			l.fetch()
		case f := <-l.calls:
			f(l)
		case h := <-l.snaps.done:
			err = l.onSnapshot(h)
		case <-l.tail.more.C:
			l.pursue(time.Now())
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

// launch places batches while there are some and the journal takes more.
func (l *loop) launch() {
	for l.ready {
		now := time.Now()
		slot, must := l.pick(now)
		if slot == 0 {
			return
		}
		b := l.nextBatch(must)
		if b == nil {
			return
		}
		b.slot, b.sent = slot, now
		b.encode(record.Header{
			Journal: l.info.ID, Writer: l.writer,
			Anchor: l.chains.Slot(), AnchorChain: l.chains.Last(),
			Turns: l.askTurns(b, now), Agrees: l.snaps.agrees(),
		}, l.cfg.CompressFrom)
		l.next = max(l.next, slot+1)
		l.flying[slot] = b
		if !b.idle() {
			l.open[b.number] = b
		}
		l.group.Go(func() error { return l.place(b) })
		l.pursue(now)
	}
}

// pick is the slot for the next batch; 0 for none now. With must it is to be
// filled even with nothing to say, because it holds others up, or us.
func (l *loop) pick(now time.Time) (slot journal.Slot, must bool) {
	if slot = l.hole(now); slot != 0 {
		return slot, true // whatever is in flight: that may be waiting for it
	}
	next := l.state.Slot() + 1
	reach := l.state.Slot() + min(journal.Slot(l.info.Depth), span)
	if l.turns.taken(now) {
		if slot, must, ok := l.turns.turn(reach, l.silent, l.free); ok {
			return slot, must
		}
	}
	if len(l.flying) >= min(l.info.Depth, pipeline) {
		return 0, false
	}
	slot = l.next
	if l.turns.contended() {
		slot = l.turns.aside(now)
		if slot > reach && l.tail.reading > 0 && l.turns.streak < impatient && l.turns.passing(l.turns.trip) < float64(reach-l.state.Slot()) {
			return 0, false // we shall be near enough once that Read is done
		}
		for slot = max(next, min(slot, reach)); !l.free(slot); {
			slot++
		}
	}
	if slot > max(reach, next) {
		return 0, false
	}
	return slot, false
}

// hole is the next slot that holds up records of ours; 0: none. While others
// write it is the one after the state only, for they fill those above.
func (l *loop) hole(now time.Time) journal.Slot {
	first := l.tail.empty
	if first <= l.state.Slot() {
		return 0
	}
	if l.flying[first] == nil {
		return first // it was seen to be empty, even if it seemed lost before
	}
	if !l.turns.quiet(now) {
		return 0
	}
	last := first
	for slot, h := range l.known {
		if h.ours == nil || !h.ours.idle() {
			last = max(last, slot)
		}
	}
	for slot := first + 1; slot < last; slot++ {
		if l.free(slot) {
			return slot
		}
	}
	return 0
}

// free says that nobody is known to hold a slot, nor are we on the way there.
func (l *loop) free(slot journal.Slot) bool {
	_, known := l.known[slot]
	return !known && !l.lost[slot] && l.flying[slot] == nil
}

// askTurns is what b's record says of turns. They are asked for while batches
// follow each other without a pause: below that, whoever has something to say
// is better off with the next slot than with waiting for those who have not.
func (l *loop) askTurns(b *batch, now time.Time) uint16 {
	if l.silent = b.idle(); l.silent {
		return 0
	}
	asked := now // when its first request came
	if len(b.proposals) > 0 {
		asked = b.proposals[0].until.Add(-l.cfg.Timeout)
	}
	if len(l.open) > 0 || asked.Sub(l.settled) < l.turns.trip/2 {
		l.pressed++
	} else {
		l.pressed = 0
	}
	if l.pressed < saturated || l.turns.trip == 0 {
		return 0
	}
	return uint16(min(max(l.turns.trip.Milliseconds(), 1), math.MaxUint16))
}

// nextBatch is what to place next, nil for nothing. With fill it is at least a
// batch with nothing in it. That has no number, so that it takes none from the
// batches above a hole, which would come too late otherwise.
func (l *loop) nextBatch(fill bool) *batch {
	for len(l.again) > 0 {
		b := l.again[0]
		l.again = l.again[1:]
		if b.slot == 0 || l.open[b.number] == b { // not placed yet, or still without an outcome
			return b
		}
	}
	if l.inWindow() {
		if proposals := l.queue.take(l.maxBatch()); len(proposals) > 0 {
			l.number++
			return &batch{number: l.number, kind: record.Batch, proposals: proposals}
		}
	}
	if fill {
		return &batch{kind: record.Batch}
	}
	return nil
}

// inWindow says that no open batch would come too late, and be void, if one with
// the next number came first.
func (l *loop) inWindow() bool {
	for n := range l.open {
		if l.number+1-n >= mvcc.BatchWindow {
			return false
		}
	}
	return true
}

// control makes a batch of a control record and lets it be placed.
func (l *loop) control(kind record.Kind, body []byte) {
	l.number++
	l.again = append(l.again, &batch{number: l.number, kind: kind, body: body})
}

func (r *Replica) maxBatch() int {
	return min(r.info.MaxRecord-record.Overhead-16, mvcc.MaxBatchWeight)
}

func (l *loop) onPlaced(p placement) error {
	delete(l.flying, p.batch.slot)
	if !p.batch.idle() {
		l.turns.placed(time.Since(p.batch.sent), p.taken)
	}
	if p.batch.slot == l.tail.empty {
		l.tail.empty = 0 // if it is still, the next Read says so
	}
	switch {
	case p.err != nil:
		return fmt.Errorf("append slot %d: %w", p.batch.slot, p.err)
	case p.taken:
		// What holds the slot is read and applied in its turn. If it is ours
		// after all, the copy that is placed anew is void on every replica.
		if p.batch.slot > l.state.Slot() {
			l.lost[p.batch.slot] = true
		}
		if !p.batch.idle() { // else it was to fill the slot, and somebody did
			l.again = append(l.again, p.batch)
		}
		l.fetch()
	default:
		l.learn(p.batch.slot, held{rec: p.batch.rec, ours: p.batch})
		l.cfg.Notifier.Active()
		if p.batch.slot == l.state.Slot()+1 && len(l.known) == 1 {
			break // the next batch goes on its way before this one is applied
		}
		if err := l.advance(); err != nil {
			return err
		}
		if len(l.known) > 0 {
			l.fetch() // what is below them?
		}
	}
	return nil
}

// giveUp settles what is left when the loop has ended.
func (l *loop) giveUp() {
	for _, b := range l.open {
		b.settle(nil, ErrUnknown)
	}
	l.queue.expire(time.Time{}, true)
}

func (l *loop) onTick(now time.Time) {
	l.queue.expire(now, false) // first: it makes room
	for _, b := range l.open {
		b.expire(now)
	}
	for _, req := range l.leases.expired(l.state, now) {
		// Nobody waits for it: an expiry that is lost is proposed again.
		if _, err := l.queue.add(req, l.maxBatch(), now.Add(l.cfg.Timeout)); err != nil {
			break
		}
	}
	if l.ready {
		l.snaps.look(l)
	}
	if !l.snaps.working {
		l.state.Prune(64 * pruneAtOnce)
	}
}
