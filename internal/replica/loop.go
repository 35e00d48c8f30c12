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
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/agreement"
	"github.com/xbernetes/xbernetes/internal/replica/archive"
	"github.com/xbernetes/xbernetes/internal/replica/lease"
	"github.com/xbernetes/xbernetes/internal/replica/turns"
)

// loop owns the state. Its methods run on one goroutine, which alone changes the state and
// the fields below. Calls on the journal run beside that goroutine and report back by
// channels. Each field keeps its own invariants; the loop passes events and records from
// one to the other.
type loop struct {
	*Replica
	ctx   context.Context // of the goroutines beside the loop
	group *errgroup.Group // the goroutines beside the loop; an error in one ends the loop

	state  *mvcc.State    // Invariant: state.Slot() == chains.Slot() == window.applied between two records
	chains *record.Chains // the hash chain up to the state's slot

	window window        // batches in flight, and records that cannot be applied yet
	turns  *turns.Turns  // which slots are this writer's turns
	pace   turns.Pace    // whether to ask for turns
	ended  chan appended // Appends that have ended
	soon   *time.Timer   // fires when the next batch may leave, if it had to keep its distance

	reads  reads       // Reads under way
	gap    gap         // an empty slot that holds up records
	leases lease.Clock // which leases have expired

	snapshots snapshots            // when to take a snapshot
	agreement *agreement.Agreement // whether other replicas have the same states
	trim      trimmer              // which records may be deleted
}

const (
	tick        = 500 * time.Millisecond
	pruneAtOnce = 512
	pipeline    = 2 // batches in flight at most, without turns
	// longRTT is how long a round trip must be for batches and Reads to leave apart.
	longRTT = 10 * time.Millisecond
)

// Run restores the state, follows the journal, and serves proposals and reads until ctx
// ends. Then it returns nil. If Run ends for another reason, it returns an error, which a
// restart may or may not mend.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.done)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	group, inner := errgroup.WithContext(inner)
	defer r.queue.timeOut(time.Time{}, true)
	from, err := r.restore(inner)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l := r.newLoop(inner, group, from)
	defer l.window.abandon()
	if !r.info.Exclusive {
		group.Go(func() error { return r.cfg.Notifier.Run(inner) })
	}
	group.Go(l.serve) // always ends with an error, which ends the other goroutines
	err = group.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

func (r *Replica) newLoop(ctx context.Context, group *errgroup.Group, from archive.Restored) *loop {
	l := &loop{
		Replica: r, ctx: ctx, group: group,
		state: from.State, chains: from.Chains,
		window:    newWindow(from.State.Slot()),
		turns:     turns.New(r.writer, from.State.Slot()),
		ended:     make(chan appended),
		soon:      time.NewTimer(tick),
		reads:     newReads(),
		leases:    lease.NewClock(r.writer, r.info.Exclusive),
		snapshots: newSnapshots(r.cfg.Snapshots),
		agreement: agreement.New(r.writer),
		trim:      trimmer{allowed: r.cfg.Trim},
	}
	if slot := from.State.Slot(); slot > 0 {
		l.agreement.Loaded(slot, from.Hash)
	}
	return l
}

// serve handles events, applies records and launches batches until ctx ends or something
// fails.
func (l *loop) serve() error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	defer l.reads.again.Stop()
	defer l.soon.Stop()
	l.fetch()
	for {
		var err error
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-l.queue.signal:
		case <-l.index.signal:
			l.fetch()
			l.pursue(time.Now())
		case a := <-l.ended:
			err = l.onAppended(a)
		case f := <-l.reads.fetched:
			err = l.onFetched(f)
		case <-l.cfg.Notifier.C():
			l.fetch()
		case f := <-l.calls:
			f(l)
		case t := <-l.snapshots.done:
			l.onSnapshot(t)
		case <-l.reads.again.C:
			l.pursue(time.Now())
		case <-l.soon.C: // a batch may leave now
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

// launch begins Appends while there are batches to write and slots for them.
func (l *loop) launch() {
	for l.reads.caughtUp {
		now := time.Now()
		choice := l.pick(now)
		if choice.Slot == 0 {
			return
		}
		b := l.nextBatch(choice.Must)
		if b == nil {
			return
		}
		again := b.slot != 0
		b.slot, b.sent = choice.Slot, now
		b.encode(record.Header{
			Journal: l.info.ID, Writer: l.writer,
			Anchor: l.chains.Slot(), AnchorChain: l.chains.Last(),
			Turns:  l.pace.Launch(b.filler(), b.asked(now, l.cfg.Timeout), len(l.window.open) > 0, l.turns.RTT()),
			Agrees: l.agreement.Agrees(),
		}, l.cfg.CompressFrom)
		l.window.launch(b)
		l.counts.Known.Store(uint64(l.window.next - 1))
		b.count(l.counts, again)
		l.group.Go(func() error { return l.append(l.ctx, b, l.ended) })
		l.pursue(now)
	}
}

// appended is a batch with the outcome of its Append.
type appended struct {
	batch *batch
	access.Appended
}

// append runs the Append of a batch, beside the loop, and sends the outcome to ended.
func (r *Replica) append(ctx context.Context, b *batch, ended chan<- appended) error {
	a, err := r.access.Append(ctx, b.slot, b.rec)
	if err != nil {
		return err
	}
	select {
	case ended <- appended{b, a}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pick chooses the slot for the next batch.
//
// An empty slot that holds up records comes first. Otherwise a batch goes to this
// writer's next turn if writers take turns, to a slot past those that others are about
// to fill if others write, and to the next slot if nobody else does.
func (l *loop) pick(now time.Time) turns.Choice {
	if hole := l.hole(now); hole != 0 {
		// The limit on Appends in flight does not count here: they may wait for this slot.
		return turns.Choice{Slot: hole, Must: true}
	}
	next := l.window.applied + 1
	reach := l.window.applied + min(journal.Slot(l.info.Depth), turns.Span)
	if l.turns.InForce(now) {
		if choice, ok := l.turns.Next(reach, l.pace.Idle(), l.window.free); ok {
			return choice
		}
	}
	if len(l.window.flying) >= min(l.info.Depth, pipeline) {
		return turns.Choice{}
	}
	if wait := l.apart(now); wait > 0 {
		l.soon.Reset(wait)
		return turns.Choice{}
	}
	slot := l.window.next
	if l.turns.Contended() {
		slot = l.turns.Aim(now, l.window.free)
		if slot > reach && l.reads.underway > 0 && l.turns.ReadHelps(reach) {
			return turns.Choice{} // after that Read, the slot will be within reach
		}
		for slot = max(next, min(slot, reach)); !l.window.free(slot); {
			slot++
		}
	}
	if slot > max(reach, next) {
		return turns.Choice{}
	}
	return turns.Choice{Slot: slot}
}

// apart returns how long to wait before another batch, so that the batches of a busy writer
// leave at equal distances within a round trip. If they left together, a request that came
// just after them would wait for a whole round trip.
func (l *loop) apart(now time.Time) time.Duration {
	rtt := l.turns.RTT()
	if rtt < longRTT || !l.pace.Pressed() {
		return 0
	}
	wait := time.Duration(0)
	for _, b := range l.window.flying {
		wait = max(wait, rtt/pipeline-now.Sub(b.sent))
	}
	return wait
}

// hole returns the next empty slot that holds up records and is to be filled now; 0: none.
// A Read has found the first such slot, and made sure that it was never held. Holes above
// it need no such proof: since the first hole was never held, no record above it was ever
// applied or acknowledged.
func (l *loop) hole(now time.Time) journal.Slot {
	first := l.gap.fill
	switch {
	case first <= l.window.applied: // there is no gap, or it is filled
		return 0
	case l.window.flying[first] == nil:
		return first // a Read found the slot empty, even if an Append found it taken before
	case !l.turns.Quiet(now):
		return 0 // the filler of first is under way, and other writers fill the holes above
	}
	return l.window.holeAbove(first)
}

// nextBatch returns the batch to launch next, nil if there is nothing to write. If
// must is set, it returns a filler rather than nil: the slot blocks other records.
func (l *loop) nextBatch(must bool) *batch {
	if b := l.window.takeWaiting(); b != nil {
		return b
	}
	if !l.window.full() {
		if proposals := l.queue.take(l.maxBatch()); len(proposals) > 0 {
			return l.window.create(proposals)
		}
	}
	if must {
		return newFiller()
	}
	return nil
}

// onAppended handles the end of an Append.
func (l *loop) onAppended(a appended) error {
	b := a.batch
	if !b.filler() {
		now := time.Now()
		l.turns.Appended(now.Sub(b.sent), a.Taken, now)
	}
	if b.slot == l.gap.fill {
		l.gap.fill = 0 // if the slot is empty still, the next Read says so
	}
	switch {
	case a.Err != nil:
		return fmt.Errorf("append slot %d: %w", b.slot, a.Err)
	case a.Taken:
		l.window.lost(b)
		l.fetch()
		return nil
	}
	l.window.landed(b)
	l.cfg.Notifier.Wrote(b.slot)
	if b.slot == l.window.applied+1 && len(l.window.records) == 1 {
		return nil // serve launches the next batch before it applies this one
	}
	if err := l.advance(); err != nil {
		return err
	}
	if len(l.window.records) > 0 {
		l.fetch() // the slots below these records are held by others, or empty
	}
	return nil
}

func (l *loop) onTick(now time.Time) {
	l.queue.timeOut(now, false) // first, because it makes room for expiries of leases
	l.window.timeOut(now)
	for _, req := range l.leases.Expired(l.state, now) {
		// Nobody waits for the outcome: an expiry that is lost is proposed again.
		if _, err := l.queue.add(l.maxBatch(), now.Add(l.cfg.Timeout), req); err != nil {
			break
		}
		l.counts.Expiries.Add(1)
	}
	if l.reads.caughtUp {
		l.catchUpSnapshots()
	}
	if !l.snapshots.working {
		l.state.Prune(64 * pruneAtOnce)
	}
}
