package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed of the first history; 0 draws one")
	seedsFlag = flag.Int("seeds", seeds, "how many histories to run")
)

// TestMain makes what a process has one of, outside of all bubbles: then it works in each
// of them.
func TestMain(m *testing.M) {
	packed := record.Compress(nil, make([]byte, 1<<10))
	for _, most := range []int{record.MaxBody, mvcc.MaxFirstPart, mvcc.MaxPart, 32 << 10} {
		if _, err := record.Decompress(packed, most); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestSimulation runs histories on a journal in memory, which takes no time but to
// compute, and deletes at once what is trimmed.
func TestSimulation(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	var mu sync.Mutex
	var all Tally
	t.Cleanup(func() { // after the parallel ones
		t.Logf("%d histories from seed %d on: %+v", *seedsFlag, seed, all)
		if all.Void() {
			t.Error("nothing was written or watched, or nobody slept: the histories say nothing")
		}
	})
	for i := range *seedsFlag {
		t.Run(fmt.Sprintf("seed=%d", seed+uint64(i)), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memlog.New(memlog.Options{Depth: 64})
				met, err := Run(t.Context(), Config{
					Seed: seed + uint64(i), Writes: 40, Lasts: 1500 * time.Millisecond, Attempt: 300 * time.Millisecond,
					Open: func(context.Context) (journal.Store, error) { return mem.Open(), nil },
				})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				all.Add(met)
			})
		})
	}
}
