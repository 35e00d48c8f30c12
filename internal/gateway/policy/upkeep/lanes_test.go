package upkeep

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// A server that never answers holds up its own tasks only; what fails is done
// again, what is asked for twice once, and all of it ends with run.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[task]int{}
		failed := errors.New("not yet")
		l := newLanes(func(ctx context.Context, k task) (time.Duration, error) {
			if k.lane == "dead" {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			done[k]++
			switch {
			case k.lane == "flaky" && done[k] < 3:
				return 0, failed
			case k.lane == "again" && done[k] < 4:
				return time.Second, nil
			}
			return 0, nil
		}, func(task, error, int) {})
		l.after(task{lane: "early"}, 0) // before run: dropped
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(ctx, func() { <-ctx.Done() })
		}()
		synctest.Wait()
		for range 20 {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				l.after(task{ledger.Key{Namespace: name}, "dead"}, 0)
			}
		}
		for _, lane := range []string{"flaky", "again"} {
			l.after(task{lane: lane}, time.Second)
		}
		for range 5 {
			l.after(task{lane: "alive"}, time.Second)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		for lane, want := range map[string]int{"early": 0, "alive": 1, "flaky": 3, "again": 4} {
			if n := done[task{lane: lane}]; n != want {
				t.Errorf("%s was done %d times, want %d", lane, n, want)
			}
		}
		mu.Unlock()
		l.prune(func(lane string) bool { return lane != "flaky" })
		cancel()
		<-ended
		l.after(task{lane: "late"}, 0)
		synctest.Wait()
		if n := done[task{lane: "late"}]; n != 0 {
			t.Error("a task was done after run had ended")
		}
	})
}
