package etcdapi

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// seenBy is a load: it puts one key after the other, and waits until each of n watchers of the
// prefix has seen it. The watchers share at most 100 connections.
func seenBy(n, total int) load {
	return load{fmt.Sprintf("put until %d watchers saw it", n), min(n, 100), total, func(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		seen := make(chan struct{}, n)
		for i := range n {
			ch := c[i%len(c)].Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			<-ch
			go func() {
				for res := range ch {
					for range res.Events {
						seen <- struct{}{}
					}
				}
			}()
		}
		return measure.Drive(ctx, s.Servers, 1, total, func(ctx context.Context, _, i int) error {
			if _, err := c[0].Put(ctx, fmt.Sprintf("/watched/%d", i%100), "v"); err != nil {
				return err
			}
			for range n {
				select {
				case <-seen:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}}
}

var fanOut = []load{seenBy(1, 200), seenBy(100, 200), seenBy(1_000, 100), seenBy(10_000, 20)}

// FanOut measures up to 10,000 watchers, on a file beside etcd, and on a bucket 30 ms
// away.
func FanOut(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	const r, onS3 = 30 * time.Millisecond, "xb, S3"
	var rows, far []measure.Comparison
	for _, l := range fanOut {
		rows = append(rows, *measure.NewComparison(l.name, store.XBFile.Name, store.Etcd.Name))
		far = append(far, *measure.NewComparison(fmt.Sprintf("R = %v: %s", r, l.name), onS3))
	}
	for round := range cfg.Rounds {
		fmt.Fprintf(os.Stderr, "fan-out: round %d\n", round+1)
		for _, k := range []store.Kind{store.XBFile, store.Etcd} {
			if err := roundOn(ctx, cfg, k, fanOut, rows); err != nil {
				return rows, fmt.Errorf("%s: %w", k.Name, err)
			}
		}
		err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
			s, stop, err := b.Writer(ctx, cfg, dir, "writer", r)
			if err != nil {
				return err
			}
			defer stop()
			if err := s.Ready(ctx); err != nil {
				return err
			}
			return loadsOn(ctx, cfg, s, onS3, fanOut, far)
		})
		if err != nil {
			return append(rows, far...), fmt.Errorf("%s: %w", onS3, err)
		}
	}
	return append(rows, far...), nil
}
