package etcdapi

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

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// AnswerOnly is the argument, with an address after it, by which this program
// is the server that stores nothing.
const AnswerOnly = "answer-only"

// nothing is what a machine lets etcdctl ask for at most: an etcd API that
// answers writes and stores nothing.
var nothing = store.Kind{Name: "a server that stores nothing", Start: func(_ measure.Config, dir string) (*store.Store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr := network.FreeAddr("127.0.0.1")
	s, err := measure.Launch(dir, "nothing", nil, self, AnswerOnly, addr)
	return &store.Store{Servers: []*process.Process{s}, Endpoint: "http://" + addr}, err
}}

// CheckPerf has etcdctl judge with the load l: 500 clients that are to write
// 8,000 values a second for a minute, and 7,200 to pass. Their limiter has a
// burst of one, so that what is late once is lost.
func CheckPerf(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	kinds := []store.Kind{store.XBFile, nothing, store.Etcd}
	row := measure.NewComparison("etcdctl check perf --load l, wants 7,200 a second")
	for _, k := range kinds {
		row.Systems = append(row.Systems, k.Name)
	}
	for round := range cfg.Rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "check-perf: round %d, %s\n", round+1, k.Name)
			s, err := checkPerfOf(ctx, cfg, k)
			if err != nil {
				return []measure.Comparison{*row}, fmt.Errorf("%s: %w", k.Name, err)
			}
			row.Add(k.Name, s)
		}
	}
	return []measure.Comparison{*row}, nil
}

var throughput = regexp.MustCompile(`Throughput (?:is|too low:) (\d+) writes/s`)

// checkPerfOf also says so if etcdctl is not content: that is no error here.
func checkPerfOf(ctx context.Context, cfg measure.Config, kind store.Kind) (measure.Sample, error) {
	dir := filepath.Join(cfg.Dir, "check-perf")
	if err := os.RemoveAll(dir); err != nil {
		return measure.Sample{}, err
	}
	s, err := kind.Start(cfg, dir)
	if err != nil {
		return measure.Sample{}, err
	}
	defer s.Stop()
	if err := s.Ready(ctx); err != nil {
		return measure.Sample{}, err
	}
	before, err := process.UsageOf(s.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	const minute = 60 // for which it writes
	said, failed := exec.CommandContext(ctx, filepath.Join(cfg.Bin, "etcdctl"), "--endpoints", s.Endpoint, "check", "perf", "--load", "l").CombinedOutput()
	found := throughput.FindSubmatch(said)
	if found == nil {
		return measure.Sample{}, errors.Join(fmt.Errorf("etcdctl said %q", said), failed)
	}
	rate, err := strconv.Atoi(string(found[1]))
	if err != nil || rate == 0 {
		return measure.Sample{}, fmt.Errorf("etcdctl said %q", found[0])
	}
	after, err := process.UsageOf(s.Servers...)
	return measure.Sample{
		PerSecond: float64(rate), CPUPerOp: (after.CPU - before.CPU) / time.Duration(rate*minute),
		PeakMemory: after.Peak, Written: after.Written - before.Written,
	}, err
}

// ServeNothing answers at addr until the process is told to stop.
func ServeNothing(addr string) error {
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
