package etcdapi

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// costLoads are what is counted.
var costLoads = []load{
	{"put, 1 client", 1, 300, puts},
	{"put, 16 clients", 16, 4_000, puts},
	{"put, 100 clients", 100, 10_000, puts},
	{"put, 1,000 clients", 1000, 40_000, puts},
	{"update, 16 clients", 16, 4_000, updates},
	{"get, linearizable, 1 client", 1, 300, gets()},
	{"get, linearizable, 100 clients", 100, 10_000, gets()},
	{"get, serializable, 100 clients", 100, 10_000, gets(clientv3.WithSerializable())},
}

// Costs counts the requests that operations cost at a bucket 30 ms away, and prints a table.
func Costs(ctx context.Context, cfg measure.Config, out io.Writer) error {
	const r = 30 * time.Millisecond
	fmt.Fprintf(out, "\n### cost\n\n| workload, R = %v | system | PUTs and LISTs for 1,000 | GETs for 1,000 | dollars a million |\n|---|---|---:|---:|---:|\n", r)
	row := func(load, system string, c store.Cost) {
		fmt.Fprintf(out, "| %s | %s | %.0f | %.0f | %.2f |\n", load, system, c.Puts*1000, c.Gets*1000, c.Dollars()*1e6)
	}
	idle := map[string]store.Cost{}
	for _, p := range []store.Program{store.XBBucket, store.T4Bucket} {
		if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) (err error) {
			idle[p.Name], err = costOf(ctx, cfg, b, p, dir, r, row)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
		requests, stop := b.Count()
		defer stop()
		before := requests.Cost()
		all, err := busyTogether(ctx, cfg, b, dir, slices.Repeat([]time.Duration{r}, 8), 16, 20*time.Second, false)
		if err != nil {
			return err
		}
		n := 0
		for _, w := range all {
			n += len(w)
		}
		row("put, 8 writers, 16 clients each", store.XBBucket.Name, requests.Cost().Since(before, n))
		return nil
	}); err != nil {
		return err
	}
	for name, c := range idle {
		fmt.Fprintf(out, "\n%s: an idle server sends %.0f PUTs and LISTs and %.0f GETs a minute: $%.2f a month.\n", name, c.Puts, c.Gets, c.Dollars()*60*730)
	}
	return nil
}

// costOf counts the requests that a program sends to a bucket for each load, and returns those
// of a minute without load.
func costOf(ctx context.Context, cfg measure.Config, b *store.Bucket, p store.Program, dir string, r time.Duration, row func(load, system string, c store.Cost)) (store.Cost, error) {
	requests, stop := b.Count()
	defer stop()
	s, stopServer, err := b.Serve(ctx, cfg, p, dir, "server", r)
	if err != nil {
		return store.Cost{}, err
	}
	defer stopServer()
	if err := s.Ready(ctx); err != nil {
		return store.Cost{}, err
	}
	for _, l := range costLoads {
		before := requests.Cost()
		n := max(1, int(float64(l.total)*cfg.Scale))
		if err := runOn(ctx, s, l, n); err != nil {
			return store.Cost{}, fmt.Errorf("%s: %w", l.name, err)
		}
		row(l.name, p.Name, requests.Cost().Since(before, n))
	}
	before := requests.Cost()
	select {
	case <-ctx.Done():
		return store.Cost{}, ctx.Err()
	case <-time.After(time.Minute):
	}
	return requests.Cost().Since(before, 1), nil
}

// runOn runs a load on a store that serves.
func runOn(ctx context.Context, s *store.Store, l load, total int) error {
	c, closeAll, err := s.Clients(l.clients)
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = l.run(ctx, s, c, total)
	return err
}
