package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// access is how the replica calls its journal: every call is repeated until the
// journal has answered, and health hears of calls that fail for long. It knows
// nothing of the state. Its methods are safe for concurrent use.
type access struct {
	store   journal.Store
	info    journal.Info
	timeout time.Duration // a call that has no answer for so long is an outage
	attempt time.Duration // bounds one attempt of a call
	health  *health
	log     *slog.Logger
}

// operation is what a call asks of the journal.
type operation string

const (
	appendRecord  operation = "append"
	readRecords   operation = "read"
	loadSnapshot  operation = "load snapshot"
	listSnapshots operation = "list snapshots"
)

// needsWrites says whether the operation tells of writes alone: reads may go on while
// it fails. Others of its kind go on beside it too, so that one that is merely silent
// is no outage: if the whole journal is silent, a Read is silent as well, and
// reports the outage.
func (o operation) needsWrites() bool { return o == appendRecord }

// call is one call on the journal, repeated until it is answered. Waits between the
// attempts grow, with jitter. A call that fails for long, or has no answer for as long
// as a request waits, is an outage.
type call struct {
	*access
	op    operation
	wait  time.Duration // before the next attempt
	began time.Time
	slow  *time.Timer // fires once the call has had no answer for long

	readable bool // of an append that fails: the journal was read after the last attempt
	gaveUp   bool // the call ended without an answer
	ended    bool // guarded by health.mu
}

const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
	tellAfter = 2 * time.Second
)

// call begins a call. The caller must end it.
func (a *access) call(op operation) *call {
	c := &call{access: a, op: op, wait: firstWait, began: time.Now()}
	c.slow = time.AfterFunc(a.timeout, func() {
		if !op.needsWrites() {
			a.health.fails(c, failure{cause: errSilent})
		}
	})
	return c
}

// try makes one attempt.
func (c *call) try(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	return attempt(ctx)
}

// pause waits before the next attempt. It fails when ctx ends.
func (c *call) pause(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		c.gaveUp = true
		return ctx.Err()
	}
	silent := c.op.needsWrites() && errors.Is(cause, context.DeadlineExceeded)
	if cause != nil && !silent && time.Since(c.began) >= tellAfter {
		c.slow.Stop()
		c.health.fails(c, failure{cause, c.readable})
		c.log.Debug("journal fails", "to", string(c.op), "error", cause)
	}
	t := time.NewTimer(c.wait/2 + rand.N(c.wait/2+1))
	defer t.Stop()
	c.wait = min(2*c.wait, lastWait)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		c.gaveUp = true
		return ctx.Err()
	}
}

// end ends the call, answered or not.
func (c *call) end() {
	c.slow.Stop()
	c.health.over(c, !c.gaveUp)
}

// read makes one attempt to read records.
func (c *call) read(ctx context.Context, from journal.Slot, limit int) (recs [][]byte, err error) {
	err = c.try(ctx, func(ctx context.Context) (err error) {
		recs, err = c.store.Read(ctx, from, limit)
		return err
	})
	return recs, err
}

// appended is what an Append of a batch came to: the batch holds its slot, another
// record does, or no answer will ever come.
type appended struct {
	batch *batch
	taken bool // another record holds the slot, or an earlier attempt of this batch
	err   error
}

// append brings a batch to its slot, until it is known which record holds the slot. A
// crash on the way leaves a record that landed or did not; nobody was told either. The
// error is that of ctx.
func (a *access) append(ctx context.Context, b *batch) (appended, error) {
	c := a.call(appendRecord)
	defer c.end()
	unknown := false // an earlier attempt may have landed, or still may
	for {
		err := c.try(ctx, func(ctx context.Context) error { return a.store.Append(ctx, b.slot, b.rec) })
		switch {
		case err == nil:
			return appended{batch: b}, nil
		case errors.Is(err, journal.ErrTaken):
			// Perhaps by an earlier attempt. Which it is turns out when the slot is
			// applied: it cannot be read before the slots below it are held.
			return appended{batch: b, taken: true}, nil
		case errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrClosed):
			return appended{batch: b, err: err}, nil
		case errors.Is(err, journal.ErrAhead):
			// Not stored: the store has not seen the tail that this replica has seen.
		default:
			unknown = true
		}
		if err := c.pause(ctx, err); err != nil {
			return appended{}, err
		}
		if !unknown {
			continue
		}
		// Never append again blindly: first see which record holds the slot.
		out, known, err := c.lookAt(ctx, b)
		if err != nil || known {
			return out, err
		}
	}
}

// lookAt reads the slot of a batch whose Append has an unknown outcome. known is
// false if the slot was empty. The error is that of ctx.
func (c *call) lookAt(ctx context.Context, b *batch) (out appended, known bool, err error) {
	for {
		recs, err := c.read(ctx, b.slot, 1)
		c.readable = err == nil
		switch {
		case err == nil && len(recs) == 0:
			return appended{}, false, nil
		case err == nil:
			return appended{batch: b, taken: !b.is(recs[0])}, true, nil
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt):
			return appended{batch: b, err: err}, true, nil // no answer will ever come
		}
		if err := c.pause(ctx, err); err != nil {
			return appended{}, false, err
		}
	}
}

// peek returns the record that a slot holds, nil for none. What cannot be decoded
// counts as none: it proves nothing.
func (a *access) peek(ctx context.Context, slot journal.Slot) (rec []byte, err error) {
	c := a.call(readRecords)
	defer c.end()
	for {
		err := c.try(ctx, func(ctx context.Context) (err error) {
			rec, err = a.store.Peek(ctx, slot)
			return err
		})
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			return nil, nil
		case err == nil, errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrClosed):
			return rec, err
		}
		if err := c.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// A writer anchors its records at the last slot that it has applied. So a record
// whose anchor is an empty slot, or a later one, proves that the slot was held, and
// that its record is lost: such a slot must be put back and never filled. An empty
// slot below records that are all anchored before it was never held, or nobody who
// wrote since had seen it held: a writer ended there before its record landed, and
// others fill the slot.

const (
	// peekers is how many slots are looked at together.
	peekers = 32
	// nearby is how many slots are looked at above a slot that turns up empty while
	// the journal is followed: whoever took that slot went on close above it. At the
	// start, as many are looked at as may hold records.
	nearby = 8
)

// neverHeld makes sure, by so many slots above it, that the empty slot after all that
// this replica has read was never held. The error wraps ErrLost, or says why the
// journal cannot be read.
func (a *access) neverHeld(ctx context.Context, slot journal.Slot, reach int) error {
	proofs := make([]bool, min(reach, a.info.Depth)) // whether slot+1+i holds a proof
	var group errgroup.Group
	group.SetLimit(peekers)
	for i := range proofs {
		group.Go(func() error {
			rec, err := a.peek(ctx, slot+1+journal.Slot(i))
			proofs[i] = err == nil && record.SawHeld(a.info.ID, rec, slot)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, proof := range proofs {
		if !proof {
			continue
		}
		// The writer of the proof had read the slot by then. If the slot was filled
		// only now, it can be read now.
		if rec, err := a.peek(ctx, slot); err != nil || rec != nil {
			return err
		}
		return fmt.Errorf("%w: slot %d is empty, and the writer of slot %d had read a record in it; stop all servers of this journal and put the slot back from a copy, or an older version of the bucket; xb fsck says how to go on without it", ErrLost, slot, slot+1+journal.Slot(i))
	}
	return nil
}

// reaches fails if the journal ends before slot, of which there is a snapshot: then
// records are missing that clients were told of, and new records would take their
// slots.
func (a *access) reaches(ctx context.Context, slot journal.Slot) error {
	c := a.call(readRecords)
	defer c.end()
	for {
		recs, err := c.read(ctx, slot, 1)
		switch {
		case errors.Is(err, journal.ErrTrimmed) || len(recs) > 0:
			return nil
		case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
			return err
		case err == nil:
			return fmt.Errorf("there is a snapshot of slot %d, and the journal ends before: %w; put it back from a copy, or go on without it, for good, by xb journal accept-loss", slot, ErrLostEnd)
		}
		if err := c.pause(ctx, err); err != nil {
			return err
		}
	}
}

// listBlobs returns the names of all blobs of snapshots.
func (a *access) listBlobs(ctx context.Context) ([]string, error) {
	c := a.call(listSnapshots)
	defer c.end()
	for {
		var names []string
		err := c.try(ctx, func(ctx context.Context) (err error) {
			names, err = a.store.ListBlobs(ctx, snapshot.Prefix)
			return err
		})
		if err == nil {
			return names, nil
		}
		if err := c.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// load loads a snapshot. It tries until the store has answered: a snapshot for which
// the journal was trimmed must not be passed over because of a moment's trouble.
func (a *access) load(ctx context.Context, slot journal.Slot) (snapshot.Loaded, error) {
	var c *call
	for {
		loaded, err := snapshot.Load(ctx, a.store, a.info.ID, slot)
		if err == nil || errors.Is(err, snapshot.ErrBad) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNoBlob) {
			return loaded, err
		}
		if c == nil { // not before: loading a large snapshot takes long, and is no outage
			c = a.call(loadSnapshot)
			defer c.end()
		}
		if err := c.pause(ctx, err); err != nil {
			return snapshot.Loaded{}, err
		}
	}
}
