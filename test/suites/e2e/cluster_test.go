// Package e2e runs Kubernetes' own end-to-end specs against xb servers, and
// those that need a webhook in a pod with the webhook at a URL instead. It
// holds no spec of Kubernetes.
package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/objectstore"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

// A cluster is one server, or several on one journal.
type cluster struct {
	kubeconfig string // of a client whose connections go to the servers in turn
	servers    []*rest.Config
}

// oneServer is a server on a file journal.
func oneServer(t *testing.T) cluster {
	t.Helper()
	s := startServer(t, nil, "--journal", xbetcd.FileJournal(t))
	s.awaitReady(t)
	return cluster{kubeconfig: s.kubeconfig, servers: []*rest.Config{s.config}}
}

// twoServers are two servers on one bucket, with credentials each, and a
// balancer in front of them that gives each connection to the next server, as
// in front of any highly available Kubernetes: a client and the kubectl that it
// starts seldom ask the same server.
func twoServers(t *testing.T) cluster {
	t.Helper()
	objects := startStore(t)
	vendor := startServer(t, vendorAccount.Env(), "--journal", objects.Journal("e2e"), "--trim", "always")
	vendor.awaitReady(t) // the first server of a bucket makes what all have
	tenant := startServer(t, tenantAccount.Env(), "--journal", objects.Journal("e2e"))
	tenant.awaitReady(t)
	return cluster{
		kubeconfig: balance(t, vendor, tenant),
		servers:    []*rest.Config{vendor.config, tenant.config},
	}
}

// A server is one xb server.
type server struct {
	process    *process.Process
	address    string
	kubeconfig string
	config     *rest.Config // set once it is ready
}

// startServer starts a server on a free port of loopback.
func startServer(t *testing.T, env []string, flags ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{address: network.FreeAddr("127.0.0.1"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	args := append([]string{"server", "--data-dir", dir, "--listen", s.address, "--kubeconfig", s.kubeconfig}, flags...)
	s.process = process.Spawn(t, nil, "xb-server", env, append([]string{program.Need(t, "xb")}, args...)...)
	return s
}

func (s *server) awaitReady(t *testing.T) {
	t.Helper()
	err := s.process.Await(t.Context(), "the server at "+s.address+" is ready", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			return err // it is not written yet
		}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		s.config = config
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	vendorAccount = objectstore.Account{Name: "vendor", AccessKey: "VENDOR", SecretKey: "the vendor's secret"}
	tenantAccount = objectstore.Account{Name: "tenant", AccessKey: "TENANT", SecretKey: "the tenant's secret"}
)

// startStore starts an object store with a bucket that both accounts share.
func startStore(t *testing.T) objectstore.Store {
	t.Helper()
	s := objectstore.Store{Dir: t.TempDir(), Listen: network.FreeAddr("127.0.0.1"), Bucket: "shared", Accounts: []objectstore.Account{vendorAccount, tenantAccount}}
	argv, err := s.Argv(program.Need(t, "xb"))
	if err != nil {
		t.Fatal(err)
	}
	objects := process.Spawn(t, nil, "xb-dev-store", nil, argv...)
	if _, err := objects.AwaitLine(t.Context(), "Object store at "); err != nil {
		t.Fatal(err)
	}
	return s
}

// balance passes connections on to the servers in turn, and writes a kubeconfig
// of the first server's administrator, whom all know, that trusts them all.
func balance(t *testing.T, servers ...*server) (kubeconfig string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var next atomic.Uint64
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	open.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			to := servers[next.Add(1)%uint64(len(servers))].address
			open.Go(func() { pass(ctx, conn, to) })
		}
	})
	t.Cleanup(func() {
		cancel()
		lis.Close()
		open.Wait()
	})

	config, err := clientcmd.LoadFromFile(servers[0].kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var authorities [][]byte
	for _, s := range servers {
		authorities = append(authorities, s.config.CAData)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + lis.Addr().String()
		c.CertificateAuthorityData = bytes.Join(authorities, []byte("\n"))
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// pass passes bytes on both ways, until one side has ended or ctx has.
func pass(ctx context.Context, from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // how it ended is for the two sides to say
			way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}
