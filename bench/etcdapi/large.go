package etcdapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const (
	largeKeys  = 1_000_000
	largeValue = 1 << 10
)

// Large measures a million keys of 1 KiB on a file beside etcd: how fast they are created, how
// long a start with them takes, and the memory of both.
func Large(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	kinds := []store.Kind{store.XBFile, store.Etcd}
	n := max(1, int(largeKeys*cfg.Scale))
	create := measure.NewComparison(fmt.Sprintf("create %d keys of 1 KiB, 128 clients", n), kinds[0].Name, kinds[1].Name)
	start := measure.NewComparison(fmt.Sprintf("launch to first answer, %d keys", n), kinds[0].Name, kinds[1].Name)
	rows := []*measure.Comparison{create, start}
	for round := range cfg.Rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "large: round %d, %s\n", round+1, k.Name)
			dir := filepath.Join(cfg.Dir, "large")
			if err := os.RemoveAll(dir); err != nil {
				return measure.Values(rows), err
			}
			m, err := fillLarge(ctx, cfg, k, dir, n)
			if err != nil {
				return measure.Values(rows), fmt.Errorf("%s: create: %w", k.Name, err)
			}
			create.Add(k.Name, m)
			if m, err = startLarge(ctx, cfg, k, dir, n); err != nil {
				return measure.Values(rows), fmt.Errorf("%s: start: %w", k.Name, err)
			}
			start.Add(k.Name, m)
		}
	}
	return measure.Values(rows), nil
}

// fillLarge creates the keys, and ends the store.
func fillLarge(ctx context.Context, cfg measure.Config, k store.Kind, dir string, n int) (measure.Sample, error) {
	s, err := k.Start(cfg, dir)
	if err != nil {
		return measure.Sample{}, err
	}
	defer s.Stop()
	c, closeAll, err := s.Clients(128)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closeAll()
	if err := s.Ready(ctx); err != nil {
		return measure.Sample{}, err
	}
	text := string(measure.RandomBytes(1<<20 + largeValue)) // each value begins elsewhere
	return measure.Drive(ctx, s.Servers, len(c), n, func(ctx context.Context, client, i int) error {
		from := i * 7919 % (1 << 20)
		_, err := create(ctx, c[client], key(i), text[from:from+largeValue])
		return err
	})
}

// startLarge starts the store again, and has it count its keys. The memory is what it holds
// five seconds later; the processor time is that of the whole start.
func startLarge(ctx context.Context, cfg measure.Config, k store.Kind, dir string, n int) (measure.Sample, error) {
	began := time.Now()
	s, err := k.Start(cfg, dir)
	if err != nil {
		return measure.Sample{}, err
	}
	defer s.Stop()
	c, closeAll, err := s.Clients(1)
	if err != nil {
		return measure.Sample{}, err
	}
	defer closeAll()
	var held int64
	err = measure.WaitLong(ctx, k.Name, func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		res, err := c[0].Get(ctx, "/bench/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			held = res.Count
		}
		return err
	})
	took := time.Since(began)
	if err == nil && held != int64(n) {
		err = fmt.Errorf("%d keys are there after a start, want %d", held, n)
	}
	if err != nil {
		return measure.Sample{}, err
	}
	if err := wait.For(ctx, 5*time.Second); err != nil {
		return measure.Sample{}, err
	}
	used, err := process.UsageOf(s.Servers...)
	return measure.Sample{P50: took, CPUPerOp: used.CPU, PeakMemory: used.Memory}, err
}
