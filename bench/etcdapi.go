package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// store is a running etcd API.
type store struct {
	servers  []*process.Process
	endpoint string
	created  int // Invariant: the keys that are numbered below it are there
}

// A storeKind starts an etcd API on an empty directory.
type storeKind struct {
	name  string
	start func(cfg config, dir string) (*store, error)
}

var (
	xbFile = storeKind{"xb, file", func(cfg config, dir string) (*store, error) {
		addr := network.FreeAddr("127.0.0.1")
		s, err := launch(dir, "xb", nil, cfg.xb, "etcd", "--journal", "file://"+filepath.Join(dir, "journal"), "--listen", addr)
		return &store{servers: []*process.Process{s}, endpoint: "http://" + addr}, err
	}}
	etcd = storeKind{"etcd", func(cfg config, dir string) (*store, error) {
		client, peer := "http://"+network.FreeAddr("127.0.0.1"), "http://"+network.FreeAddr("127.0.0.1")
		s, err := launch(dir, "etcd", nil, filepath.Join(cfg.bin, "etcd"), "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--quota-backend-bytes", fmt.Sprint(8<<30))
		return &store{servers: []*process.Process{s}, endpoint: client}, err
	}}
)

func (s *store) stop() {
	end(s.servers...)
}

// clients are n etcd clients, over at most 100 connections.
func (s *store) clients(n int) ([]*clientv3.Client, func(), error) {
	conns := make([]*clientv3.Client, min(n, 100))
	closeAll := func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns[i] = c
	}
	out := make([]*clientv3.Client, n)
	for i := range out {
		out[i] = conns[i%len(conns)]
	}
	return out, closeAll, nil
}

// storeLoad is one workload on an etcd API.
type storeLoad struct {
	name    string
	clients int
	total   int
	run     func(ctx context.Context, s *store, clients []*clientv3.Client, total int) (sample, error)
}

const (
	keys      = 10_000
	valueSize = 256
)

func key(i int) string { return fmt.Sprintf("/bench/%08d", i) }

func puts(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	value := string(randomBytes(valueSize))
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
		_, err := c[client].Put(ctx, key(i%keys), value)
		return err
	})
}

func gets(opts ...clientv3.OpOption) func(context.Context, *store, []*clientv3.Client, int) (sample, error) {
	return func(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
		return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
			_, err := c[client].Get(ctx, key(rand.IntN(keys)), opts...)
			return err
		})
	}
}

// pages reads 500 keys of the 10,000, and learns how many remain.
func pages(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	return drive(ctx, s.servers, len(c), total, func(ctx context.Context, client, i int) error {
		res, err := c[client].Get(ctx, key(rand.IntN(keys/2)), clientv3.WithRange("/bench0"), clientv3.WithLimit(500))
		if err == nil && len(res.Kvs) != 500 {
			err = fmt.Errorf("page of %d keys", len(res.Kvs))
		}
		return err
	})
}

// watches puts one key after the other and waits until all of 100 watchers
// on the prefix, on streams of their own connections, have seen it.
func watches(ctx context.Context, s *store, c []*clientv3.Client, total int) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan struct{}, len(c))
	for _, cl := range c {
		ch := cl.Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-ch
		go func() {
			for res := range ch {
				for range res.Events {
					seen <- struct{}{}
				}
			}
		}()
	}
	return drive(ctx, s.servers, 1, total, func(ctx context.Context, _, i int) error {
		if _, err := c[0].Put(ctx, fmt.Sprintf("/watched/%d", i%100), "v"); err != nil {
			return err
		}
		for range c {
			select {
			case <-seen:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

var storeLoads = []storeLoad{
	{"put, 1 client", 1, 1_500, puts},
	{"put, 16 clients", 16, 15_000, puts},
	{"put, 128 clients", 128, 40_000, puts},
	{"put, 1,000 clients", 1000, 50_000, puts},
	{"get, linearizable, 1 client", 1, 8_000, gets()},
	{"get, linearizable, 128 clients", 128, 60_000, gets()},
	{"get, serializable, 128 clients", 128, 60_000, gets(clientv3.WithSerializable())},
	{"page of 500 with count, 16 clients", 16, 2_000, pages},
	{"put until 100 watchers saw it", 100, 800, watches},
}

// etcdAPI measures the etcd API on a file journal against etcd on the same disk.
func etcdAPI(ctx context.Context, cfg config) ([]comparison, error) {
	kinds := []storeKind{xbFile, etcd}
	rows := make([]comparison, len(storeLoads))
	for i, l := range storeLoads {
		rows[i] = *newComparison(l.name, xbFile.name, etcd.name)
	}
	for round := range cfg.rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "etcd-api: round %d, %s\n", round+1, k.name)
			if err := storeRound(ctx, cfg, k, storeLoads, rows); err != nil {
				return rows, fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	return rows, nil
}

// storeRound starts a store on an empty directory, and runs the loads on it, one after the other.
func storeRound(ctx context.Context, cfg config, k storeKind, loads []storeLoad, rows []comparison) error {
	dir := filepath.Join(cfg.dir, "store")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	s, err := k.start(cfg, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	for i, l := range loads {
		c, closeAll, err := s.clients(l.clients)
		if err != nil {
			return err
		}
		err = waitFor(ctx, k.name, func(ctx context.Context) error { _, err := c[0].Get(ctx, "up"); return err })
		var m sample
		if err == nil {
			m, err = l.run(ctx, s, c, max(1, int(float64(l.total)*cfg.scale)))
		}
		closeAll()
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		rows[i].add(k.name, m)
	}
	return nil
}

func randomBytes(n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
}
