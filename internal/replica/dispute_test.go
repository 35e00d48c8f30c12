package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// doomed starts a replica that may end by itself, with the error that comes.
func doomed(t *testing.T, store *memlog.Log, change func(*replica.Config)) (*replica.Replica, <-chan error) {
	t.Helper()
	cfg := replica.Config{
		Store:    store,
		Notifier: notify.NewPolling(2*time.Millisecond, 20*time.Millisecond),
		Logger:   slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	r := replica.New(cfg)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- r.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-r.Ready()
	return r, ended
}

// TestOneCorruptReplica: a value is altered in the memory of one of several
// replicas, which then stores a snapshot of it. It stops; the others go on, and
// whoever starts has the value that was written.
func TestOneCorruptReplica(t *testing.T) {
	for healthy := 1; healthy <= 2; healthy++ {
		for _, trim := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d healthy, trim=%v", healthy, trim), func(t *testing.T) {
				store := memlog.New(memlog.Options{})
				small := func(c *replica.Config) { c.Snapshots.EveryBytes = 8 << 10 }
				var good []*replica.Replica
				for range healthy {
					good = append(good, run(t, store.Open(), small))
				}
				bad, ended := doomed(t, store.Open(), func(c *replica.Config) { small(c); c.Trim = trim })
				propose(t, bad, put("k", "true"))
				copy(bad.View().Get("k").Value, "FALSE")
				err := error(nil)
				for i := 0; err == nil; i++ {
					if i%10 == 0 {
						propose(t, good[0], put("other", "v"))
					}
					if _, proposed := bad.Propose(t.Context(), put(fmt.Sprintf("k%d", i%50), "v")); proposed != nil {
						err = <-ended
					}
					if i > 5000 {
						t.Fatal("the corrupt replica does not stop")
					}
				}
				if !errors.Is(err, replica.ErrDiverged) {
					t.Fatalf("the corrupt replica ended with %v", err)
				}
				for _, r := range append(good, run(t, store.Open(), small)) {
					propose(t, r, put("after", "v"))
					if got := string(r.View().Get("k").Value); got != "true" {
						t.Errorf("a healthy replica has %q", got)
					}
				}
			})
		}
	}
}
