package store

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Bucket is an object store with a distance of its own for each who uses it.
type Bucket struct {
	server *process.Process
	Addr   string   // HOST:PORT, with no distance
	Env    []string // credentials, for whoever uses it
}

func openBucket(ctx context.Context, cfg measure.Config, dir string) (*Bucket, error) {
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
	b := &Bucket{Addr: network.FreeAddr("127.0.0.1"), Env: []string{
		"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench-secret", "AWS_EC2_METADATA_DISABLED=true",
	}}
	b.server, err = measure.Launch(dir, "store", nil, cfg.XB, "dev", "store", "--dir", filepath.Join(dir, "objects"), "--accounts", file, "--listen", b.Addr)
	if err != nil {
		return nil, err
	}
	err = measure.WaitFor(ctx, "the object store", func(ctx context.Context) error { return dial(ctx, b.Addr) })
	if err != nil {
		measure.End(b.server)
	}
	return b, err
}

// Writer starts the etcd API on the bucket, round trips away from it.
func (b *Bucket) Writer(ctx context.Context, cfg measure.Config, dir, name string, r time.Duration) (*Store, func(), error) {
	endpoint, closeDelay, err := measure.Delay(b.Addr, r)
	if err != nil {
		return nil, nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	p, err := measure.Launch(dir, name, b.Env, cfg.XB, "etcd", "--journal", "s3://xb-dev/bench?region=us-east-1&endpoint=http://"+endpoint, "--listen", addr)
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
