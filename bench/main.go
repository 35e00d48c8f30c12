// Command bench measures xb against etcd and kube-apiserver, side by side in
// one run: rounds alternate between the systems, and what is reported is the
// median of each and the ratio of the medians. It asserts nothing.
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
	"syscall"
	"time"
)

// config is what a run is told.
type config struct {
	xb, bin, dir string
	original     string
	rounds       int
	scale        float64
	clients      int
}

// A suite measures one subject on two or more systems. With an error it returns
// what it has measured so far.
type suite struct {
	name string
	run  func(ctx context.Context, cfg config) ([]comparison, error)
}

var suites = []suite{
	{"etcd-api", etcdAPI},
	{"stores", stores},
	{"check-perf", checkPerf},
	{"kube-api", kubeAPI},
	{"s3", s3Latency},
	{"transactions", transactions},
	{"start", startUp},
	{"servicesync", serviceSync},
	{"fleet", fleetRounds},
	{"original", besideOriginal},
	{"gateway", gateway},
	{"regions", regions},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == answerOnly {
		fmt.Fprintln(os.Stderr, "bench:", serveNothing(os.Args[2]))
		os.Exit(1)
	}
	var cfg config
	var only, out string
	flag.StringVar(&cfg.xb, "xb", "bin/xb", "the xb binary")
	flag.StringVar(&cfg.bin, "bin", ".tmp/bin", "where etcd and kube-apiserver are")
	flag.StringVar(&cfg.dir, "dir", ".tmp/bench", "where data goes; on the disk to be measured")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds of each system, alternating")
	flag.Float64Var(&cfg.scale, "scale", 1, "multiplies the number of operations")
	flag.IntVar(&cfg.clients, "clients", 8, "clients of the Kubernetes API, in kube-api")
	flag.StringVar(&only, "only", "", "regular expression: the suites to run, of etcd-api, stores, check-perf, kube-api, s3, transactions, start, servicesync, fleet, original, gateway, regions")
	flag.StringVar(&cfg.original, "original", "", "a build of the k8s-endpoints-sync-controller, for the suite original")
	flag.StringVar(&out, "json", "", "also write the figures to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, only, out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	for _, p := range []*string{&cfg.xb, &cfg.bin, &cfg.dir} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	fmt.Printf("%s, %d cores, %s, %d rounds\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), cfg.rounds)
	all := map[string][]comparison{}
	for _, s := range suites {
		if !pattern.MatchString(s.name) {
			continue
		}
		rows, err := s.run(ctx, cfg)
		print(os.Stdout, s.name, rows)
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
