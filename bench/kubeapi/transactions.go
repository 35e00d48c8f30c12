package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
)

// The two ways to create several objects.
const (
	together = "one transaction"
	single   = "one by one"
)

// Transactions measures the creation of 2, 10 and 100 objects of 1 KiB by one client: in one
// transaction, and one by one. An operation is all of them.
func Transactions(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	sizes := []int{2, 10, 100}
	var rows []*measure.Comparison
	for _, store := range []struct {
		name  string
		total int // objects, of each size and way
		start func(f func(c *kubeserver.Cluster) error) error
	}{
		{"file", 1000, func(f func(c *kubeserver.Cluster) error) error { return onFile(ctx, cfg, f) }},
		{"S3, R = 80 ms", 200, func(f func(c *kubeserver.Cluster) error) error { return onBucket(ctx, cfg, 80*time.Millisecond, f) }},
	} {
		these := make([]*measure.Comparison, len(sizes))
		for i, n := range sizes {
			these[i] = measure.NewComparison(fmt.Sprintf("%s: create %d", store.name, n), together, single)
		}
		rows = append(rows, these...)
		for round := range cfg.Rounds {
			fmt.Fprintf(os.Stderr, "transactions: %s, round %d\n", store.name, round+1)
			if err := store.start(func(c *kubeserver.Cluster) error {
				return createBothWays(ctx, cfg, c, sizes, store.total, these)
			}); err != nil {
				return measure.Values(rows), err
			}
		}
	}
	return measure.Values(rows), nil
}

func onFile(ctx context.Context, cfg measure.Config, f func(c *kubeserver.Cluster) error) error {
	dir := filepath.Join(cfg.Dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	c, err := kubeserver.StartXB(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.Stop()
	return f(c)
}

// onBucket is onFile on an object store that is a round trip away.
func onBucket(ctx context.Context, cfg measure.Config, r time.Duration, f func(c *kubeserver.Cluster) error) error {
	return store.InBucket(ctx, cfg, func(b *store.Bucket, dir string) error {
		endpoint, closeDelay, err := measure.Delay(b.Addr, r)
		if err != nil {
			return err
		}
		defer closeDelay()
		c, err := kubeserver.StartXBWith(ctx, cfg, filepath.Join(dir, "cluster"), b.Env, "--journal", store.Journal(endpoint))
		if err != nil {
			return err
		}
		defer c.Stop()
		return f(c)
	})
}

func createBothWays(ctx context.Context, cfg measure.Config, c *kubeserver.Cluster, sizes []int, total int, rows []*measure.Comparison) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := warmUp(ctx, client); err != nil {
		return err
	}
	payload := string(measure.RandomBytes(1 << 10))
	for row, n := range sizes {
		for _, way := range []string{together, single} {
			create := createEach
			if way == together {
				create = createTogether
			}
			times := max(1, int(float64(total/n)*cfg.Scale))
			m, err := measure.Drive(ctx, c.Servers, 1, times, func(ctx context.Context, _, i int) error {
				return create(ctx, client, fmt.Sprintf("t-%d-%d-%t", n, i, way == together), payload, n)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			rows[row].Add(way, m)
		}
	}
	return nil
}

func createEach(ctx context.Context, c kubernetes.Interface, name, payload string, n int) error {
	for i := range n {
		if err := loads[0].op(ctx, c, fmt.Sprintf("%s-%d", name, i), payload, i); err != nil {
			return err
		}
	}
	return nil
}

func createTogether(ctx context.Context, c kubernetes.Interface, name, payload string, n int) error {
	operations := make([]map[string]any, n)
	for i := range operations {
		m := object(fmt.Sprintf("%s-%d", name, i), payload)
		m.APIVersion, m.Kind = "v1", "ConfigMap"
		operations[i] = map[string]any{"verb": "create", "object": m}
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "transaction.xbernetes.io/v1alpha1", "kind": "Transaction", "spec": map[string]any{"operations": operations},
	})
	if err != nil {
		return err
	}
	return c.CoreV1().RESTClient().Post().AbsPath("/apis/transaction.xbernetes.io/v1alpha1/transactions").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx).Error()
}
