// Package access calls a journal until it answers, and reports an outage while it does not
// answer. It looks into records only for proof that a slot was held. It never decides what
// is written, and knows nothing of the state.
package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// The errors of a journal that has lost records. A caller must end when it gets one.
var (
	// ErrLost: a record that was in the journal is gone, and was not trimmed.
	ErrLost = errors.New("the journal lost a record")
	// ErrLostEnd: the journal ends before a slot that it is known to have held.
	ErrLostEnd = errors.New("the end of the journal is missing")
)

// Config is what an Access needs. All of it is required.
type Config struct {
	Store   journal.Store
	Name    string        // what people call the journal
	Timeout time.Duration // if a call has no answer for so long, there is an outage
	Attempt time.Duration // bounds one attempt of a call
	Logger  *slog.Logger
	Counts  *stats.Calls // counts the calls
}

// Access is the way to one journal. Every call is repeated until the journal has
// answered. Its methods are safe for concurrent use.
type Access struct {
	cfg    Config
	info   journal.Info
	health health // of the journal, from the calls under way
}

// New returns the way to a journal.
func New(cfg Config) *Access {
	a := &Access{cfg: cfg, info: cfg.Store.Info()}
	a.health.init(cfg.Name, cfg.Logger, &cfg.Counts.Outages)
	return a
}

// Operation is what a call asks of the journal.
type Operation string

// The operations.
const (
	Append        Operation = "append"
	Read          Operation = "read"
	LoadSnapshot  Operation = "load snapshot"
	ListSnapshots Operation = "list snapshots"
)

// needsWrites says whether the operation is a write. If a write fails, reads may still
// work. A write that has no answer is not an outage yet: if the whole journal is silent,
// the Read under way has no answer either, and reports the outage.
func (o Operation) needsWrites() bool { return o == Append }

// Call is one call on the journal, repeated until it is answered. Waits between the
// attempts grow, with jitter. A call that fails for long, or has no answer for as long
// as a request waits, is an outage.
type Call struct {
	*Access
	op     Operation
	failed int // attempts
	began  time.Time
	slow   *time.Timer // fires once the call has had no answer for long

	readable bool // the call is an Append that fails, and the journal was read after its last attempt
	gaveUp   bool // the call ended without an answer
	ended    bool // guarded by health.mu
}

// between gives the waits between the attempts of a call.
var between = backoff.Backoff{First: 5 * time.Millisecond, Last: time.Second}

const tellAfter = 2 * time.Second

// Begin begins a call. The caller must End it.
func (a *Access) Begin(op Operation) *Call {
	c := &Call{Access: a, op: op, began: time.Now()}
	c.slow = time.AfterFunc(a.cfg.Timeout, func() {
		if !op.needsWrites() {
			a.health.fails(c, failure{cause: errSilent})
		}
	})
	return c
}

// try makes one attempt.
func (c *Call) try(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Attempt)
	defer cancel()
	return attempt(ctx)
}

// Pause waits before the next attempt. It fails when ctx ends.
func (c *Call) Pause(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		c.gaveUp = true
		return ctx.Err()
	}
	silent := c.op.needsWrites() && errors.Is(cause, context.DeadlineExceeded)
	if cause != nil && !silent && time.Since(c.began) >= tellAfter {
		c.slow.Stop()
		c.health.fails(c, failure{cause, c.readable})
		c.cfg.Logger.Debug("journal fails", "to", string(c.op), "error", cause)
	}
	c.failed++
	err := between.Pause(ctx, c.failed)
	c.gaveUp = err != nil
	return err
}

// End ends the call, answered or not.
func (c *Call) End() {
	c.slow.Stop()
	c.health.over(c, !c.gaveUp)
}

// Read makes one attempt to read records.
func (c *Call) Read(ctx context.Context, from journal.Slot, limit int) (recs [][]byte, err error) {
	began := time.Now()
	err = c.try(ctx, func(ctx context.Context) (err error) {
		recs, err = c.cfg.Store.Read(ctx, from, limit)
		return err
	})
	c.cfg.Counts.ReadTime.Since(began)
	if err == nil || errors.Is(err, journal.ErrTrimmed) {
		c.cfg.Counts.Answered.Add(1)
	} else {
		c.cfg.Counts.Failed.Add(1)
	}
	return recs, err
}

// Appended is the outcome of appending a record: the record holds its slot (the zero
// value), another record holds it, or no answer will ever come.
type Appended struct {
	Taken bool // another record holds the slot, or an earlier attempt stored this one there
	Err   error
}

// Append appends a record at a slot, and tries until it is known which record holds the
// slot. If the process crashes meanwhile, the record landed or did not, and nobody was told
// either. The error is that of ctx.
func (a *Access) Append(ctx context.Context, slot journal.Slot, rec []byte) (Appended, error) {
	c := a.Begin(Append)
	defer c.End()
	unknown := false // an earlier attempt may have landed, or still may
	for {
		began := time.Now()
		err := c.try(ctx, func(ctx context.Context) error { return a.cfg.Store.Append(ctx, slot, rec) })
		a.count(err, began)
		switch {
		case err == nil:
			return Appended{}, nil
		case errors.Is(err, journal.ErrTaken):
			// Perhaps an earlier attempt stored this record there. That turns out when the
			// slot is applied: it cannot be read before the slots below it are held.
			return Appended{Taken: true}, nil
		case errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrClosed):
			return Appended{Err: err}, nil
		case errors.Is(err, journal.ErrAhead):
			// The record was not stored: the store does not yet see the tail that this
		// replica has seen.
		default:
			unknown = true
		}
		if err := c.Pause(ctx, err); err != nil {
			return Appended{}, err
		}
		if !unknown {
			continue
		}
		// Never append again blindly: first see which record holds the slot.
		out, known, err := c.lookAt(ctx, slot, rec)
		if err != nil || known {
			return out, err
		}
	}
}

// count counts an attempt to append by its outcome. It began at the moment began.
func (a *Access) count(err error, began time.Time) {
	n := a.cfg.Counts
	n.AppendTime.Since(began)
	switch {
	case err == nil:
		n.Stored.Add(1)
	case errors.Is(err, journal.ErrTaken):
		n.Taken.Add(1)
	case errors.Is(err, journal.ErrAhead):
		n.Ahead.Add(1)
	case errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrClosed):
		n.Refused.Add(1)
	default:
		n.Unknown.Add(1)
	}
}

// lookAt reads the slot of a record whose Append has an unknown outcome. known is false
// if the slot was empty. The error is that of ctx.
func (c *Call) lookAt(ctx context.Context, slot journal.Slot, rec []byte) (out Appended, known bool, err error) {
	for {
		recs, err := c.Read(ctx, slot, 1)
		c.readable = err == nil
		switch {
		case err == nil && len(recs) == 0:
			return Appended{}, false, nil
		case err == nil:
			return Appended{Taken: !bytes.Equal(recs[0], rec)}, true, nil
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt):
			return Appended{Err: err}, true, nil // no answer will ever come
		}
		if err := c.Pause(ctx, err); err != nil {
			return Appended{}, false, err
		}
	}
}

// peek returns the record that a slot holds, or nil if the slot is empty. A record that
// cannot be decoded counts as none, because it proves nothing.
func (a *Access) peek(ctx context.Context, slot journal.Slot) (rec []byte, err error) {
	c := a.Begin(Read)
	defer c.End()
	for {
		err := c.try(ctx, func(ctx context.Context) (err error) {
			rec, err = a.cfg.Store.Peek(ctx, slot)
			return err
		})
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			return nil, nil
		case err == nil, errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrClosed):
			return rec, err
		}
		if err := c.Pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// A writer anchors its records at the last slot that it has applied. So a record
// whose anchor is an empty slot, or a later one, proves that the slot was held, and
// that its record is lost: such a slot must be put back and never filled. An empty
// slot below records that are all anchored before it was not read by any of their
// writers. Usually a writer ended there before its record landed. Others fill the slot.

// peekers is how many slots are looked at together.
const peekers = 32

// NeverHeld makes sure that an empty slot was never held, by searching as many slots above
// it as reach says. slot must be the slot after all that the caller has read. The error
// wraps ErrLost, or says why the journal cannot be read.
func (a *Access) NeverHeld(ctx context.Context, slot journal.Slot, reach int) error {
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
		return fmt.Errorf("%w: slot %d is empty, and the writer of slot %d had read a record in it; stop all servers of this journal and put the slot back from a copy, or from an older version of the bucket; xb fsck says how to go on without it", ErrLost, slot, slot+1+journal.Slot(i))
	}
	return nil
}

// Reaches fails if the journal ends before slot, of which there is a snapshot. In that case
// records are missing that clients were told of, and new records would take their slots.
func (a *Access) Reaches(ctx context.Context, slot journal.Slot) error {
	c := a.Begin(Read)
	defer c.End()
	for {
		recs, err := c.Read(ctx, slot, 1)
		switch {
		case errors.Is(err, journal.ErrTrimmed) || len(recs) > 0:
			return nil
		case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
			return err
		case err == nil:
			return fmt.Errorf("there is a snapshot of slot %d, but the journal ends before that slot: %w; put the end back from a copy, or give it up for good with xb journal accept-loss", slot, ErrLostEnd)
		}
		if err := c.Pause(ctx, err); err != nil {
			return err
		}
	}
}

// Snapshots returns the names of all blobs of snapshots.
func (a *Access) Snapshots(ctx context.Context) ([]string, error) {
	c := a.Begin(ListSnapshots)
	defer c.End()
	for {
		var names []string
		err := c.try(ctx, func(ctx context.Context) (err error) {
			names, err = a.cfg.Store.ListBlobs(ctx, snapshot.Prefix)
			return err
		})
		if err == nil {
			return names, nil
		}
		if err := c.Pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// Load loads a snapshot, and tries until the store has answered: if the journal was trimmed
// for this snapshot, a short failure of the store must not make the replica skip it.
func (a *Access) Load(ctx context.Context, slot journal.Slot) (snapshot.Loaded, error) {
	return untilAnswered(ctx, a, func() (snapshot.Loaded, error) { return snapshot.Load(ctx, a.cfg.Store, a.info.ID, slot) })
}

// Manifest reads the manifest of a snapshot. It tries until the store has answered.
func (a *Access) Manifest(ctx context.Context, slot journal.Slot) (snapshot.Manifest, error) {
	return untilAnswered(ctx, a, func() (snapshot.Manifest, error) { return snapshot.ReadManifest(ctx, a.cfg.Store, slot) })
}

// untilAnswered loads something of a snapshot until the store has given it, or has said
// that it is bad or not there.
func untilAnswered[T any](ctx context.Context, a *Access, load func() (T, error)) (T, error) {
	var c *Call
	for {
		loaded, err := load()
		if err == nil || errors.Is(err, snapshot.ErrBad) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNoBlob) {
			return loaded, err
		}
		if c == nil { // begun only after a failure: loading a large snapshot takes long, and is no outage
			c = a.Begin(LoadSnapshot)
			defer c.End()
		}
		if err := c.Pause(ctx, err); err != nil {
			var none T
			return none, err
		}
	}
}
