package quota_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/policytest"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// slow is a store whose writes take a second. The second one conflicts.
type slow struct {
	*policytest.Memory
	writes int
}

func (s *slow) Write(ctx context.Context, k ledger.Key, text, version string) (string, error) {
	s.writes++
	conflicts := s.writes == 2
	time.Sleep(time.Second)
	if conflicts {
		return "", ledger.ErrConflict
	}
	return s.Memory.Write(ctx, k, text, version)
}

// TestACallerThatGivesUpIsForgotten: a caller gives up while another caller writes
// for both, and has to try again. Nothing stays pending of the first.
func TestACallerThatGivesUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &policytest.Memory{Hard: 10, Namespace: namespaces.Namespace{UID: "uid"}}
		l := ledger.New("b")
		l.Counts["widgets.a"] = ledger.Count{Counted: true, Exact: true}
		m.Put(policytest.Key, l)
		_, keeper, _ := m.Rooms()
		ledgers := ledger.NewSet(&slow{Memory: m}, ledger.RandomPause, func(ledger.Key) {})
		reserver := &quota.Reserver{Namespaces: keeper, Ledgers: ledgers, Counter: quota.NewCounter(m, ledgers), Limits: m, Pause: ledger.RandomPause, Grace: time.Minute}
		results := make(chan error, 3)
		reserve := func(patience time.Duration) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := reserver.Reserve(ctx, quota.Request{
					Namespace: "ns", Server: "A", Guard: v1alpha1.Guard{Quota: true}, Resource: "widgets.a", Timeout: time.Minute,
				})
				results <- err
			}()
			synctest.Wait()
		}
		reserve(time.Minute)             // writes from 0 s to 1 s
		reserve(time.Minute)             // writes for itself and the next from 1 s to 3 s
		reserve(1500 * time.Millisecond) // gives up at 1.5 s
		refused := 0
		for range 3 {
			if err := <-results; errors.Is(err, context.DeadlineExceeded) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if err := ledgers.At(policytest.Key).Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := m.Ledger(t, policytest.Key); refused != 1 || len(l.Pending) != 2 || l.Counts["widgets.a"].Used != 2 {
			t.Errorf("%d gave up, and the ledger is %+v", refused, l)
		}
	})
}
