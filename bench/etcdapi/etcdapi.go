// Package etcdapi puts load on etcd APIs, and measures xb beside etcd, kine and the distance
// to a bucket. It never starts a program of its own but one that stores nothing.
package etcdapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// load is one workload on an etcd API.
type load struct {
	name    string
	clients int
	total   int
	run     func(ctx context.Context, s *store.Store, clients []*clientv3.Client, total int) (measure.Sample, error)
}

const (
	keys      = 10_000
	valueSize = 256
)

func key(i int) string { return fmt.Sprintf("/bench/%08d", i) }

func puts(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	value := string(measure.RandomBytes(valueSize))
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		_, err := c[client].Put(ctx, key(i%keys), value)
		return err
	})
}

func gets(opts ...clientv3.OpOption) func(context.Context, *store.Store, []*clientv3.Client, int) (measure.Sample, error) {
	return func(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
		return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
			_, err := c[client].Get(ctx, key(rand.IntN(keys)), opts...)
			return err
		})
	}
}

// pages reads 500 keys of the 10,000, and learns how many remain.
func pages(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(keys/2)), clientv3.WithRange("/bench0"), clientv3.WithLimit(500))
		if err == nil && len(res.Kvs) != 500 {
			err = fmt.Errorf("page of %d keys", len(res.Kvs))
		}
		return err
	})
}

var loads = []load{
	{"put, 1 client", 1, 1_500, puts},
	{"put, 16 clients", 16, 15_000, puts},
	{"put, 128 clients", 128, 40_000, puts},
	{"put, 1,000 clients", 1000, 50_000, puts},
	{"get, linearizable, 1 client", 1, 8_000, gets()},
	{"get, linearizable, 128 clients", 128, 60_000, gets()},
	{"get, serializable, 128 clients", 128, 60_000, gets(clientv3.WithSerializable())},
	{"page of 500 with count, 16 clients", 16, 2_000, pages},
	seenBy(100, 800),
}

// BesideEtcd measures the etcd API on a file journal against etcd on the same disk.
func BesideEtcd(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	kinds := []store.Kind{store.XBFile, store.Etcd}
	rows := make([]measure.Comparison, len(loads))
	for i, l := range loads {
		rows[i] = *measure.NewComparison(l.name, store.XBFile.Name, store.Etcd.Name)
	}
	for round := range cfg.Rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "etcd-api: round %d, %s\n", round+1, k.Name)
			if err := roundOn(ctx, cfg, k, loads, rows); err != nil {
				return rows, fmt.Errorf("%s: %w", k.Name, err)
			}
		}
	}
	return rows, nil
}

// roundOn starts a store on an empty directory, and runs the loads on it, one after the other.
func roundOn(ctx context.Context, cfg measure.Config, k store.Kind, loads []load, rows []measure.Comparison) error {
	dir := filepath.Join(cfg.Dir, "store")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	s, err := k.Start(cfg, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	return loadsOn(ctx, cfg, s, k.Name, loads, rows)
}

// loadsOn runs the loads on a store of that name, one after the other.
func loadsOn(ctx context.Context, cfg measure.Config, s *store.Store, name string, loads []load, rows []measure.Comparison) error {
	for i, l := range loads {
		c, closeAll, err := s.Clients(l.clients)
		if err != nil {
			return err
		}
		err = measure.WaitFor(ctx, name, func(ctx context.Context) error { _, err := c[0].Get(ctx, "up"); return err })
		var m measure.Sample
		if err == nil {
			m, err = l.run(ctx, s, c, max(1, int(float64(l.total)*cfg.Scale)))
		}
		closeAll()
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		rows[i].Add(name, m)
	}
	return nil
}
