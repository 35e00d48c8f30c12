package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/journal"
)

// Outbox holds the highest slot that a Source was told of and has not sent yet. It is
// safe for concurrent use.
type Outbox struct {
	told chan struct{} // has room for one

	mu   sync.Mutex
	next journal.Slot // guarded by mu; 0: there is nothing to send
}

// NewOutbox returns an outbox with nothing in it.
func NewOutbox() *Outbox { return &Outbox{told: make(chan struct{}, 1)} }

// Tell implements that of Source.
func (o *Outbox) Tell(slot journal.Slot) {
	o.mu.Lock()
	o.next = max(o.next, slot)
	o.mu.Unlock()
	signal(o.told)
}

// Take waits for a slot to send, and takes it out. If ctx ends first, Take returns
// ctx.Err().
func (o *Outbox) Take(ctx context.Context) (journal.Slot, error) {
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-o.told:
		}
		o.mu.Lock()
		slot := o.next
		o.next = 0
		o.mu.Unlock()
		if slot != 0 {
			return slot, nil
		}
	}
}

// again is how long a Source waits after an attempt has failed.
var again = backoff.Backoff{First: time.Second, Last: time.Minute}

// Trouble is what keeps a Source from working: said once until it changes, and tried
// again ever more rarely. It is for one goroutine.
type Trouble struct {
	Log   *slog.Logger
	Means string // what it means for people

	said   string // the error that was last logged; empty: all is well
	failed int    // attempts since all was well
}

// Note logs err if it is another than before, and, if it is nil, that all is well again.
func (t *Trouble) Note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if t.said != "" {
			t.Log.Info("notifications work again")
		}
		t.said, t.failed = "", 0
	case ctx.Err() != nil:
	default:
		if t.said != err.Error() {
			t.Log.Warn("notifications failed", "so", t.Means, "error", err)
		}
		t.said = err.Error()
		t.failed++
	}
}

// Pause waits before the next attempt, if the last one failed. If ctx ends first, Pause
// returns ctx.Err().
func (t *Trouble) Pause(ctx context.Context) error {
	if t.failed == 0 {
		return nil
	}
	return again.Pause(ctx, t.failed)
}
