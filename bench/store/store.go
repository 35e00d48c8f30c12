// Package store starts etcd APIs: those of xb, etcd and kine, with the data services below
// them. It never puts load on one.
package store

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Store is a running etcd API.
type Store struct {
	Servers  []*process.Process
	Endpoint string
	Created  int // Invariant: the keys that are numbered below it are there
}

// Stop ends the programs.
func (s *Store) Stop() {
	measure.End(s.Servers...)
}

// Clients are n etcd clients, over at most 100 connections.
func (s *Store) Clients(n int) ([]*clientv3.Client, func(), error) {
	conns := make([]*clientv3.Client, min(n, 100))
	closeAll := func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close() // nothing is under way on it
			}
		}
	}
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
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

// Ready waits until the store answers.
func (s *Store) Ready(ctx context.Context) error {
	c, closeAll, err := s.Clients(1)
	if err != nil {
		return err
	}
	defer closeAll()
	return measure.WaitFor(ctx, "the etcd API", func(ctx context.Context) error { _, err := c[0].Put(ctx, "up", ""); return err })
}
