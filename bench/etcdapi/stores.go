package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// storageLoads are what API servers ask of a store. kine understands no other transactions, and
// no puts.
var storageLoads = []load{
	{"create, 1 client", 1, 1_000, creates},
	{"create, 16 clients", 16, 9_000, creates},
	{"create, 128 clients", 128, 90_000, creates},
	{"update, 16 clients", 16, 10_000, updates},
	{"get, linearizable, 16 clients", 16, 20_000, getsOfCreated},
	{"page of 500 with count, 4 clients", 4, 1_000, pagesOfCreated},
	{"list of all keys, 1 client", 1, 10, lists},
	{"create until a watch saw it", 1, 400, createsSeen},
}

// creates creates keys, on from those that were created before.
func creates(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	value, from := string(measure.RandomBytes(valueSize)), s.Created
	s.Created += total
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		_, err := create(ctx, c[client], key(from+i), value)
		return err
	})
}

// create returns the revision at which it created a key that must not be there.
func create(ctx context.Context, c *clientv3.Client, key, value string) (int64, error) {
	res, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return 0, err
	}
	if !res.Succeeded {
		return 0, fmt.Errorf("%s is there already", key)
	}
	return res.Header.Revision, nil
}

// updates has each client replace a key of its own, if it is as that client left it.
func updates(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	value := string(measure.RandomBytes(valueSize))
	last := make([]int64, len(c))
	own := func(client int) string { return fmt.Sprintf("/updated/%08d", client) }
	for client := range c {
		var err error
		if last[client], err = create(ctx, c[client], own(client), value); err != nil {
			return measure.Sample{}, err
		}
	}
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		key := own(client)
		res, err := c[client].Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", last[client])).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
		if err == nil && !res.Succeeded {
			err = errors.New("a key that only one client writes was changed by another")
		}
		if err != nil {
			return err
		}
		last[client] = res.Header.Revision
		return nil
	})
}

func getsOfCreated(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(s.Created)))
		return held(res, err, 1)
	})
}

func pagesOfCreated(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(s.Created-500)), clientv3.WithRange(clientv3.GetPrefixRangeEnd("/bench/")), clientv3.WithLimit(500))
		return held(res, err, 500)
	})
}

// lists reads all keys in one answer.
func lists(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	return measure.Drive(ctx, s.Servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, "/bench/", clientv3.WithPrefix())
		return held(res, err, s.Created)
	})
}

// held is an error unless a read succeeded and found n keys.
func held(res *clientv3.GetResponse, err error, n int) error {
	if err == nil && len(res.Kvs) != n {
		return fmt.Errorf("%d keys are found, want %d", len(res.Kvs), n)
	}
	return err
}

// createsSeen creates one key after the other, and waits until a watch saw it.
func createsSeen(ctx context.Context, s *store.Store, c []*clientv3.Client, total int) (measure.Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := c[0].Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-ch
	return measure.Drive(ctx, s.Servers, 1, total, func(ctx context.Context, _, i int) error {
		key := fmt.Sprintf("/watched/%08d", i)
		if _, err := create(ctx, c[0], key, "v"); err != nil {
			return err
		}
		for {
			select {
			case res := <-ch:
				if err := res.Err(); err != nil {
					return err
				}
				for _, e := range res.Events {
					if string(e.Kv.Key) == key {
						return nil
					}
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// Stores measures, with what API servers ask, xb beside what
// keeps its data in the same sort of place.
func Stores(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	var rows []measure.Comparison
	for _, pair := range [][2]store.Kind{{store.XBFile, store.Etcd}, {store.XBFile, store.KineSQLite}, {store.XBPostgres, store.KinePostgres}, {store.XBNATS, store.KineNATS}} {
		these := make([]measure.Comparison, len(storageLoads))
		for i, l := range storageLoads {
			these[i] = *measure.NewComparison(l.name, pair[0].Name, pair[1].Name)
		}
		for round := range cfg.Rounds {
			for _, k := range pair {
				fmt.Fprintf(os.Stderr, "stores: round %d, %s\n", round+1, k.Name)
				if err := roundOn(ctx, cfg, k, storageLoads, these); err != nil {
					return append(rows, these...), fmt.Errorf("%s: %w", k.Name, err)
				}
			}
		}
		rows = append(rows, these...)
	}
	return rows, nil
}

// bucketLoads are storageLoads with as many operations as a bucket that is far away has time for.
var bucketLoads = []load{
	{"create, 1 client", 1, 200, creates},
	{"create, 16 clients", 16, 3_000, creates},
	{"create, 128 clients", 128, 20_000, creates},
	{"update, 16 clients", 16, 2_000, updates},
	{"get, linearizable, 16 clients", 16, 4_000, getsOfCreated},
	{"page of 500 with count, 4 clients", 4, 400, pagesOfCreated},
	{"list of all keys, 1 client", 1, 10, lists},
	{"create until a watch saw it", 1, 100, createsSeen},
}

// StoresInBucket measures, with what API servers ask, xb beside t4, at distances from a bucket
// in which both store each write before they answer it.
func StoresInBucket(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	var rows []measure.Comparison
	for _, r := range []time.Duration{0, 30 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond} {
		these := make([]measure.Comparison, len(bucketLoads))
		for i, l := range bucketLoads {
			these[i] = *measure.NewComparison(fmt.Sprintf("R = %v: %s", r, l.name), store.XBBucket.Name, store.T4Bucket.Name)
		}
		for round := range cfg.Rounds {
			for _, p := range []store.Program{store.XBBucket, store.T4Bucket} {
				fmt.Fprintf(os.Stderr, "bucket-stores: R = %v, round %d, %s\n", r, round+1, p.Name)
				if err := store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
					s, stop, err := b.Serve(ctx, cfg, p, dir, "server", r)
					if err != nil {
						return err
					}
					defer stop()
					return loadsOn(ctx, cfg, s, p.Name, bucketLoads, these)
				}); err != nil {
					return append(rows, these...), fmt.Errorf("%s: %w", p.Name, err)
				}
			}
		}
		rows = append(rows, these...)
	}
	return rows, nil
}
