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

// A Program serves an etcd API, and keeps its data in the bucket.
type Program struct {
	Name string
	argv func(cfg measure.Config, dir, endpoint, addr string) []string
}

// The programs that keep their data in a bucket. Both answer a write once it is stored there.
var (
	XBBucket = Program{"xb, S3", func(cfg measure.Config, _, endpoint, addr string) []string {
		return []string{cfg.XB, "etcd", "--journal", Journal(endpoint), "--listen", addr}
	}}
	// A single t4 also keeps a copy on its disk, which it reads from.
	T4Bucket = Program{"t4, S3", func(cfg measure.Config, dir, endpoint, addr string) []string {
		return []string{filepath.Join(cfg.Bin, "t4"), "run", "--data-dir", filepath.Join(dir, "t4"), "--listen", addr,
			"--metrics-addr", network.FreeAddr("127.0.0.1"), "--log-level", "error", "--wal-sync-upload", "true",
			"--s3-endpoint", "http://" + endpoint, "--s3-bucket", bucket, "--s3-prefix", "t4", "--s3-region", "us-east-1", "--s3-profile", "default"}
	}}
)

// Writer starts xb's etcd API on the bucket, round trips away from it.
func (b *Bucket) Writer(ctx context.Context, cfg measure.Config, dir, name string, r time.Duration) (*Store, func(), error) {
	return b.Serve(ctx, cfg, XBBucket, dir, name, r)
}

// Serve starts a program on the bucket, round trips away from it.
func (b *Bucket) Serve(ctx context.Context, cfg measure.Config, program Program, dir, name string, r time.Duration) (*Store, func(), error) {
	endpoint, closeDelay, err := measure.Delay(b.Addr, r)
	if err != nil {
		return nil, nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	p, err := measure.Launch(dir, name, b.Env, program.argv(cfg, dir, endpoint, addr)...)
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
