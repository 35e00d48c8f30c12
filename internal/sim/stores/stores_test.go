package stores

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/azurelog/azuretest"
	"github.com/xbernetes/xbernetes/internal/journal/natslog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/internal/sim"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed of the first history; 0 draws one")
	seedsFlag = flag.Int("seeds", 3, "how many histories to run on each store")
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	azuretest.Stop()
	os.Exit(code)
}

// stores say how to open a journal that is not there yet.
var stores = map[string]func(*testing.T, *sim.Config){"s3": onS3, "gs": onGoogle, "azblob": onAzure, "postgres": onPostgres, "nats": onNATS}

// TestHistories: what holds in memory holds on a real store.
func TestHistories(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	var mu sync.Mutex
	met := map[string]*sim.Tally{}
	t.Cleanup(func() { // after the parallel ones
		for on, tally := range met {
			t.Logf("%d histories on %s from seed %d on: %+v", *seedsFlag, on, seed, *tally)
			if tally.Void() {
				t.Errorf("on %s nothing was written or watched, or nobody slept: the histories say nothing", on)
			}
		}
	})
	for on, open := range stores {
		for i := range *seedsFlag {
			t.Run(fmt.Sprintf("%s/seed=%d", on, seed+uint64(i)), func(t *testing.T) {
				t.Parallel()
				mine := seed + uint64(i)
				tally, err := run(t, mine, open, 1)
				for slow := time.Duration(2); err == nil && tally.Acked == 0 && slow <= 8; slow *= 2 {
					mine += uint64(*seedsFlag) // the machine is too busy for so little time
					tally, err = run(t, mine, open, slow)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if met[on] == nil {
					met[on] = new(sim.Tally)
				}
				met[on].Add(tally)
			})
		}
	}
}

// run runs a history on a store of its own, in so many times the usual time.
func run(t *testing.T, seed uint64, open func(*testing.T, *sim.Config), slow time.Duration) (sim.Tally, error) {
	cfg := sim.Config{Seed: seed, Writes: 120, Lasts: 6 * time.Second, Attempt: time.Second}
	open(t, &cfg)
	cfg.Lasts, cfg.Attempt = slow*cfg.Lasts, slow*cfg.Attempt
	return sim.Run(t.Context(), cfg)
}

// onPostgres is a journal in a database, which deletes at once what is trimmed.
func onPostgres(t *testing.T, cfg *sim.Config) {
	u, err := url.Parse(pgtest.Shared(t).URL("postgres", fmt.Sprint("table=h", cfg.Seed)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Open = func(ctx context.Context) (journal.Store, error) {
		c, err := sqllog.ParseURL(u)
		if err != nil {
			return nil, err
		}
		c.Pool.MaxConns = 4
		return sqllog.Open(ctx, c)
	}
}

// onNATS is a journal in JetStream, on one server.
func onNATS(t *testing.T, cfg *sim.Config) {
	u, err := url.Parse(natstest.URL("h", []string{"synced=true"}, natstest.Start(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Open = func(ctx context.Context) (journal.Store, error) {
		c, err := natslog.ParseURL(u)
		if err != nil {
			return nil, err
		}
		return natslog.Open(ctx, c)
	}
}
