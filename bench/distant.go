package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// bucket is an object store with a distance of its own for each who uses it.
type bucket struct {
	server *process.Process
	addr   string
	env    []string
}

func openBucket(ctx context.Context, cfg config, dir string) (*bucket, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	accounts, err := json.Marshal([]map[string]string{{"name": "bench", "accessKey": "bench", "secretKey": "bench-secret"}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "accounts.json")
	if err := os.WriteFile(file, accounts, 0o600); err != nil {
		return nil, err
	}
	b := &bucket{addr: network.FreeAddr("127.0.0.1"), env: []string{
		"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench-secret", "AWS_EC2_METADATA_DISABLED=true",
	}}
	b.server, err = launch(dir, "store", nil, cfg.xb, "dev", "store", "--dir", filepath.Join(dir, "objects"), "--accounts", file, "--listen", b.addr)
	if err != nil {
		return nil, err
	}
	err = waitFor(ctx, "the object store", func(ctx context.Context) error { return dial(ctx, b.addr) })
	if err != nil {
		end(b.server)
	}
	return b, err
}

// writer starts the etcd API on the bucket, round trips away from it.
func (b *bucket) writer(ctx context.Context, cfg config, dir, name string, r time.Duration) (*store, func(), error) {
	endpoint, closeDelay, err := delay(b.addr, r)
	if err != nil {
		return nil, nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	p, err := launch(dir, name, b.env, cfg.xb, "etcd", "--journal", "s3://xb-dev/bench?region=us-east-1&endpoint=http://"+endpoint, "--listen", addr)
	if err != nil {
		closeDelay()
		return nil, nil, err
	}
	s := &store{servers: []*process.Process{p}, endpoint: "http://" + addr}
	err = waitFor(ctx, name, func(ctx context.Context) error { return dial(ctx, addr) })
	if err != nil {
		s.stop()
		closeDelay()
		return nil, nil, err
	}
	return s, func() { s.stop(); closeDelay() }, nil
}

// s3Latency measures writes on an object store that is 30 and 80 ms away. There
// is nothing to hold it against but the distance itself, so the figures stand
// alone: the round trip is in the workload's name.
func s3Latency(ctx context.Context, cfg config) ([]comparison, error) {
	const name = "xb, S3"
	var rows []*comparison
	for _, r := range []time.Duration{30 * time.Millisecond, 80 * time.Millisecond} {
		loads := []struct {
			name    string
			clients int
			total   int
		}{{"put, 1 client", 1, 60}, {"put, 16 clients", 16, 600}, {"put, 100 clients", 100, 4000}, {"put, 1,000 clients", 1000, 20000}}
		these := make([]*comparison, len(loads))
		for i, l := range loads {
			these[i] = newComparison(fmt.Sprintf("R = %v: %s", r, l.name), name)
		}
		several := []*comparison{
			newComparison(fmt.Sprintf("R = %v: 8 writers, 16 clients each", r), name),
			newComparison(fmt.Sprintf("R = %v: a writer 5 R away, beside a busy one", r), name),
			newComparison(fmt.Sprintf("R = %v: put until a watch at another server saw it", r), name),
		}
		rows = append(append(rows, these...), several...)
		for round := range cfg.rounds {
			fmt.Fprintf(os.Stderr, "s3: R = %v, round %d\n", r, round+1)
			if err := inBucket(ctx, cfg, func(b *bucket, dir string) error {
				s, stop, err := b.writer(ctx, cfg, dir, "writer", r)
				if err != nil {
					return err
				}
				defer stop()
				for i, l := range loads {
					m, err := putOn(ctx, s, l.clients, max(1, int(float64(l.total)*cfg.scale)))
					if err != nil {
						return err
					}
					these[i].add(name, m)
				}
				m, err := seenAtAnother(ctx, cfg, b, dir, s, r)
				several[2].add(name, m)
				return err
			}); err != nil {
				return values(rows), err
			}
			if err := inBucket(ctx, cfg, func(b *bucket, dir string) error {
				m, err := manyWriters(ctx, cfg, b, dir, []time.Duration{r, r, r, r, r, r, r, r}, 16)
				several[0].add(name, m)
				return err
			}); err != nil {
				return values(rows), err
			}
			if err := inBucket(ctx, cfg, func(b *bucket, dir string) error {
				m, err := manyWriters(ctx, cfg, b, dir, []time.Duration{5 * r, r}, 16)
				several[1].add(name, m)
				return err
			}); err != nil {
				return values(rows), err
			}
		}
	}
	return values(rows), nil
}

func inBucket(ctx context.Context, cfg config, f func(b *bucket, dir string) error) error {
	dir := filepath.Join(cfg.dir, "s3")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	b, err := openBucket(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer end(b.server)
	return f(b, dir)
}

func putOn(ctx context.Context, s *store, n, total int) (sample, error) {
	c, closeAll, err := s.clients(n)
	if err != nil {
		return sample{}, err
	}
	defer closeAll()
	if err := s.ready(ctx); err != nil {
		return sample{}, err
	}
	return puts(ctx, s, c, total)
}

// ready waits until the store answers.
func (s *store) ready(ctx context.Context) error {
	c, closeAll, err := s.clients(1)
	if err != nil {
		return err
	}
	defer closeAll()
	return waitFor(ctx, "the etcd API", func(ctx context.Context) error { _, err := c[0].Put(ctx, "up", ""); return err })
}

// manyWriters runs writers at the distances given on one journal, all busy for
// ten seconds, and measures what the first gets, beside the sum's throughput.
func manyWriters(ctx context.Context, cfg config, b *bucket, dir string, distances []time.Duration, clients int) (sample, error) {
	type result struct {
		m   sample
		err error
	}
	results := make([]result, len(distances))
	done := make(chan int, len(distances))
	var all []*store
	for i, r := range distances {
		s, stop, err := b.writer(ctx, cfg, dir, fmt.Sprintf("writer-%d", i), r)
		if err != nil {
			return sample{}, err
		}
		defer stop()
		all = append(all, s)
	}
	for _, s := range all { // a far one takes seconds to open the journal
		if err := s.ready(ctx); err != nil {
			return sample{}, err
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
			return sample{}, results[i].err
		}
		sum += results[i].m.PerSecond
	}
	m := results[0].m
	m.PerSecond = sum
	return m, nil
}

// putsFor keeps n clients busy for a while.
func putsFor(ctx context.Context, s *store, n int, d time.Duration) (sample, error) {
	c, closeAll, err := s.clients(n)
	if err != nil {
		return sample{}, err
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
			return sample{}, err
		}
	}
	return sample{PerSecond: float64(ran) / time.Since(start).Seconds(), P50: percentile(lat, 50), P99: percentile(lat, 99)}, nil
}

// seenAtAnother measures from the start of a put at one server to its event at
// another, both as far from the store, found by polling alone.
func seenAtAnother(ctx context.Context, cfg config, b *bucket, dir string, s *store, r time.Duration) (sample, error) {
	other, stop, err := b.writer(ctx, cfg, dir, "watcher", r)
	if err != nil {
		return sample{}, err
	}
	defer stop()
	w, closeWatch, err := other.clients(1)
	if err != nil {
		return sample{}, err
	}
	defer closeWatch()
	p, closePut, err := s.clients(1)
	if err != nil {
		return sample{}, err
	}
	defer closePut()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := w[0].Watch(ctx, "/seen", clientv3.WithCreatedNotify())
	<-ch
	return drive(ctx, nil, 1, max(1, int(40*cfg.scale)), func(ctx context.Context, _, i int) error {
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
