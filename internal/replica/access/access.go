// Package access calls a journal until it answers, and says when it does not: an
// outage. It looks into records only for proof that a slot was held. It never decides
// what is written, and knows nothing of the state.
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

// The errors that say that a journal has lost what it held. Callers end with them.
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
	Timeout time.Duration // a call that has no answer for so long is an outage
	Attempt time.Duration // bounds one attempt of a call
	Logger  *slog.Logger
	Counts  *stats.Calls // counts the calls
}

// Access is the way to one journal. Every call is repeated until the journal has
// answered. Its methods are safe for concurrent use.
type Access struct {
	cfg    Config
	info   journal.Info
	health health // hears of calls that fail for long
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

// needsWrites says whether the operation is a write: if it fails, reads may still work.
// A write without an answer is not an outage by itself: if the whole journal is silent,
// the Read under way is silent too, and reports the outage.
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

	readable bool // of an append that fails: the journal was read after the last attempt
	gaveUp   bool // the call ended without an answer
	ended    bool // guarded by health.mu
}

// between is how long a call waits between its attempts.
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

// Appended is what appending a record came to: it holds its slot, another record does,
// or no answer will ever come.
type Appended struct {
	Taken bool // another record holds the slot, or this one does by an earlier attempt
	Err   error
}

// Append brings a record to a slot, until it is known which record holds the slot. A
// crash on the way leaves a record that landed or did not; nobody was told either. The
// error is that of ctx.
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
			// Perhaps by an earlier attempt. Which it is turns out when the slot is
			// applied: it cannot be read before the slots below it are held.
			return Appended{Taken: true}, nil
		case errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrClosed):
			return Appended{Err: err}, nil
		case errors.Is(err, journal.ErrAhead):
			// Not stored: the store has not seen the tail that this replica has seen.
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

// count counts an attempt to append that began then, by what it came to.
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

// peek returns the record that a slot holds, nil for none. What cannot be decoded
// counts as none: it proves nothing.
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

// NeverHeld makes sure, by so many slots above it, that the empty slot after all that
// the caller has read was never held. The error wraps ErrLost, or says why the
// journal cannot be read.
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
		return fmt.Errorf("%w: slot %d is empty, and the writer of slot %d had read a record in it; stop all servers of this journal and put the slot back from a copy, or an older version of the bucket; xb fsck says how to go on without it", ErrLost, slot, slot+1+journal.Slot(i))
	}
	return nil
}

// Reaches fails if the journal ends before slot, of which there is a snapshot: then
// records are missing that clients were told of, and new records would take their
// slots.
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
			return fmt.Errorf("there is a snapshot of slot %d, and the journal ends before: %w; put it back from a copy, or go on without it, for good, by xb journal accept-loss", slot, ErrLostEnd)
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

// Load loads a snapshot. It tries until the store has answered: a snapshot for which
// the journal was trimmed must not be passed over because of a moment's trouble.
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
		if c == nil { // not before: loading a large snapshot takes long, and is no outage
			c = a.Begin(LoadSnapshot)
			defer c.End()
		}
		if err := c.Pause(ctx, err); err != nil {
			var none T
			return none, err
		}
	}
}
