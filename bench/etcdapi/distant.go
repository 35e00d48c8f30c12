package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// OnBucket measures writes on an object store that is 30 and 80 ms away. There
// is nothing to hold it against but the distance itself, so the figures stand
// alone: the round trip is in the workload's name.
func OnBucket(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	const name = "xb, S3"
	var rows []*measure.Comparison
	for _, r := range []time.Duration{30 * time.Millisecond, 80 * time.Millisecond} {
		loads := []struct {
			name    string
			clients int
			total   int
		}{{"put, 1 client", 1, 60}, {"put, 16 clients", 16, 600}, {"put, 100 clients", 100, 4000}, {"put, 1,000 clients", 1000, 20000}}
		these := make([]*measure.Comparison, len(loads))
		for i, l := range loads {
			these[i] = measure.NewComparison(fmt.Sprintf("R = %v: %s", r, l.name), name)
		}
		several := []*measure.Comparison{
			measure.NewComparison(fmt.Sprintf("R = %v: 8 writers, 16 clients each", r), name),
			measure.NewComparison(fmt.Sprintf("R = %v: a writer 5 R away, beside a busy one", r), name),
			measure.NewComparison(fmt.Sprintf("R = %v: put until a watch at another server saw it", r), name),
		}
		rows = append(append(rows, these...), several...)
		for round := range cfg.Rounds {
			fmt.Fprintf(os.Stderr, "s3: R = %v, round %d\n", r, round+1)
			if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
				s, stop, err := b.Writer(ctx, cfg, dir, "writer", r)
				if err != nil {
					return err
				}
				defer stop()
				for i, l := range loads {
					m, err := putOn(ctx, s, l.clients, max(1, int(float64(l.total)*cfg.Scale)))
					if err != nil {
						return err
					}
					these[i].Add(name, m)
				}
				m, err := seenAtAnother(ctx, cfg, b, dir, s, r)
				several[2].Add(name, m)
				return err
			}); err != nil {
				return measure.Values(rows), err
			}
			if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
				m, err := manyWriters(ctx, cfg, b, dir, []time.Duration{r, r, r, r, r, r, r, r}, 16)
				several[0].Add(name, m)
				return err
			}); err != nil {
				return measure.Values(rows), err
			}
			if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
				m, err := manyWriters(ctx, cfg, b, dir, []time.Duration{5 * r, r}, 16)
				several[1].Add(name, m)
				return err
			}); err != nil {
				return measure.Values(rows), err
			}
		}
	}
	return measure.Values(rows), nil
}

func putOn(ctx context.Context, s *store.Store, n, total int) (measure.Sample, error) {
	c, closeAll, err := s.Clients(n)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closeAll()
	if err := s.Ready(ctx); err != nil {
		return measure.Sample{}, err
	}
	return puts(ctx, s, c, total)
}

// manyWriters runs writers at the distances given on one journal, all busy for
// ten seconds, and measures what the first gets, beside the sum's throughput.
func manyWriters(ctx context.Context, cfg measure.Config, b *store.Bucket, dir string, distances []time.Duration, clients int) (measure.Sample, error) {
	const span = 10 * time.Second
	all, err := busyTogether(ctx, cfg, b, dir, distances, clients, span, false)
	if err != nil {
		return measure.Sample{}, err
	}
	m := all[0].between(0, span)
	for _, w := range all[1:] {
		m.PerSecond += w.between(0, span).PerSecond
	}
	return m, nil
}

// busyTogether starts writers at the distances given on one journal, and keeps the clients of
// each busy for so long, from one moment on. If acquainted is set, each writer has written a
// record before, as an API server has, so that they know of each other.
func busyTogether(ctx context.Context, cfg measure.Config, b *store.Bucket, dir string, distances []time.Duration, clients int, d time.Duration, acquainted bool) ([]timeline, error) {
	var all []*store.Store
	for i, r := range distances {
		s, stop, err := b.Writer(ctx, cfg, dir, fmt.Sprintf("writer-%d", i), r)
		if err != nil {
			return nil, err
		}
		defer stop()
		all = append(all, s)
	}
	for _, s := range all { // a far one takes seconds to open the journal
		if err := s.Ready(ctx); err != nil {
			return nil, err
		}
		if acquainted {
			if _, err := putOn(ctx, s, 1, 1); err != nil {
				return nil, err
			}
		}
	}
	writers, ctx := errgroup.WithContext(ctx)
	results := make([]timeline, len(all))
	for i, s := range all {
		writers.Go(func() (err error) {
			results[i], err = putsFor(ctx, s, clients, d)
			return err
		})
	}
	return results, writers.Wait()
}

// timeline is what became of requests: when each began, from the start on, and how long it took.
type timeline []struct{ at, took time.Duration }

// between measures the requests that began in a span of time.
func (l timeline) between(from, to time.Duration) measure.Sample {
	var took []time.Duration
	for _, request := range l {
		if from <= request.at && request.at < to {
			took = append(took, request.took)
		}
	}
	return measure.Sample{PerSecond: float64(len(took)) / (to - from).Seconds(), P50: measure.Percentile(took, 50), P99: measure.Percentile(took, 99)}
}

// putsFor keeps n clients busy for a while.
func putsFor(ctx context.Context, s *store.Store, n int, d time.Duration) (timeline, error) {
	c, closeAll, err := s.Clients(n)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	start := time.Now()
	clients, ctx := errgroup.WithContext(ctx)
	results := make([]timeline, n)
	for k, cl := range c {
		clients.Go(func() error {
			for i := 0; time.Since(start) < d; i++ {
				began := time.Since(start)
				_, err := cl.Put(ctx, key(i%keys), "v")
				if err != nil && !errors.Is(err, rpctypes.ErrTimeout) {
					return err
				}
				// One that times out counts with the time it took.
				results[k] = append(results[k], struct{ at, took time.Duration }{began, time.Since(start) - began})
			}
			return nil
		})
	}
	err = clients.Wait()
	return slices.Concat(results...), err
}

// Writers measures eight busy writers of one journal, all as far from the store, while they
// find their turns and after that: once as strangers, none of which has written before, and
// once acquainted. A row has the median of the writers' p50s and the worst of their p99s.
func Writers(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	const writers, clients, first, last = 8, 16, 125, 375 // the last two in round trips
	names := map[bool]string{false: "strangers", true: "acquainted"}
	var rows []*measure.Comparison
	for _, r := range []time.Duration{80 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		begin := measure.NewComparison(fmt.Sprintf("R = %v: %d writers, the first %d R", r, writers, first), names[true], names[false])
		later := measure.NewComparison(fmt.Sprintf("R = %v: %d writers, from then to %d R", r, writers, last), names[true], names[false])
		rows = append(rows, begin, later)
		for i := range 2 * cfg.Rounds {
			acquainted := i%2 == 1
			fmt.Fprintf(os.Stderr, "writers: R = %v, %s\n", r, names[acquainted])
			if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
				all, err := busyTogether(ctx, cfg, b, dir, slices.Repeat([]time.Duration{r}, writers), clients, last*r, acquainted)
				begin.Add(names[acquainted], ofAll(all, 0, first*r))
				later.Add(names[acquainted], ofAll(all, first*r, last*r))
				return err
			}); err != nil {
				return measure.Values(rows), err
			}
		}
	}
	return measure.Values(rows), nil
}

// ofAll is the sum of the writers' rates, the median of their p50s and the worst of their p99s.
func ofAll(all []timeline, from, to time.Duration) (sum measure.Sample) {
	var p50s []time.Duration
	for _, w := range all {
		m := w.between(from, to)
		sum.PerSecond += m.PerSecond
		sum.P99 = max(sum.P99, m.P99)
		p50s = append(p50s, m.P50)
	}
	sum.P50 = measure.Percentile(p50s, 50)
	return sum
}

// seenAtAnother measures from the start of a put at one server to its event at
// another, both as far from the store, found by polling alone.
func seenAtAnother(ctx context.Context, cfg measure.Config, b *store.Bucket, dir string, s *store.Store, r time.Duration) (measure.Sample, error) {
	other, stop, err := b.Writer(ctx, cfg, dir, "watcher", r)
	if err != nil {
		return measure.Sample{}, err
	}
	defer stop()
	w, closeWatch, err := other.Clients(1)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closeWatch()
	p, closePut, err := s.Clients(1)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closePut()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := w[0].Watch(ctx, "/seen", clientv3.WithCreatedNotify())
	<-ch
	return measure.Drive(ctx, nil, 1, max(1, int(40*cfg.Scale)), func(ctx context.Context, _, i int) error {
		if _, err := p[0].Put(ctx, "/seen", fmt.Sprint(i)); err != nil {
			return err
		}
		for {
			select {
			case res := <-ch:
				for _, e := range res.Events {
					if string(e.Kv.Value) == fmt.Sprint(i) {
						return nil
					}
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
