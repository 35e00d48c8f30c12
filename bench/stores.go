package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// on is the etcd API of a program on a data service, which is started with it.
func on(name string, serve func(cfg config, dir string) (service, error), run func(cfg config, dir, addr string, s service) (*process.Process, error)) storeKind {
	return storeKind{name, func(cfg config, dir string) (*store, error) {
		var s service
		var servers []*process.Process
		if serve != nil {
			var err error
			if s, err = serve(cfg, dir); err != nil {
				return nil, err
			}
			servers = append(servers, s.server)
		}
		addr := network.FreeAddr("127.0.0.1")
		p, err := run(cfg, dir, addr, s)
		if err != nil {
			end(servers...)
			return nil, err
		}
		return &store{servers: append([]*process.Process{p}, servers...), endpoint: "http://" + addr}, nil
	}}
}

func xbOn(journal func(s service) string) func(cfg config, dir, addr string, s service) (*process.Process, error) {
	return func(cfg config, dir, addr string, s service) (*process.Process, error) {
		return launch(dir, "xb", nil, cfg.xb, "etcd", "--journal", journal(s), "--listen", addr)
	}
}

func kineOn(endpoint func(dir string, s service) string) func(cfg config, dir, addr string, s service) (*process.Process, error) {
	return func(cfg config, dir, addr string, s service) (*process.Process, error) {
		return launch(dir, "kine", nil, filepath.Join(cfg.bin, "kine"), "--listen-address", "tcp://"+addr, "--metrics-bind-address", "0", "--endpoint", endpoint(dir, s))
	}
}

func databases(_ config, dir string) (service, error) { return postgreSQL(dir) }

var (
	xbPostgres = on("xb, PostgreSQL", databases, xbOn(func(s service) string { return "postgres://postgres@" + s.addr + "/postgres" }))
	xbNATS     = on("xb, NATS", jetStream, xbOn(func(s service) string { return "nats://" + s.addr + "/bench?synced=true" }))
	// Its default is _synchronous=NORMAL, with which a commit that was acknowledged can be lost.
	kineSQLite = on("kine, SQLite", nil, kineOn(func(dir string, _ service) string {
		return "sqlite://" + filepath.Join(dir, "state.db") + "?_journal_mode=WAL&_busy_timeout=30000&_synchronous=FULL&_txlock=immediate&_stmt_cache_size=20&cache=shared"
	}))
	kinePostgres = on("kine, PostgreSQL", databases, kineOn(func(_ string, s service) string {
		return "postgres://postgres:any@" + s.addr + "/kine?sslmode=disable"
	}))
	kineNATS = on("kine, NATS", jetStream, kineOn(func(_ string, s service) string { return "nats://" + s.addr }))
)

// storageLoads are what API servers ask of a store. kine understands no other transactions, and
// no puts.
var storageLoads = []storeLoad{
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
func creates(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	value, from := string(randomBytes(valueSize)), s.created
	s.created += total
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
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
func updates(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	value := string(randomBytes(valueSize))
	last := make([]int64, len(c))
	own := func(client int) string { return fmt.Sprintf("/updated/%08d", client) }
	for client := range c {
		var err error
		if last[client], err = create(ctx, c[client], own(client), value); err != nil {
			return sample{}, err
		}
	}
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
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

func getsOfCreated(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(s.created)))
		return held(res, err, 1)
	})
}

func pagesOfCreated(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(s.created-500)), clientv3.WithRange(clientv3.GetPrefixRangeEnd("/bench/")), clientv3.WithLimit(500))
		return held(res, err, 500)
	})
}

// lists reads all keys in one answer.
func lists(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, "/bench/", clientv3.WithPrefix())
		return held(res, err, s.created)
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
func createsSeen(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := c[0].Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-ch
	return drive(ctx, s.servers, 1, total, func(ctx context.Context, _, i int) error {
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

// stores measures, with what API servers ask, xb beside what
// keeps its data in the same sort of place.
func stores(ctx context.Context, cfg config) ([]comparison, error) {
	var rows []comparison
	for _, pair := range [][2]storeKind{{xbFile, etcd}, {xbFile, kineSQLite}, {xbPostgres, kinePostgres}, {xbNATS, kineNATS}} {
		these := make([]comparison, len(storageLoads))
		for i, l := range storageLoads {
			these[i] = *newComparison(l.name, pair[0].name, pair[1].name)
		}
		for round := range cfg.rounds {
			for _, k := range pair {
				fmt.Fprintf(os.Stderr, "stores: round %d, %s\n", round+1, k.name)
				if err := storeRound(ctx, cfg, k, storageLoads, these); err != nil {
					return append(rows, these...), fmt.Errorf("%s: %w", k.name, err)
				}
			}
		}
		rows = append(rows, these...)
	}
	return rows, nil
}
