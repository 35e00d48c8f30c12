//go:build !race

package replica_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLinearizableReadsFarAway: linearizable reads that clients send without a pause wait for
// less than two round trips, and the journal is read at most twice in a round trip.
func TestLinearizableReadsFarAway(t *testing.T) {
	const (
		r       = 80 * time.Millisecond
		end     = 200 * r
		clients = 16
	)
	synctest.Test(t, func(t *testing.T) {
		_, writers := crowd(t, r)
		w := writers[0]
		propose(t, w.Replica, put("k", "v"))
		before, start := w.store.reads.Load(), time.Now()
		var mu sync.Mutex
		var took []time.Duration
		var busy sync.WaitGroup
		for c := range clients {
			busy.Go(func() {
				time.Sleep(time.Duration(c) * r / clients)
				for time.Since(start) < end {
					from := time.Now()
					if _, err := w.Linearizable(t.Context()); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					took = append(took, time.Since(from))
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		busy.Wait()
		reads := w.store.reads.Load() - before
		w.stop()
		slices.Sort(took)
		p50, worst := took[len(took)/2], took[len(took)-1]
		if p50 > 8*r/5 || worst > 2*r {
			t.Errorf("the median took %v and the slowest %v; the round trip is %v", p50, worst, r)
		}
		if most := int64(2*end/r) + 5; reads > most {
			t.Errorf("%d Reads of the journal in %v, want %d at most", reads, end, most)
		}
		t.Logf("%d reads of clients by %d Reads; the median took %v, the slowest %v", len(took), reads, p50, worst)
	})
}
