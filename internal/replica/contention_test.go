package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// distant is a journal that is a round trip away.
type distant struct {
	journal.Store
	r time.Duration
}

func (d distant) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	time.Sleep(d.r / 2)
	err := d.Store.Append(ctx, slot, rec)
	time.Sleep(d.r / 2)
	if errors.Is(err, journal.ErrTaken) {
		time.Sleep(d.r) // the S3 driver reads what holds the slot
	}
	return err
}

func (d distant) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	time.Sleep(d.r / 2)
	recs, err := d.Store.Read(ctx, from, limit)
	time.Sleep(d.r / 2)
	return recs, err
}

// served is what one writer's clients got, in the time of the simulation.
type served struct {
	writes   int
	p50, p99 time.Duration
}

// contend runs one replica at each distance, with clients that are busy for a
// minute of simulated time.
func contend(t *testing.T, clients int, distances ...time.Duration) (out []served, slots journal.Slot) {
	synctest.Test(t, func(t *testing.T) {
		store := memlog.New(memlog.Options{Depth: 32})
		ctx, cancel := context.WithCancel(t.Context())
		took := make([][]time.Duration, len(distances))
		var running, busy sync.WaitGroup
		end := time.Now().Add(time.Minute)
		var mu sync.Mutex
		for i, d := range distances {
			r := replica.New(replica.Config{
				Store:    distant{store.Open(), d},
				Notifier: notify.NewPolling(100*time.Millisecond, time.Second),
				Logger:   slog.New(slog.DiscardHandler),
				Timeout:  time.Minute,
			})
			running.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			for c := range clients {
				busy.Go(func() {
					<-r.Ready()
					for n := 0; time.Now().Before(end); n++ {
						began := time.Now()
						if _, err := r.Propose(ctx, put(fmt.Sprintf("%d/%d", i, c), fmt.Sprint(n))); err != nil {
							t.Errorf("writer %d at %v: %v", i, d, err)
							return
						}
						mu.Lock()
						took[i] = append(took[i], time.Since(began))
						mu.Unlock()
					}
				})
			}
		}
		busy.Wait()
		cancel()
		running.Wait()
		for _, d := range took {
			slices.Sort(d)
			s := served{writes: len(d)}
			if len(d) > 0 {
				s.p50, s.p99 = d[len(d)/2], d[len(d)*99/100]
			}
			out = append(out, s)
		}
		recs, err := store.Open().Read(t.Context(), 1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		slots = journal.Slot(len(recs))
	})
	return out, slots
}

func TestContention(t *testing.T) {
	const r = 30 * time.Millisecond
	for _, c := range []struct {
		name      string
		clients   int
		distances []time.Duration
	}{
		{"one writer", 100, []time.Duration{r}},
		{"two alike", 16, []time.Duration{r, r}},
		{"eight alike", 16, slices.Repeat([]time.Duration{r}, 8)},
		{"one five times as far", 16, []time.Duration{r, 5 * r}},
		{"one far beside seven", 16, append(slices.Repeat([]time.Duration{r}, 7), 5*r)},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, slots := contend(t, c.clients, c.distances...)
			var b strings.Builder
			for i, s := range out {
				// Alone, a client writes once in two round trips or so. Beside
				// others it must get a fair part of that; by blind retry a far
				// writer gets nothing.
				if alone := c.clients * int(time.Minute/(2*c.distances[i])); s.writes < alone/30 {
					t.Errorf("writer %d, %v away, got %d writes; alone it had some %d", i, c.distances[i], s.writes, alone)
				}
				fmt.Fprintf(&b, "\n  %v away: %d writes, p50 %v, p99 %v", c.distances[i], s.writes, s.p50.Round(time.Millisecond), s.p99.Round(time.Millisecond))
			}
			t.Logf("%.1f slots a round trip%s", float64(slots)*float64(r)/float64(time.Minute), b.String())
		})
	}
}
