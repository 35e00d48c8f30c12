package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/xbernetes/xbernetes/bench/etcdapi"
	"github.com/xbernetes/xbernetes/bench/gateway"
	"github.com/xbernetes/xbernetes/bench/kubeapi"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/regions"
	"github.com/xbernetes/xbernetes/bench/servicesync"
)

// A suite measures one subject on two or more systems. With an error it returns
// what it has measured so far.
type suite struct {
	name string
	run  func(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error)
}

var suites = []suite{
	{"etcd-api", etcdapi.BesideEtcd},
	{"stores", etcdapi.Stores},
	{"bucket-stores", etcdapi.StoresInBucket},
	{"etcd-tool", etcdapi.ByTool},
	{"check-perf", etcdapi.CheckPerf},
	{"kube-api", kubeapi.Loads},
	{"s3", etcdapi.OnBucket},
	{"writers", etcdapi.Writers},
	{"cost", func(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
		return nil, etcdapi.Costs(ctx, cfg, os.Stdout)
	}},
	{"fan-out", etcdapi.FanOut},
	{"large", etcdapi.Large},
	{"transactions", kubeapi.Transactions},
	{"start", kubeapi.StartUp},
	{"servicesync", servicesync.Propagation},
	{"fleet", servicesync.Fleet},
	{"original", servicesync.BesideOriginal},
	{"gateway", gateway.Overhead},
	{"regions", regions.Overhead},
	{"names", regions.Names},
	{"accounts", regions.Accounts},
	{"facade-memory", regions.FacadeMemory},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == etcdapi.AnswerOnly {
		fmt.Fprintln(os.Stderr, "bench:", etcdapi.ServeNothing(os.Args[2]))
		os.Exit(1)
	}
	names := make([]string, len(suites))
	for i, s := range suites {
		names[i] = s.name
	}
	var cfg measure.Config
	var only, out string
	flag.StringVar(&cfg.XB, "xb", "bin/xb", "the xb binary")
	flag.StringVar(&cfg.Bin, "bin", ".tmp/bin", "where etcd and kube-apiserver are")
	flag.StringVar(&cfg.Dir, "dir", ".tmp/bench", "where data goes; on the disk to be measured")
	flag.IntVar(&cfg.Rounds, "rounds", 5, "rounds of each system, alternating")
	flag.Float64Var(&cfg.Scale, "scale", 1, "multiplies the number of operations")
	flag.IntVar(&cfg.Clients, "clients", 8, "clients of the Kubernetes API, in kube-api")
	flag.StringVar(&only, "only", "", "regular expression: the suites to run, of "+strings.Join(names, ", "))
	flag.StringVar(&cfg.Original, "original", "", "a build of the k8s-endpoints-sync-controller, for the suite original")
	flag.StringVar(&out, "json", "", "also write the figures to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, only, out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg measure.Config, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	for _, p := range []*string{&cfg.XB, &cfg.Bin, &cfg.Dir} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	fmt.Printf("%s, %d cores, %s, %d rounds\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), cfg.Rounds)
	all := map[string][]measure.Comparison{}
	for _, s := range suites {
		if !pattern.MatchString(s.name) {
			continue
		}
		rows, err := s.run(ctx, cfg)
		measure.Print(os.Stdout, s.name, rows)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all[s.name] = rows
	}
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}
