package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const startObjects = 100_000

// startUp measures from the launch of the processes to the first answer of the
// Kubernetes API, empty and with 100,000 objects of 1 KiB, and the memory held
// five seconds later.
func startUp(ctx context.Context, cfg config) ([]comparison, error) {
	kinds := []clusterKind{xbServer, kubeAPIServer}
	objects := int(startObjects * cfg.scale)
	rows := []*comparison{
		newComparison("launch to first answer, empty", kinds[0].name, kinds[1].name),
		newComparison(fmt.Sprintf("launch to first answer, %d objects", objects), kinds[0].name, kinds[1].name),
	}
	dirs := make([]string, len(kinds))
	for i := range kinds {
		dirs[i] = filepath.Join(cfg.dir, fmt.Sprint("start-", i))
		if err := os.RemoveAll(dirs[i]); err != nil {
			return nil, err
		}
	}
	for n, row := range rows {
		for round := range cfg.rounds {
			for i, k := range kinds {
				if n == 1 && round == 0 {
					fmt.Fprintf(os.Stderr, "start: filling %s\n", k.name)
					if err := fill(ctx, cfg, k, dirs[i], objects); err != nil {
						return values(rows), fmt.Errorf("fill %s: %w", k.name, err)
					}
				}
				fmt.Fprintf(os.Stderr, "start: %s, round %d, %s\n", row.Workload, round+1, k.name)
				m, err := startOnce(ctx, cfg, k, dirs[i])
				if err != nil {
					return values(rows), fmt.Errorf("%s: %w", k.name, err)
				}
				row.add(k.name, m)
			}
		}
	}
	return values(rows), nil
}

func startOnce(ctx context.Context, cfg config, k clusterKind, dir string) (sample, error) {
	began := time.Now()
	c, err := k.start(ctx, cfg, dir)
	if err != nil {
		return sample{}, err
	}
	defer c.stop()
	took := time.Since(began)
	if err := wait.For(ctx, 5*time.Second); err != nil {
		return sample{}, err
	}
	used, err := process.UsageOf(c.servers...)
	if err != nil {
		return sample{}, err
	}
	return sample{P50: took, PeakMemory: used.Memory}, nil
}

func fill(ctx context.Context, cfg config, k clusterKind, dir string, objects int) error {
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
	_, err = drive(ctx, c.servers, 32, objects, func(ctx context.Context, _, i int) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("s-%d", i), payload), metav1.CreateOptions{})
		return err
	})
	return err
}
