package kubeapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const startObjects = 100_000

// StartUp measures from the launch of the processes to the first answer of the
// Kubernetes API, empty and with 100,000 objects of 1 KiB, and the memory held
// five seconds later.
func StartUp(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	kinds := []kubeserver.Kind{kubeserver.XB, kubeserver.Kube}
	objects := int(startObjects * cfg.Scale)
	rows := []*measure.Comparison{
		measure.NewComparison("launch to first answer, empty", kinds[0].Name, kinds[1].Name),
		measure.NewComparison(fmt.Sprintf("launch to first answer, %d objects", objects), kinds[0].Name, kinds[1].Name),
	}
	dirs := make([]string, len(kinds))
	for i := range kinds {
		dirs[i] = filepath.Join(cfg.Dir, fmt.Sprint("start-", i))
		if err := os.RemoveAll(dirs[i]); err != nil {
			return nil, err
		}
	}
	for n, row := range rows {
		for round := range cfg.Rounds {
			for i, k := range kinds {
				if n == 1 && round == 0 {
					fmt.Fprintf(os.Stderr, "start: filling %s\n", k.Name)
					if err := fill(ctx, cfg, k, dirs[i], objects); err != nil {
						return measure.Values(rows), fmt.Errorf("fill %s: %w", k.Name, err)
					}
				}
				fmt.Fprintf(os.Stderr, "start: %s, round %d, %s\n", row.Workload, round+1, k.Name)
				m, err := startOnce(ctx, cfg, k, dirs[i])
				if err != nil {
					return measure.Values(rows), fmt.Errorf("%s: %w", k.Name, err)
				}
				row.Add(k.Name, m)
			}
		}
	}
	return measure.Values(rows), nil
}

func startOnce(ctx context.Context, cfg measure.Config, k kubeserver.Kind, dir string) (measure.Sample, error) {
	began := time.Now()
	c, err := k.Start(ctx, cfg, dir)
	if err != nil {
		return measure.Sample{}, err
	}
	defer c.Stop()
	took := time.Since(began)
	if err := wait.For(ctx, 5*time.Second); err != nil {
		return measure.Sample{}, err
	}
	used, err := process.UsageOf(c.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	return measure.Sample{P50: took, PeakMemory: used.Memory}, nil
}

func fill(ctx context.Context, cfg measure.Config, k kubeserver.Kind, dir string, objects int) error {
	c, err := k.Start(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.Stop()
	client, err := c.Client()
	if err != nil {
		return err
	}
	payload := string(measure.RandomBytes(1 << 10))
	_, err = measure.Drive(ctx, c.Servers, 32, objects, func(ctx context.Context, _, i int) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("s-%d", i), payload), metav1.CreateOptions{})
		return err
	})
	return err
}
