package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// slowest is the time between polls while hints are relied on: two requests a minute.
const slowest = 30 * time.Second

// Source brings hints from other replicas, and sends them those of this one.
type Source interface {
	// Tell sends a hint of slot to the other replicas. It never blocks. Of hints that
	// were not sent yet, only that of the highest slot is.
	Tell(slot journal.Slot)
	// Run sends and receives until ctx ends, and returns then. It calls to.Heard for
	// each hint, to.Up when it begins to receive, and to.Down when it cannot.
	Run(ctx context.Context, to *Woken)
}

// Woken hints when a Source brings a hint, and polls: rarely while hints are relied
// on, and as often as Polling otherwise. It reads nothing from a hint but a slot: see
// docs/adr/0014-notifications-carry-no-records.md.
type Woken struct {
	source Source
	log    *slog.Logger
	c      chan struct{}
	moved  chan struct{} // something below changed

	mu      sync.Mutex // guards all below
	trust   trust
	pending bool // a hint waits for credit
	fast    interval
	active  bool      // something was written or found since the last poll
	polled  time.Time // the last poll
}

// NewWoken returns a notifier that hints by source, and polls as NewPolling does while
// hints cannot be relied on. Until the first sign that they are lost, they are.
func NewWoken(source Source, minimum, maximum time.Duration, log *slog.Logger) *Woken {
	return &Woken{
		source: source, log: log,
		c: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		trust: trust{credit: maxCredit}, fast: newInterval(minimum, maximum),
	}
}

// C implements Notifier.
func (w *Woken) C() <-chan struct{} { return w.c }

// Wrote implements Notifier.
func (w *Woken) Wrote(slot journal.Slot) {
	w.change(func(time.Time) { w.trust.wrote(slot); w.active = true })
	w.source.Tell(slot)
}

// Found implements Notifier.
func (w *Woken) Found(slot journal.Slot) {
	w.change(func(now time.Time) { w.trust.found(slot, now); w.active = true })
}

// Heard takes in a hint of the source: slot may be held.
func (w *Woken) Heard(slot journal.Slot) {
	w.change(func(now time.Time) {
		if w.trust.hear(slot, now) {
			w.pending = true
		}
	})
}

// Up takes in that the source receives hints. Records that came while it did not are
// looked for at once.
func (w *Woken) Up() {
	w.change(func(now time.Time) {
		if !w.trust.up {
			w.trust.up, w.trust.upAt, w.polled = true, now, time.Time{}
		}
	})
}

// Down takes in that the source cannot receive hints.
func (w *Woken) Down() {
	w.change(func(time.Time) {
		w.trust.up = false
		w.trust.counts.Failed++
	})
}

// Counts returns the fates of hints since the start.
func (w *Woken) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trust.counts
}

func (w *Woken) change(f func(now time.Time)) {
	w.mu.Lock()
	f(time.Now())
	w.mu.Unlock()
	signal(w.moved)
}

// Run implements Notifier.
func (w *Woken) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { w.source.Run(ctx, w); return nil })
	g.Go(func() error { w.hint(ctx); return nil })
	return g.Wait()
}

// hint hints whenever a hint is due, until ctx ends.
func (w *Woken) hint(ctx context.Context) {
	w.change(func(now time.Time) { w.polled = now })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.moved:
		case <-timer.C:
		}
		due, wait := w.due(time.Now())
		if due {
			signal(w.c)
		}
		timer.Reset(wait)
	}
}

// due says whether to hint now, and how long to wait until it is called again.
func (w *Woken) due(now time.Time) (due bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why := w.trust.expire(now); why != "" {
		w.log.Warn("notifications cannot be relied on; polling until they can", "why", why)
		w.fast.next(true)
	}
	if w.pending && w.trust.spend(now) {
		w.pending, due = false, true
	}
	every := slowest
	if !w.trust.relied() {
		if w.active && w.fast.now > w.fast.min {
			w.fast.next(true)
		}
		every = w.fast.now
	}
	if now.Sub(w.polled) >= every {
		w.polled, due = now, true
		if !w.trust.relied() {
			every = w.fast.next(w.active)
		}
		w.active = false
	}
	wait = every - now.Sub(w.polled)
	switch {
	case w.pending:
		wait = min(wait, refill)
	case w.trust.heard != 0 || w.trust.missing != 0:
		wait = min(wait, grace)
	}
	return due, max(wait, time.Millisecond)
}
