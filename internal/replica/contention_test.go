// The race detector would make these slow; TestHistories looks for races.

//go:build !race

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// distant is a journal that is a round trip away, and counts what it is asked.
type distant struct {
	journal.Store
	r              time.Duration
	delay          time.Duration // of a call; 0: the store below is far away by itself
	appends, reads atomic.Int64
	away           atomic.Bool // the store answers nothing
}

// reach is the way to the store. While that is away it is tried again and
// again, as the S3 driver does, until ctx ends.
func (d *distant) reach(ctx context.Context) error {
	for d.away.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(time.Second)):
		}
	}
	time.Sleep(d.delay / 2)
	return nil
}

func (d *distant) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	d.appends.Add(1)
	if err := d.reach(ctx); err != nil {
		return err
	}
	err := d.Store.Append(ctx, slot, rec)
	time.Sleep(d.delay / 2)
	if errors.Is(err, journal.ErrTaken) {
		time.Sleep(d.delay) // the S3 driver reads what holds the slot
	}
	return err
}

func (d *distant) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	d.reads.Add(int64(limit)) // the S3 driver asks for each slot
	if err := d.reach(ctx); err != nil {
		return nil, err
	}
	recs, err := d.Store.Read(ctx, from, limit)
	time.Sleep(d.delay / 2)
	return recs, err
}

func (d *distant) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	if err := d.reach(ctx); err != nil {
		return nil, err
	}
	defer time.Sleep(d.delay / 2)
	return d.Store.Peek(ctx, slot)
}

// writer is a replica at some distance, with clients that are busy.
type writer struct {
	store *distant
	*replica.Replica
	stop  func()
	pause time.Duration // of a client between two writes

	mu    sync.Mutex
	wrote []span // guarded by mu
}

// span is how long one write took, from when on since the start.
type span struct{ from, took time.Duration }

// crowd runs writers at their distances on one journal, in simulated time.
func crowd(t *testing.T, distances ...time.Duration) (store *memlog.Store, writers []*writer) {
	store = memlog.New(memlog.Options{Depth: 64})
	return store, crowdOn(t, func(r time.Duration) *distant { return &distant{Store: store.Open(), r: r, delay: r} }, distances...)
}

// crowdOn is crowd with any kind of store.
func crowdOn(t *testing.T, open func(r time.Duration) *distant, distances ...time.Duration) (writers []*writer) {
	for _, d := range distances {
		ctx, cancel := context.WithCancel(t.Context())
		w := &writer{store: open(d)}
		w.Replica = replica.New(replica.Config{
			Store:     w.store,
			Notifier:  notify.NewPolling(100*time.Millisecond, time.Second),
			Logger:    slog.New(slog.DiscardHandler),
			Timeout:   time.Minute,
			Snapshots: snapshot.Policy{EveryBytes: 1 << 40}, // none: its compressor is shared with other tests
		})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		writers = append(writers, w)
	}
	return writers
}

// work writes with many clients for as long as until, or until the writer stops.
func (w *writer) work(t *testing.T, start time.Time, until time.Duration, clients int) {
	<-w.Ready()
	var busy sync.WaitGroup
	for c := range clients {
		busy.Go(func() {
			for n := 0; time.Since(start) < until; n++ {
				from := time.Since(start)
				_, err := w.Propose(t.Context(), put(fmt.Sprintf("%d/%d", w.Writer(), c), fmt.Sprint(n)))
				if errors.Is(err, replica.ErrStopped) || errors.Is(err, replica.ErrUnknown) {
					return // it was stopped
				}
				if err != nil {
					t.Errorf("writer %v away: %v", w.store.r, err)
					return
				}
				w.mu.Lock()
				w.wrote = append(w.wrote, span{from, time.Since(start) - from})
				w.mu.Unlock()
				time.Sleep(w.pause)
			}
		})
	}
	busy.Wait()
}

// percentile returns how long writes took that began after from, in the writer's own
// round trips, and how many there were.
func (w *writer) percentile(share float64, from time.Duration) (trips float64, writes int) {
	var took []time.Duration
	for _, s := range w.wrote {
		if s.from >= from {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return float64(took[int(share*float64(len(took)-1))]) / float64(w.store.r), len(took)
}

// TestContention: writers that saturate one journal get their writes through in
// a few of their own round trips, near and far ones alike. Simulated time makes
// a bound possible that no load on the machine breaks.
func TestContention(t *testing.T) {
	const (
		r    = 80 * time.Millisecond
		end  = time.Minute
		calm = 20 * time.Second // by then they know of each other
	)
	for _, c := range []struct {
		name      string
		clients   int
		distances []time.Duration
		most      float64 // of the p95, in round trips
	}{
		{"one client", 1, []time.Duration{r}, 1.1},
		{"one writer", 16, []time.Duration{r}, 1.6},
		{"one writer with more clients", 100, []time.Duration{r}, 1.6},
		{"two alike", 16, []time.Duration{r, r}, 4},
		{"eight alike", 16, slices.Repeat([]time.Duration{r}, 8), 6},
		{"one five times as far", 16, []time.Duration{r, 5 * r}, 8},
		{"one far beside seven", 16, append(slices.Repeat([]time.Duration{r}, 7), 5*r), 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, writers := crowd(t, c.distances...)
				start := time.Now()
				var busy sync.WaitGroup
				for _, w := range writers {
					busy.Go(func() { w.work(t, start, end, c.clients) })
				}
				busy.Wait()
				var b strings.Builder
				for _, w := range writers {
					w.stop()
					p50, _ := w.percentile(0.5, 0)
					all, writes := w.percentile(0.99, 0)
					p99, _ := w.percentile(0.99, calm)
					if p95, _ := w.percentile(0.95, calm); p95 > c.most || writes == 0 {
						t.Errorf("%v away: p95 is %.1f round trips, want %v at most", w.store.r, p95, c.most)
					}
					if first := w.wrote[0].took; first > 30*w.store.r {
						t.Errorf("%v away: the first write took %v", w.store.r, first)
					}
					fmt.Fprintf(&b, "\n  %v away: %d writes, p50 %.1f, p99 %.1f round trips, %.1f later; %d appends, %d slots read",
						w.store.r, writes, p50, all, p99, w.store.appends.Load(), w.store.reads.Load())
				}
				recs, err := store.Open().Read(t.Context(), 1, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				slots := float64(len(recs)) * float64(r) / float64(end)
				if slots < 0.9 {
					t.Errorf("%.1f slots a round trip, want 0.9", slots)
				}
				t.Logf("%.1f slots a round trip%s", slots, b.String())
			})
		})
	}
}

// TestTurnsOfTheGone: a busy writer that stops leaves turns that nobody takes. The
// others fill those slots, and soon pass it over.
func TestTurnsOfTheGone(t *testing.T) {
	const r = 80 * time.Millisecond
	for _, distances := range [][]time.Duration{{r, r}, {r, 5 * r}, {5 * r, r}, {r, r, r, r}} {
		t.Run(fmt.Sprint(distances), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, writers := crowd(t, distances...)
				start := time.Now()
				var busy sync.WaitGroup
				for _, w := range writers {
					busy.Go(func() { w.work(t, start, time.Minute, 16) })
				}
				time.Sleep(20 * time.Second)
				writers[0].stop()
				busy.Wait()
				for _, w := range writers[1:] {
					w.stop()
					if worst, _ := w.percentile(1, 19*time.Second); worst > 40 {
						t.Errorf("%v away: a write took %.1f round trips", w.store.r, worst)
					}
					if p95, _ := w.percentile(0.95, 40*time.Second); p95 > 8 {
						t.Errorf("%v away: p95 is %.1f round trips long after", w.store.r, p95)
					}
				}
			})
		})
	}
}

// TestHolesOfTheNear: a far writer places records well ahead of the tail, and a near one
// fills the slots below. If the near one stops, the far one fills all of them at once,
// not one after the other.
func TestHolesOfTheNear(t *testing.T) {
	const (
		r      = 10 * time.Millisecond
		silent = 10 * time.Second
	)
	for _, c := range []struct {
		far  []time.Duration
		most float64 // round trips
	}{
		{[]time.Duration{5 * r}, 20},
		{[]time.Duration{12 * r}, 20},
		{[]time.Duration{20 * r}, 20},
		{[]time.Duration{20 * r, 15 * r}, 60}, // they hold each other up, too
	} {
		t.Run(fmt.Sprint(c.far), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, writers := crowd(t, append([]time.Duration{r}, c.far...)...)
				start := time.Now()
				var busy sync.WaitGroup
				busy.Go(func() { writers[0].work(t, start, silent, 16) })
				for _, far := range writers[1:] {
					busy.Go(func() { far.work(t, start, 2*silent, 16) })
				}
				busy.Wait()
				for _, w := range writers {
					w.stop()
				}
				for _, far := range writers[1:] {
					if worst, writes := far.percentile(1, silent-time.Second); worst > c.most || writes == 0 {
						t.Errorf("%v away: of %d writes the slowest took %.1f round trips", far.store.r, writes, worst)
					}
				}
			})
		})
	}
}

// TestAfterOutages: the duration of an outage is not taken for a round trip. Once the
// store is back, every writer gets its writes through, whichever was first.
func TestAfterOutages(t *testing.T) {
	const (
		r       = 8 * time.Millisecond
		outages = 8
		away    = 10 * time.Second
		back    = 20 * time.Second
		calm    = 3 * time.Second // after which the outage is over for all
	)
	for _, clients := range []int{1, 2, 16} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, writers := crowd(t, r, 9*r/8)
				start := time.Now()
				var busy sync.WaitGroup
				for i, w := range writers {
					w.pause = time.Duration(1+10*i) * 3 * time.Millisecond // so that no turns are asked for
					busy.Go(func() { w.work(t, start, outages*(away+back), clients) })
				}
				for range outages {
					for _, w := range writers {
						w.store.away.Store(true)
					}
					time.Sleep(away)
					for _, w := range writers {
						w.store.away.Store(false)
					}
					time.Sleep(back)
				}
				busy.Wait()
				for _, w := range writers {
					w.stop()
					for _, s := range w.wrote {
						phase := s.from % (away + back)
						if phase > away+calm && phase < away+back-calm && s.took > 100*r {
							t.Errorf("%v away: %v after the store was back a write took %v", w.store.r, phase-away, s.took)
						}
					}
				}
			})
		})
	}
}

// TestIdleBesideOthers: a writer without requests reads no more often than the notifier
// hints, however busy it was before, and a single write takes one round trip.
func TestIdleBesideOthers(t *testing.T) {
	const r = 80 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		_, writers := crowd(t, r, r, 5*r)
		start := time.Now()
		var busy sync.WaitGroup
		for _, w := range writers {
			busy.Go(func() { w.work(t, start, 10*time.Second, 16) })
		}
		busy.Wait()
		// The far one may have placed empty records well ahead, and fills the slots
		// below them.
		time.Sleep(time.Minute)
		before := make([][2]int64, len(writers))
		for i, w := range writers {
			before[i] = [2]int64{w.store.appends.Load(), w.store.reads.Load()}
		}
		const writes = 10
		for range writes {
			time.Sleep(10 * time.Second)
			began := time.Now()
			propose(t, writers[0].Replica, put("k", "v"))
			if took := time.Since(began); took > r {
				t.Errorf("a write to an idle journal took %v, the round trip is %v", took, r)
			}
		}
		time.Sleep(10 * time.Second)
		for i, w := range writers {
			appends, reads := w.store.appends.Load()-before[i][0], w.store.reads.Load()-before[i][1]
			if i == 0 && appends != writes || i > 0 && appends != 0 {
				t.Errorf("writer %d appended %d times", i, appends)
			}
			// Polled once a second while idle, and more often after activity.
			if reads > 110+writes*25 {
				t.Errorf("writer %d read %d slots in 110 s", i, reads)
			}
			w.stop()
		}
	})
}

// TestStartOfContention: writers that all begin at once find their turns within a few
// round trips. Those that have read records of each other find them sooner.
func TestStartOfContention(t *testing.T) {
	const (
		r     = 80 * time.Millisecond
		early = 10 * time.Second
		runs  = 5
	)
	for _, c := range []struct {
		name      string
		known     bool // each has written before
		distances []time.Duration
		near, far float64 // the most that the median of the writers' p99 may be, in round trips of their own
	}{
		{"two strangers", false, slices.Repeat([]time.Duration{r}, 2), 8, 0},
		{"two that know each other", true, slices.Repeat([]time.Duration{r}, 2), 8, 0},
		{"eight strangers", false, slices.Repeat([]time.Duration{r}, 8), 12, 0},
		{"eight that know each other", true, slices.Repeat([]time.Duration{r}, 8), 8, 0},
		{"one five times as far", true, []time.Duration{r, 5 * r}, 8, 16},
		{"one far beside seven", true, append(slices.Repeat([]time.Duration{r}, 7), 5*r), 10, 40}, // the far one has no time for more than its first batches
	} {
		t.Run(c.name, func(t *testing.T) {
			p99 := map[time.Duration][]float64{}
			for range runs {
				synctest.Test(t, func(t *testing.T) {
					for _, w := range rush(t, early, c.known, c.distances...) {
						p, _ := w.percentile(0.99, 0)
						p99[w.store.r] = append(p99[w.store.r], p)
					}
				})
			}
			for distance, most := range map[time.Duration]float64{r: c.near, 5 * r: c.far} {
				trips := p99[distance]
				if len(trips) == 0 {
					continue
				}
				slices.Sort(trips)
				median := trips[len(trips)/2]
				t.Logf("%v away: p99 of the first %v: %.1f round trips in the median of %d writers, %.1f at most", distance, early, median, len(trips), trips[len(trips)-1])
				if median > most {
					t.Errorf("%v away: the median of the p99 is %.1f round trips, want %v at most", distance, median, most)
				}
			}
		})
	}
}

// rush has writers begin at once, and work for a while. If they know each other, each of
// them has written before.
func rush(t *testing.T, span time.Duration, known bool, distances ...time.Duration) []*writer {
	_, writers := crowd(t, distances...)
	if known {
		for _, w := range writers {
			<-w.Ready()
			propose(t, w.Replica, put("up", ""))
		}
		time.Sleep(5 * time.Second)
	}
	start := time.Now()
	var busy sync.WaitGroup
	for _, w := range writers {
		busy.Go(func() { w.work(t, start, span, 16) })
	}
	busy.Wait()
	for _, w := range writers {
		w.stop()
	}
	return writers
}

// TestContentionOnObjects runs writers on an object store, as the S3 driver asks it: there
// a Read may take several requests one after the other.
func TestContentionOnObjects(t *testing.T) {
	const r = 80 * time.Millisecond
	for name, distances := range map[string][]time.Duration{
		"eight alike":           slices.Repeat([]time.Duration{r}, 8),
		"one far beside seven":  append(slices.Repeat([]time.Duration{r}, 7), 5*r),
		"one five times as far": {r, 5 * r},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := newMemoryBucket()
				writers := crowdOn(t, func(r time.Duration) *distant {
					l, err := objectlog.Open(t.Context(), farBucket{objects, r}, objectlog.Options{})
					if err != nil {
						t.Fatal(err)
					}
					return &distant{Store: l, r: r}
				}, distances...)
				start := time.Now()
				var busy sync.WaitGroup
				for _, w := range writers {
					busy.Go(func() { w.work(t, start, time.Minute, 16) })
				}
				busy.Wait()
				for _, w := range writers {
					w.stop()
					if err := w.store.Close(); err != nil {
						t.Error(err)
					}
					p50, writes := w.percentile(0.5, 0)
					p99, _ := w.percentile(0.99, 0)
					later, _ := w.percentile(0.95, 20*time.Second)
					t.Logf("%v away: %d writes, p50 %.1f, p99 %.1f round trips; %d appends, %d slots read", w.store.r, writes, p50, p99, w.store.appends.Load(), w.store.reads.Load())
					if later > 8 || writes < 500 {
						t.Errorf("%v away: %d writes, whose p95 is %.1f round trips later; want 500 at least, and 8 at most", w.store.r, writes, later)
					}
				}
			})
		})
	}
}
