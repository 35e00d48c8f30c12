package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
)

// The two ways to create several objects.
const (
	together = "one transaction"
	single   = "one by one"
)

// transactions measures the creation of 2, 10 and 100 objects of 1 KiB by one client: in one
// transaction, and one by one. An operation is all of them.
func transactions(ctx context.Context, cfg config) ([]comparison, error) {
	sizes := []int{2, 10, 100}
	var rows []*comparison
	for _, store := range []struct {
		name  string
		total int // objects, of each size and way
		start func(f func(c *kubeCluster) error) error
	}{
		{"file", 1000, func(f func(c *kubeCluster) error) error { return onFile(ctx, cfg, f) }},
		{"S3, R = 80 ms", 200, func(f func(c *kubeCluster) error) error { return onBucket(ctx, cfg, 80*time.Millisecond, f) }},
	} {
		these := make([]*comparison, len(sizes))
		for i, n := range sizes {
			these[i] = newComparison(fmt.Sprintf("%s: create %d", store.name, n), together, single)
		}
		rows = append(rows, these...)
		for round := range cfg.rounds {
			fmt.Fprintf(os.Stderr, "transactions: %s, round %d\n", store.name, round+1)
			if err := store.start(func(c *kubeCluster) error {
				return createBothWays(ctx, cfg, c, sizes, store.total, these)
			}); err != nil {
				return values(rows), err
			}
		}
	}
	return values(rows), nil
}

func onFile(ctx context.Context, cfg config, f func(c *kubeCluster) error) error {
	dir := filepath.Join(cfg.dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	c, err := startXB(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	return f(c)
}

// onBucket is onFile on an object store that is a round trip away.
func onBucket(ctx context.Context, cfg config, r time.Duration, f func(c *kubeCluster) error) error {
	return inBucket(ctx, cfg, func(b *bucket, dir string) error {
		endpoint, closeDelay, err := delay(b.addr, r)
		if err != nil {
			return err
		}
		defer closeDelay()
		c, err := startXBWith(ctx, cfg, filepath.Join(dir, "cluster"), b.env, "--journal", "s3://xb-dev/bench?region=us-east-1&endpoint=http://"+endpoint)
		if err != nil {
			return err
		}
		defer c.stop()
		return f(c)
	})
}

func createBothWays(ctx context.Context, cfg config, c *kubeCluster, sizes []int, total int, rows []*comparison) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := warmUp(ctx, client); err != nil {
		return err
	}
	payload := string(randomBytes(1 << 10))
	for row, n := range sizes {
		for _, way := range []string{together, single} {
			create := createEach
			if way == together {
				create = createTogether
			}
			times := max(1, int(float64(total/n)*cfg.scale))
			m, err := drive(ctx, c.servers, 1, times, func(ctx context.Context, _, i int) error {
				return create(ctx, client, fmt.Sprintf("t-%d-%d-%t", n, i, way == together), payload, n)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			rows[row].add(way, m)
		}
	}
	return nil
}

func createEach(ctx context.Context, c kubernetes.Interface, name, payload string, n int) error {
	for i := range n {
		if err := kubeLoads[0].op(ctx, c, fmt.Sprintf("%s-%d", name, i), payload, i); err != nil {
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
