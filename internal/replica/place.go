package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
)

// placement is the end of one batch's way to one slot: it holds the slot,
// another record does, or the journal will never take it.
type placement struct {
	batch *batch
	taken bool
	err   error
}

// fetch is what a Read returned.
type fetch struct {
	from  journal.Slot
	limit int
	recs  [][]byte
}

// place brings a batch to its slot, until it is known who holds the slot. A
// crash here leaves a record that landed or did not; nobody was told either.
func (l *loop) place(b *batch) error {
	p, err := l.settleSlot(b)
	if err != nil {
		return err
	}
	select {
	case l.placed <- p:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *loop) settleSlot(b *batch) (placement, error) {
	wait := newBackoff(l.Replica, "append to the journal")
	unknown := false // an earlier attempt may have landed, or still may
	for {
		err := l.cfg.Store.Append(l.ctx, b.slot, b.rec)
		switch {
		case err == nil:
			wait.over()
			return placement{batch: b}, nil
		case errors.Is(err, journal.ErrTaken) && !unknown:
			wait.over()
			return placement{batch: b, taken: true}, nil
		case errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrClosed):
			return placement{batch: b, err: err}, nil
		case errors.Is(err, journal.ErrAhead):
			// Not stored; the store has not caught up with what we know.
		default:
			unknown = true
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return placement{}, err
		}
		// Never append again blindly: who holds the slot?
		for unknown {
			recs, err := l.cfg.Store.Read(l.ctx, b.slot, 1)
			if err == nil && len(recs) == 0 {
				break
			}
			if err == nil {
				wait.over()
				return placement{batch: b, taken: !b.wrote(recs[0])}, nil
			}
			if err := wait.pause(l.ctx, err); err != nil {
				return placement{}, err
			}
		}
	}
}

// wrote says whether rec is the batch as it was placed.
func (b *batch) wrote(rec []byte) bool { return record.DigestOf(rec) == b.digest }

// read reads from a slot on until the journal answers.
func (l *loop) read(from journal.Slot, limit int) error {
	wait := newBackoff(l.Replica, "read the journal")
	for {
		recs, err := l.cfg.Store.Read(l.ctx, from, limit)
		if err == nil {
			wait.over()
			select {
			case l.fetched <- fetch{from: from, limit: limit, recs: recs}:
				return nil
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrCorrupt) {
			return err
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return err
		}
	}
}

// backoff waits longer and longer between attempts, with jitter, and tells
// the log once when it starts to matter and once when it is over.
type backoff struct {
	r     *Replica
	what  string
	wait  time.Duration
	since time.Time
	told  bool
}

const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
	tellAfter = 2 * time.Second
)

func newBackoff(r *Replica, what string) *backoff { return &backoff{r: r, what: what, wait: firstWait} }

func (b *backoff) pause(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if b.since.IsZero() {
		b.since = time.Now()
	}
	if !b.told && time.Since(b.since) > tellAfter {
		b.told = true
		b.r.log.Warn("journal does not answer; trying on", "to", b.what, "error", cause)
	}
	t := time.NewTimer(b.wait/2 + rand.N(b.wait/2+1))
	defer t.Stop()
	b.wait = min(2*b.wait, lastWait)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backoff) over() {
	if b.told {
		b.r.log.Info("journal answers again", "to", b.what, "after", time.Since(b.since).Round(time.Millisecond))
	}
}
