// Package servicesync tests xb servicesync from outside, as its users run it:
// on real API servers with the controllers that make EndpointSlices, and on a
// real data path of kube-proxy and CoreDNS. It never imports a package of the
// product.
//
// The binary is built, or taken from the environment variable XB_BIN. What a
// test needs and this machine has not (root, network namespaces) skips it with
// a word, and is an error where CI=true.
package servicesync

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// world is what all tests share, because to start it takes longer than a test.
// Each test has namespaces of its own.
var world struct {
	once     sync.Once
	lab      *cluster.Lab
	clusters []*cluster.Cluster
	nodes    sync.Once
	running  sync.Map // *process.Process of controllers
	err      error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if world.lab != nil {
		world.lab.Close()
		if code == 0 {
			os.RemoveAll(world.lab.Dir)
		} else {
			fmt.Fprintln(os.Stderr, "what the processes printed is in", world.lab.Dir)
		}
	}
	os.Exit(code)
}

// clusters are three clusters without nodes for the API's tests, or with them
// where this machine can have them.
func clusters(t testing.TB) []*cluster.Cluster {
	t.Helper()
	world.once.Do(func() { world.err = startWorld(context.Background()) })
	if world.err != nil {
		t.Fatalf("start the clusters: %v", world.err)
	}
	return world.clusters
}

func startWorld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute) // the first time builds Kubernetes
	defer cancel()
	dir, err := os.MkdirTemp("", "xb-servicesync-")
	if err != nil {
		return err
	}
	if world.lab, err = cluster.New(ctx, dir); err != nil {
		return err
	}
	for i, name := range []string{"alpha", "beta", "gamma"} {
		c, err := world.lab.StartCluster(ctx, i+1, name, cluster.CanHaveNodes() == nil)
		if err != nil {
			return err
		}
		if err := c.InstallCRDs(ctx); err != nil {
			return err
		}
		world.clusters = append(world.clusters, c)
	}
	return nil
}

// nodes are two clusters with a data path: alpha and beta.
func nodes(t testing.TB) (a, b *cluster.Cluster) {
	t.Helper()
	process.Need(t, cluster.CanHaveNodes())
	all := clusters(t)
	world.nodes.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		for _, c := range all[:2] {
			if world.err == nil {
				world.err = c.AddNode(ctx)
			}
		}
	})
	if world.err != nil {
		t.Fatalf("start the nodes: %v", world.err)
	}
	return all[0], all[1]
}

// within bounds what a test waits for. Nothing here asserts a time: a machine
// that is busy may need minutes for what takes milliseconds.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// namespaceIn makes a namespace in each of the clusters.
func namespaceIn(t testing.TB, name string, in ...*cluster.Cluster) string {
	t.Helper()
	for _, c := range in {
		_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return name
}
