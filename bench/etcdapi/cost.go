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

// Costs counts the requests that operations cost at a bucket 30 ms away, and prints a table.
func Costs(ctx context.Context, cfg measure.Config, out io.Writer) error {
	const r = 30 * time.Millisecond
	fmt.Fprintf(out, "\n### cost\n\n| workload, R = %v | PUTs and LISTs for 1,000 | GETs for 1,000 | dollars a million |\n|---|---:|---:|---:|\n", r)
	row := func(name string, c store.Cost) {
		fmt.Fprintf(out, "| %s | %.0f | %.0f | %.2f |\n", name, c.Puts*1000, c.Gets*1000, c.Dollars()*1e6)
	}
	err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
		requests, stop := b.Count()
		defer stop()
		s, stopWriter, err := b.Writer(ctx, cfg, dir, "writer", r)
		if err != nil {
			return err
		}
		defer stopWriter()
		if err := s.Ready(ctx); err != nil {
			return err
		}
		for _, l := range []load{
			{"put, 1 client", 1, 300, puts},
			{"put, 16 clients", 16, 4_000, puts},
			{"put, 100 clients", 100, 10_000, puts},
			{"put, 1,000 clients", 1000, 40_000, puts},
			{"update, 16 clients", 16, 4_000, updates},
			{"get, linearizable, 1 client", 1, 300, gets()},
			{"get, linearizable, 100 clients", 100, 10_000, gets()},
			{"get, serializable, 100 clients", 100, 10_000, gets(clientv3.WithSerializable())},
		} {
			before := requests.Cost()
			n := max(1, int(float64(l.total)*cfg.Scale))
			if err := runOn(ctx, s, l, n); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			row(l.name, requests.Cost().Since(before, n))
		}
		before := requests.Cost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
		idle := requests.Cost().Since(before, 1)
		fmt.Fprintf(out, "\nAn idle server sends %.0f PUTs and LISTs and %.0f GETs a minute: $%.2f a month.\n", idle.Puts, idle.Gets, idle.Dollars()*60*730)
		return nil
	})
	if err != nil {
		return err
	}
	return store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
		requests, stop := b.Count()
		defer stop()
		before := requests.Cost()
		all, err := busyTogether(ctx, cfg, b, dir, slices.Repeat([]time.Duration{r}, 8), 16, 20*time.Second)
		if err != nil {
			return err
		}
		n := 0
		for _, w := range all {
			n += len(w)
		}
		row("put, 8 writers, 16 clients each", requests.Cost().Since(before, n))
		return nil
	})
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
