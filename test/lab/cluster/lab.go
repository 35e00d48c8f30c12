// Package cluster runs Kubernetes clusters without machines on this one: real API
// servers, the controllers that make EndpointSlices, and, for those who ask,
// nodes and pods as network namespaces with kube-proxy and CoreDNS. It never
// runs a container, and leaves nothing behind: what it started ends with it.
package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// Lab holds what was started. Not for concurrent use, but for Close.
type Lab struct {
	Dir string // of the data, and of what the processes print
	// APIServerEnv is in the environment of API servers that are started after it
	// is set.
	APIServerEnv []string
	// NoControllers has clusters that are started after it is set do without
	// Kubernetes' controllers.
	NoControllers bool

	etcd     string // its URL
	network  *routed
	clusters []*Cluster
	ends     []func() // in the order of their starts
}

// New starts a store for clusters in dir, which is created.
func New(ctx context.Context, dir string) (*Lab, error) {
	l := &Lab{Dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create lab: %w", err)
	}
	if err := l.startEtcd(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close ends everything, the last first.
func (l *Lab) Close() {
	for _, end := range slices.Backward(l.ends) {
		end()
	}
	l.ends = nil
}

func (l *Lab) onClose(end func()) { l.ends = append(l.ends, end) }

// Start starts a program that ends with the lab, inside a namespace or, if in is
// nil, on this machine.
func (l *Lab) Start(in *network.Namespace, name string, env []string, argv ...string) (*process.Process, error) {
	p, err := process.Start(process.Spec{Name: name, Dir: l.Dir, In: in, Env: env, Argv: argv})
	if err == nil {
		l.onClose(p.Kill)
	}
	return p, err
}

// newNamespace makes a namespace that ends with the lab.
func (l *Lab) newNamespace(name string) (*network.Namespace, error) {
	n, err := network.New(name)
	if n != nil {
		l.onClose(func() { _ = n.Remove() }) // it may be gone
	}
	return n, err
}

// startEtcd runs one etcd; clusters have a prefix each. It need not survive
// the machine.
func (l *Lab) startEtcd(ctx context.Context) error {
	binary, err := program.Path(ctx, "etcd")
	if err != nil {
		return err
	}
	l.etcd = "http://" + network.FreeAddr("127.0.0.1")
	peers := "http://" + network.FreeAddr("127.0.0.1")
	p, err := l.Start(nil, "etcd", nil, binary, "--data-dir", filepath.Join(l.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", l.etcd, "--advertise-client-urls", l.etcd, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--quota-backend-bytes", "8589934592",
		"--snapshot-count", "10000", "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "10m")
	if err != nil {
		return err
	}
	return p.Await(ctx, "etcd is healthy", func(ctx context.Context) error {
		return answersTo(ctx, http.DefaultClient, l.etcd+"/health")
	})
}

// answersTo is nil if a GET gives 200.
func answersTo(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
