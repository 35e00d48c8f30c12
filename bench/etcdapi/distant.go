package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

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
	type result struct {
		m   measure.Sample
		err error
	}
	results := make([]result, len(distances))
	done := make(chan int, len(distances))
	var all []*store.Store
	for i, r := range distances {
		s, stop, err := b.Writer(ctx, cfg, dir, fmt.Sprintf("writer-%d", i), r)
		if err != nil {
			return measure.Sample{}, err
		}
		defer stop()
		all = append(all, s)
	}
	for _, s := range all { // a far one takes seconds to open the journal
		if err := s.Ready(ctx); err != nil {
			return measure.Sample{}, err
		}
	}
	for i, s := range all {
		go func() {
			results[i].m, results[i].err = putsFor(ctx, s, clients, 10*time.Second)
			done <- i
		}()
	}
	sum := 0.0
	for range all {
		i := <-done
		if results[i].err != nil {
			return measure.Sample{}, results[i].err
		}
		sum += results[i].m.PerSecond
	}
	m := results[0].m
	m.PerSecond = sum
	return m, nil
}

// putsFor keeps n clients busy for a while.
func putsFor(ctx context.Context, s *store.Store, n int, d time.Duration) (measure.Sample, error) {
	c, closeAll, err := s.Clients(n)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closeAll()
	end := time.Now().Add(d)
	ran := 0
	var lat []time.Duration
	results := make(chan []time.Duration, n)
	fail := make(chan error, n)
	start := time.Now()
	for _, cl := range c {
		go func() {
			var mine []time.Duration
			for i := 0; time.Now().Before(end); i++ {
				t := time.Now()
				_, err := cl.Put(ctx, key(i%keys), "v")
				if err != nil && !errors.Is(err, rpctypes.ErrTimeout) {
					fail <- err
					return
				}
				mine = append(mine, time.Since(t)) // one that times out counts with the time it took
			}
			results <- mine
		}()
	}
	for range c {
		select {
		case mine := <-results:
			ran += len(mine)
			lat = append(lat, mine...)
		case err := <-fail:
			return measure.Sample{}, err
		}
	}
	return measure.Sample{PerSecond: float64(ran) / time.Since(start).Seconds(), P50: measure.Percentile(lat, 50), P99: measure.Percentile(lat, 99)}, nil
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
