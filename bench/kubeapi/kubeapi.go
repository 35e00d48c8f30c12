// Package kubeapi measures the Kubernetes API: requests, transactions and the start of a
// server. It never asks a server by another way than its clients have.
package kubeapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// load is one workload on the Kubernetes API, with objects of one size.
type load struct {
	name  string
	total int
	op    func(ctx context.Context, c kubernetes.Interface, name, payload string, i int) error
}

func object(name, payload string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"payload": payload}}
}

var loads = []load{
	{"create", 2000, func(ctx context.Context, c kubernetes.Interface, name, payload string, _ int) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, object(name, payload), metav1.CreateOptions{})
		return err
	}},
	{"get", 4000, func(ctx context.Context, c kubernetes.Interface, name, _ string, _ int) error {
		_, err := c.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		return err
	}},
	{"patch", 2000, func(ctx context.Context, c kubernetes.Interface, name, _ string, i int) error {
		patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		_, err := c.CoreV1().ConfigMaps("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}},
	{"server-side apply", 2000, func(ctx context.Context, c kubernetes.Interface, name, payload string, i int) error {
		obj := corev1ac.ConfigMap(name, "default").WithData(map[string]string{"payload": payload, "applied": fmt.Sprint(i)})
		_, err := c.CoreV1().ConfigMaps("default").Apply(ctx, obj, metav1.ApplyOptions{FieldManager: "bench", Force: true})
		return err
	}},
}

// Loads measures the Kubernetes API against kube-apiserver on etcd, on the
// same disk: objects of 1 and 10 KiB.
func Loads(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	kinds := []kubeserver.Kind{kubeserver.XB, kubeserver.Kube}
	sizes := []int{1 << 10, 10 << 10}
	var rows []*measure.Comparison
	for _, size := range sizes {
		for _, l := range loads {
			rows = append(rows, measure.NewComparison(fmt.Sprintf("%s, %d KiB", l.name, size>>10), kinds[0].Name, kinds[1].Name))
		}
	}
	rows = append(rows, measure.NewComparison("list all by pages of 500", kinds[0].Name, kinds[1].Name))
	for round := range cfg.Rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "kube-api: round %d, %s\n", round+1, k.Name)
			if err := roundOn(ctx, cfg, k, sizes, rows); err != nil {
				return measure.Values(rows), fmt.Errorf("%s: %w", k.Name, err)
			}
		}
	}
	return measure.Values(rows), nil
}

// warmUp lets a server end what it does once after its start, caches and
// controllers' first lists, and makes it create some objects.
func warmUp(ctx context.Context, client kubernetes.Interface) error {
	if err := wait.For(ctx, 5*time.Second); err != nil {
		return err
	}
	for i := range 200 {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("warm-%d", i), ""), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

func roundOn(ctx context.Context, cfg measure.Config, k kubeserver.Kind, sizes []int, rows []*measure.Comparison) error {
	dir := filepath.Join(cfg.Dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	c, err := k.Start(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.Stop()
	clients := make([]kubernetes.Interface, cfg.Clients)
	for i := range clients {
		if clients[i], err = c.Client(); err != nil {
			return err
		}
	}
	if err := warmUp(ctx, clients[0]); err != nil {
		return err
	}
	row := 0
	for _, size := range sizes {
		payload := string(measure.RandomBytes(size))
		for _, l := range loads {
			total := max(1, int(float64(l.total)*cfg.Scale))
			m, err := measure.Drive(ctx, c.Servers, cfg.Clients, total, func(ctx context.Context, client, i int) error {
				return l.op(ctx, clients[client], fmt.Sprintf("c-%d-%d", size, i%int(2000*cfg.Scale)), payload, i)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			rows[row].Add(k.Name, m)
			row++
		}
	}
	m, err := measure.Drive(ctx, c.Servers, 1, 5, func(ctx context.Context, client, _ int) error {
		opts := metav1.ListOptions{Limit: 500}
		for {
			list, err := clients[client].CoreV1().ConfigMaps("default").List(ctx, opts)
			if err != nil || list.Continue == "" {
				return err
			}
			opts.Continue = list.Continue
		}
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	rows[row].Add(k.Name, m)
	return nil
}
