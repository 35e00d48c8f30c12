package replica

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
)

// TestTickWithAFullQueue: if no expiry of a lease fits into the queue, proposers
// that have waited long enough are told all the same.
func TestTickWithAFullQueue(t *testing.T) {
	r := New(Config{Store: memlog.New(memlog.Options{}).Open(), Notifier: notify.NewPolling(time.Hour, time.Hour), Logger: slog.New(slog.DiscardHandler)})
	l := &loop{Replica: r, state: mvcc.New(), window: newWindow(0)}
	l.state.Apply(1, &mvcc.Batch{From: r.info.ID, Writer: 1, Number: 1, Requests: []mvcc.Request{{Kind: mvcc.LeaseGrant, Lease: 7, TTL: 1}}}, false)
	now := time.Now()
	l.onTick(now) // sees the lease
	now = now.Add(time.Hour)
	var waiting []*proposal
	for {
		p, err := r.queue.add(r.maxBatch(), now, &mvcc.Request{Kind: mvcc.Compact, Revision: 1})
		if errors.Is(err, ErrBusy) {
			break
		}
		waiting = append(waiting, p)
	}
	l.onTick(now.Add(time.Second))
	for i, p := range waiting {
		select {
		case <-p.done:
			if !errors.Is(p.err, ErrUnavailable) {
				t.Fatalf("proposal %d ended with %v, want ErrUnavailable", i, p.err)
			}
		default:
			t.Fatalf("proposal %d of %d still waits, a second after its time", i, len(waiting))
		}
	}
	if got := len(r.queue.items); got != 1 {
		t.Errorf("%d proposals are queued, want the expiry of the lease", got)
	}
}

// unlistable is a store that names no snapshot, for as long as it is asked.
type unlistable struct{ journal.Store }

func (unlistable) ListBlobs(context.Context, string) ([]string, error) {
	return nil, errors.New("slow down")
}

// TestProposeBeforeTheStart: whoever proposed to a replica that ends before it has
// started is told.
func TestProposeBeforeTheStart(t *testing.T) {
	r := New(Config{Store: unlistable{memlog.New(memlog.Options{}).Open()}, Notifier: notify.NewPolling(time.Hour, time.Hour), Logger: slog.New(slog.DiscardHandler)})
	p, err := r.queue.add(r.maxBatch(), time.Now().Add(time.Hour), &mvcc.Request{Kind: mvcc.Compact, Revision: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
		if !errors.Is(p.err, ErrStopped) {
			t.Errorf("the outcome is %v, want ErrStopped", p.err)
		}
	default:
		t.Error("nobody told the proposer that the replica has ended")
	}
}
