package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// answerOnly is the argument, with an address after it, by which this program
// is the server that stores nothing.
const answerOnly = "answer-only"

// nothing is what a machine lets etcdctl ask for at most: an etcd API that
// answers writes and stores nothing.
var nothing = storeKind{"a server that stores nothing", func(_ config, dir string) (*store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	s, err := launch(dir, "nothing", nil, self, answerOnly, addr)
	return &store{servers: []*process.Process{s}, endpoint: "http://" + addr}, err
}}

// checkPerf has etcdctl judge with the load l: 500 clients that are to write
// 8,000 values a second for a minute, and 7,200 to pass. Their limiter has a
// burst of one, so that what is late once is lost.
func checkPerf(ctx context.Context, cfg config) ([]comparison, error) {
	kinds := []storeKind{xbFile, nothing, etcd}
	row := newComparison("etcdctl check perf --load l, wants 7,200 a second")
	for _, k := range kinds {
		row.Systems = append(row.Systems, k.name)
	}
	for round := range cfg.rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "check-perf: round %d, %s\n", round+1, k.name)
			s, err := checkPerfOf(ctx, cfg, k)
			if err != nil {
				return []comparison{*row}, fmt.Errorf("%s: %w", k.name, err)
			}
			row.add(k.name, s)
		}
	}
	return []comparison{*row}, nil
}

var throughput = regexp.MustCompile(`Throughput (?:is|too low:) (\d+) writes/s`)

// checkPerfOf also says so if etcdctl is not content: that is no error here.
func checkPerfOf(ctx context.Context, cfg config, kind storeKind) (sample, error) {
	dir := filepath.Join(cfg.dir, "check-perf")
	if err := os.RemoveAll(dir); err != nil {
		return sample{}, err
	}
	s, err := kind.start(cfg, dir)
	if err != nil {
		return sample{}, err
	}
	defer s.stop()
	if err := s.await(ctx); err != nil {
		return sample{}, err
	}
	before, err := process.UsageOf(s.servers...)
	if err != nil {
		return sample{}, err
	}
	const minute = 60 // for which it writes
	said, failed := exec.CommandContext(ctx, filepath.Join(cfg.bin, "etcdctl"), "--endpoints", s.endpoint, "check", "perf", "--load", "l").CombinedOutput()
	found := throughput.FindSubmatch(said)
	if found == nil {
		return sample{}, errors.Join(fmt.Errorf("etcdctl said %q", said), failed)
	}
	rate, err := strconv.Atoi(string(found[1]))
	if err != nil || rate == 0 {
		return sample{}, fmt.Errorf("etcdctl said %q", found[0])
	}
	after, err := process.UsageOf(s.servers...)
	return sample{
		PerSecond: float64(rate), CPUPerOp: (after.CPU - before.CPU) / time.Duration(rate*minute),
		PeakMemory: after.Peak, Written: after.Written - before.Written,
	}, err
}

// await waits until the API answers.
func (s *store) await(ctx context.Context) error {
	c, closeAll, err := s.clients(1)
	if err != nil {
		return err
	}
	defer closeAll()
	return waitFor(ctx, "an etcd API", func(ctx context.Context) error {
		_, err := c[0].Get(ctx, key(0))
		return err
	})
}

// serveNothing answers at addr until the process is told to stop.
func serveNothing(addr string) error {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	pb.RegisterKVServer(g, noStore{})
	return g.Serve(lis)
}

// noStore knows of nothing, and takes everything.
type noStore struct{ pb.UnimplementedKVServer }

func (noStore) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (noStore) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (noStore) DeleteRange(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}
