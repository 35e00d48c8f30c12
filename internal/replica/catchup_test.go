// The race detector would make this slow; TestHistories looks for races.

//go:build !race

package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// TestCatchUp: a server that was away reads more and more records at once until it knows
// all of them.
func TestCatchUp(t *testing.T) {
	const (
		r       = 80 * time.Millisecond
		records = 10_000
	)
	synctest.Test(t, func(t *testing.T) {
		store := memlog.New(memlog.Options{Depth: 64})
		serve := func(distance time.Duration) (*replica.Replica, *distant, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			d := &distant{Store: store.Open(), r: distance, delay: distance}
			n := replica.New(replica.Config{
				Store: d, Notifier: notify.NewPolling(time.Second, time.Second), Logger: slog.New(slog.DiscardHandler),
				Snapshots: snapshot.Policy{EveryBytes: 1 << 40},
			})
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			return n, d, func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		near, _, stop := serve(0)
		<-near.Ready()
		for i := range records {
			propose(t, near, put("k", fmt.Sprint(i)))
		}
		far, asked, stopFar := serve(r)
		began := time.Now()
		<-far.Ready()
		trips := float64(time.Since(began)) / float64(r)
		if trips > 20 {
			t.Errorf("%d records took %.0f round trips, want 20 at most", records, trips)
		}
		t.Logf("%d records took %.0f round trips, and asked for %d", records, trips, asked.reads.Load())
		stopFar()
		stop()
	})
}
