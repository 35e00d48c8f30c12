// Package lab runs Kubernetes clusters without machines on this one: real API
// servers, the controllers that make EndpointSlices, and, for those who ask,
// nodes and pods as network namespaces with kube-proxy and CoreDNS. It never
// runs a container, and leaves nothing behind: what it started ends with it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
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
	network  *network
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

// startEtcd runs one etcd; clusters have a prefix each. It need not survive
// the machine.
func (l *Lab) startEtcd(ctx context.Context) error {
	program, err := Program(ctx, "etcd")
	if err != nil {
		return err
	}
	l.etcd = "http://" + FreeAddr("127.0.0.1")
	peers := "http://" + FreeAddr("127.0.0.1")
	p, err := l.Start(nil, "etcd", nil, program, "--data-dir", filepath.Join(l.Dir, "etcd"), "--unsafe-no-fsync",
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

// FreeAddr is a TCP address of the host that nobody listens on.
func FreeAddr(host string) string {
	lis, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		panic(err) // a machine without a free port runs no lab
	}
	defer lis.Close()
	return lis.Addr().String()
}

// ErrEnded says that what a wait waits for cannot come.
var ErrEnded = errors.New("has ended")

// Until asks every few milliseconds until check returns nil, and returns its
// last error once ctx is done, or at once where it is ErrEnded.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil || errors.Is(err, ErrEnded) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(last, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}
