package store

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/objectstore"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Bucket is an object store with a distance of its own for each who uses it.
type Bucket struct {
	server *process.Process
	Addr   string   // HOST:PORT, with no distance
	Env    []string // credentials, for whoever uses it
}

// bucket is the name of the bucket.
const bucket = "xb-dev"

func openBucket(ctx context.Context, cfg measure.Config, dir string) (*Bucket, error) {
	account := objectstore.Account{Name: "bench", AccessKey: "bench", SecretKey: "bench-secret"}
	s := objectstore.Store{Dir: dir, Listen: network.FreeAddr("127.0.0.1"), Bucket: bucket, Accounts: []objectstore.Account{account}}
	argv, err := s.Argv(cfg.XB)
	if err != nil {
		return nil, err
	}
	b := &Bucket{Addr: s.Listen, Env: append(account.Env(), "AWS_EC2_METADATA_DISABLED=true")}
	if b.server, err = measure.Launch(dir, "store", nil, argv...); err != nil {
		return nil, err
	}
	err = measure.WaitFor(ctx, "the object store", func(ctx context.Context) error { return dial(ctx, b.Addr) })
	if err != nil {
		measure.End(b.server)
	}
	return b, err
}

// Journal is the URL of the journal in the bucket, for whoever reaches the store at endpoint.
func Journal(endpoint string) string {
	return objectstore.Store{Bucket: bucket, Listen: endpoint}.Journal("bench")
}

// Writer starts the etcd API on the bucket, round trips away from it.
func (b *Bucket) Writer(ctx context.Context, cfg measure.Config, dir, name string, r time.Duration) (*Store, func(), error) {
	endpoint, closeDelay, err := measure.Delay(b.Addr, r)
	if err != nil {
		return nil, nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	p, err := measure.Launch(dir, name, b.Env, cfg.XB, "etcd", "--journal", Journal(endpoint), "--listen", addr)
	if err != nil {
		closeDelay()
		return nil, nil, err
	}
	s := &Store{Servers: []*process.Process{p}, Endpoint: "http://" + addr}
	err = measure.WaitFor(ctx, name, func(ctx context.Context) error { return dial(ctx, addr) })
	if err != nil {
		s.Stop()
		closeDelay()
		return nil, nil, err
	}
	return s, func() { s.Stop(); closeDelay() }, nil
}

// InBucket calls f with an empty bucket, and a folder for whoever uses it.
func InBucket(ctx context.Context, cfg measure.Config, f func(b *Bucket, dir string) error) error {
	dir := filepath.Join(cfg.Dir, "s3")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	b, err := openBucket(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer measure.End(b.server)
	return f(b, dir)
}

func dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err
}
