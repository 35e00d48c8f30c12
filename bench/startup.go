package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const startObjects = 100_000

// startUp measures from the launch of the processes to the first answer of the
// Kubernetes API, empty and with 100,000 objects of 1 KiB, and the memory held
// five seconds later.
func startUp(ctx context.Context, cfg config) ([]comparison, error) {
	kinds := []clusterKind{xbServer, kubeAPIServer}
	empty := newComparison("launch to first answer, empty", kinds[0].name, kinds[1].name)
	full := newComparison(fmt.Sprintf("launch to first answer, %d objects", startObjects), kinds[0].name, kinds[1].name)
	for _, k := range kinds {
		dir := filepath.Join(cfg.dir, "start")
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := startRounds(ctx, cfg, k, dir, empty); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "start: filling %s\n", k.name)
		if err := fill(ctx, cfg, k, dir); err != nil {
			return nil, err
		}
		if err := startRounds(ctx, cfg, k, dir, full); err != nil {
			return nil, err
		}
	}
	return []comparison{*empty, *full}, nil
}

func startRounds(ctx context.Context, cfg config, k clusterKind, dir string, row *comparison) error {
	for round := range cfg.rounds {
		fmt.Fprintf(os.Stderr, "start: %s, round %d, %s\n", row.Workload, round+1, k.name)
		began := time.Now()
		c, err := k.start(ctx, cfg, dir)
		if err != nil {
			return err
		}
		took := time.Since(began)
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
		var resident int64
		for _, s := range c.servers {
			resident += field(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid), "VmRSS:") << 10
		}
		c.stop()
		row.add(k.name, sample{P50: took, PeakMemory: resident})
	}
	return nil
}

func fill(ctx context.Context, cfg config, k clusterKind, dir string) error {
	c, err := k.start(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	client, err := c.client()
	if err != nil {
		return err
	}
	payload := string(randomBytes(1 << 10))
	_, err = drive(ctx, c.servers, 32, int(startObjects*cfg.scale), func(ctx context.Context, _, i int) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("s-%d", i), payload), metav1.CreateOptions{})
		return err
	})
	return err
}
