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
	wait := newPatience(l.Replica, "append")
	defer wait.over()
	unknown := false // an earlier attempt may have landed, or still may
	for {
		err := wait.try(l.ctx, func(ctx context.Context) error { return l.cfg.Store.Append(ctx, b.slot, b.rec) })
		switch {
		case err == nil:
			return placement{batch: b}, nil
		case errors.Is(err, journal.ErrTaken):
			// Perhaps by an earlier attempt of ours: whose it is, is seen when it
			// is applied. It cannot be read before the slots below it are held.
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
			recs, err := l.readOnce(wait, b.slot, 1)
			wait.readable = err == nil
			if err == nil && len(recs) == 0 {
				break
			}
			if err == nil {
				return placement{batch: b, taken: !b.wrote(recs[0])}, nil
			}
			if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrCorrupt) {
				return placement{batch: b, err: err}, nil // no answer will ever come
			}
			if err := wait.pause(l.ctx, err); err != nil {
				return placement{}, err
			}
		}
	}
}

// wrote says whether rec is the batch as it was placed.
func (b *batch) wrote(rec []byte) bool { return record.DigestOf(rec) == b.digest }

func (l *loop) readOnce(wait *patience, from journal.Slot, limit int) (recs [][]byte, err error) {
	err = wait.try(l.ctx, func(ctx context.Context) (err error) {
		recs, err = l.cfg.Store.Read(ctx, from, limit)
		return err
	})
	return recs, err
}

// patience is one call on the journal, repeated until it is answered: each
// attempt has its time, waits grow between them, with jitter. A call that fails
// for long, or is not answered within the time of a request, is an outage.
type patience struct {
	r     *Replica
	what  string
	wait  time.Duration
	began time.Time
	slow  *time.Timer

	readable bool // an append that fails: the journal was read after the last attempt
	stopped  bool // given up without an answer
	ended    bool // guarded by health.mu
}

const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
	tellAfter = 2 * time.Second
)

func newPatience(r *Replica, what string) *patience {
	p := &patience{r: r, what: what, wait: firstWait, began: time.Now()}
	p.slow = time.AfterFunc(r.cfg.Timeout, func() {
		// A single append without an answer is not an outage: other appends go on
		// beside it, and its slot is filled. If the whole journal is silent, a Read
		// is silent as well, and reports the outage.
		if what != "append" {
			r.health.fails(p, failure{cause: errSilent})
		}
	})
	return p
}

// try makes one attempt.
func (p *patience) try(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.r.cfg.Attempt)
	defer cancel()
	return call(ctx)
}

// pause waits before the next attempt. It fails when ctx ends.
func (p *patience) pause(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		p.stopped = true
		return ctx.Err()
	}
	silent := p.what == "append" && errors.Is(cause, context.DeadlineExceeded)
	if cause != nil && !silent && time.Since(p.began) >= tellAfter {
		p.slow.Stop()
		p.r.health.fails(p, failure{cause, p.readable})
		p.r.log.Debug("journal fails", "to", p.what, "error", cause)
	}
	t := time.NewTimer(p.wait/2 + rand.N(p.wait/2+1))
	defer t.Stop()
	p.wait = min(2*p.wait, lastWait)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		p.stopped = true
		return ctx.Err()
	}
}

// over ends it, answered or not.
func (p *patience) over() {
	p.slow.Stop()
	p.r.health.over(p, !p.stopped)
}
