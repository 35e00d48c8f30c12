package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/objectstore"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// startsWithin is how long a server may take until it is ready. It is a bound
// for a slow, busy machine, not a promise.
const startsWithin = 90 * time.Second

// A server is one `xb server`, which may be killed and started again.
type server struct {
	*process.Process
	owner   testing.TB // it is killed when this test ends
	in      *network.Namespace
	name    string
	listen  string
	dataDir string
	env     []string
	flags   []string
}

// newServer prepares a server and starts nothing. Further flags follow the journal's.
func newServer(t testing.TB, in *network.Namespace, name, journal string, env []string, flags ...string) *server {
	t.Helper()
	s := &server{owner: t, in: in, name: name, dataDir: filepath.Join(t.TempDir(), name), env: env}
	s.listen = "127.0.0.1:" + network.FreePort()
	if in != nil {
		s.listen = in.IP + ":6443"
	}
	if journal != "" {
		flags = append(flags, "--journal", journal)
	}
	s.flags = flags
	return s
}

// start starts the server and does not wait until it is ready.
func (s *server) start(t testing.TB) {
	t.Helper()
	argv := append([]string{xbBinary, "server", "--data-dir", s.dataDir, "--listen", s.listen, "--context", s.name}, s.flags...)
	s.Process = process.Spawn(s.owner, s.in, s.name, s.env, argv...)
}

// up starts the server and waits until it is ready.
func (s *server) up(t testing.TB) {
	t.Helper()
	s.start(t)
	s.awaitReady(t)
}

func (s *server) awaitReady(t testing.TB) {
	t.Helper()
	wait.Poll(t, startsWithin, s.name+"'s server is ready", s.ready)
}

func (s *server) ready(ctx context.Context) error {
	if err := s.Alive(); err != nil {
		return err
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	cfg.Timeout = 5 * time.Second
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (s *server) kubeconfig() string { return filepath.Join(s.dataDir, "kubeconfig") }

// config is that of a client on the server's machine.
func (s *server) config() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = -1, 0 // no limit
	if s.in != nil {
		cfg.Dial = s.in.DialContext
	}
	return cfg, nil
}

func (s *server) mustConfig(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := s.config()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// clients are clients on the server's machine.
func (s *server) clients(t testing.TB) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	cfg := s.mustConfig(t)
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return typed, dyn
}

// tryKubectl runs kubectl on the server's machine.
func (s *server) tryKubectl(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	return process.Run(t, s.in, []string{"KUBECONFIG=" + s.kubeconfig(), "HOME=" + filepath.Dir(s.dataDir)}, stdin, append([]string{program.Need(t, "kubectl")}, args...)...)
}

func (s *server) kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := s.tryKubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// A store is an object store in a process of its own, with a bucket that two
// accounts share, each with credentials of its own.
type store struct {
	*process.Process
	owner  testing.TB // it is killed when this test ends
	in     *network.Namespace
	dir    string
	listen string
}

// bucket is the name of every store's bucket.
const bucket = "shared"

var (
	vendorAccount = objectstore.Account{Name: "vendor", AccessKey: "VENDOR0ACCESS", SecretKey: "vendor-secret-of-this-test"}
	tenantAccount = objectstore.Account{Name: "tenant", AccessKey: "TENANT0ACCESS", SecretKey: "tenant-secret-of-this-test"}
)

// startStore starts a store and waits until it answers.
func startStore(t testing.TB, in *network.Namespace) *store {
	t.Helper()
	s := &store{owner: t, in: in, dir: filepath.Join(t.TempDir(), "store"), listen: "127.0.0.1:" + network.FreePort()}
	if in != nil {
		s.listen = in.IP + ":7070"
	}
	s.up(t)
	return s
}

func (s *store) up(t testing.TB) {
	t.Helper()
	argv, err := s.spec().Argv(xbBinary)
	if err != nil {
		t.Fatal(err)
	}
	s.Process = process.Spawn(s.owner, s.in, "store", nil, argv...)
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: s.in.DialContext, DisableKeepAlives: true}}
	wait.Poll(t, 30*time.Second, "the store answers", func(context.Context) error {
		if err := s.Alive(); err != nil {
			return err
		}
		answer, err := client.Get("http://" + s.listen)
		if err != nil {
			return err
		}
		return answer.Body.Close() // it denies, which is an answer
	})
}

// spec says how the store is started, and where it is.
func (s *store) spec() objectstore.Store {
	return objectstore.Store{Dir: s.dir, Listen: s.listen, Remote: s.in != nil, Bucket: bucket, Accounts: []objectstore.Account{vendorAccount, tenantAccount}}
}

// journal is the URL of a journal in the store.
func (s *store) journal(prefix string) string { return s.spec().Journal(prefix) }
