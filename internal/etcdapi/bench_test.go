package etcdapi_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

// BenchmarkCalls times calls through etcd's client, client and server in one
// process: directly, over a connection in memory, and over loopback.
func BenchmarkCalls(b *testing.B) {
	for name, connect := range map[string]func(b *testing.B) *clientv3.Client{"direct": inMemory(directly), "memory": inMemory(overGRPC), "loopback": overLoopback} {
		c := connect(b)
		value := string(make([]byte, 1024))
		b.Run(name+"/get", func(b *testing.B) {
			put1(b, c, "k", value)
			each(b, func() error { _, err := c.Get(b.Context(), "k"); return err })
		})
		b.Run(name+"/put", func(b *testing.B) {
			var n atomic.Int64
			each(b, func() error { _, err := c.Put(b.Context(), fmt.Sprint(n.Add(1)), value); return err })
		})
		b.Run(name+"/list1000", func(b *testing.B) {
			for i := range 1000 {
				put1(b, c, fmt.Sprintf("list/%04d", i), value)
			}
			each(b, func() error { _, err := c.Get(b.Context(), "list/", clientv3.WithPrefix()); return err })
		})
	}
}

func put1(b *testing.B, c *clientv3.Client, key, value string) {
	if _, err := c.Put(b.Context(), key, value); err != nil {
		b.Fatal(err)
	}
}

func each(b *testing.B, call func() error) {
	b.ReportAllocs()
	b.SetParallelism(8)
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := call(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// cpuTime is what this process has taken of the processors, its collector included.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func inMemory(via way) func(*testing.B) *clientv3.Client {
	return func(b *testing.B) *clientv3.Client { return newClient(b, via, nil) }
}

func overLoopback(b *testing.B) *clientv3.Client {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := etcdapi.New(etcdapi.Config{Replica: startReplica(b, memlog.New(memlog.Options{}).Open()), Logger: testLogger(b)})
	background(b, func(ctx context.Context) error { return server.Serve(ctx, lis) })
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{lis.Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}
