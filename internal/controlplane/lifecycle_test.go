package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/controlplane/election"
	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
)

func testEtcd(t *testing.T, listen string) string {
	t.Helper()
	e, url, err := startEtcd(t.TempDir(), listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return url
}

// status returns what the server answers at path, as an administrator.
func status(t *testing.T, s *server, path string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var code int
	s.client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).StatusCode(&code)
	return code
}

func configMap(s *server, name string) error {
	_, err := s.client.CoreV1().ConfigMaps("default").Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func TestRestartKeepsIdentity(t *testing.T) {
	c := childSettings{Addresses: []string{testEtcd(t, "127.0.0.1:0")}, DataDir: t.TempDir()}
	read := func(names ...string) (all []string) {
		for _, n := range names {
			b, err := os.ReadFile(filepath.Join(c.DataDir, n))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(b))
		}
		return all
	}
	files := []string{"server-id", "pki/ca.crt", "pki/ca.key", "pki/serving.crt", "pki/admin.crt", "pki/service-account.key"}

	first := startTest(t, c)
	before := read(files...)
	if err := configMap(first, "kept"); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(c.DataDir, "kubeconfig"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("kubeconfig: %v, %v, want mode 0600", fi.Mode(), err)
	}
	// The directory is locked.
	if _, err := start(c); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Fatalf("second server on one data directory: %v", err)
	}
	// So is the port.
	other := childSettings{Addresses: c.Addresses, DataDir: t.TempDir(), Listen: strings.TrimPrefix(first.config.Host, "https://")}
	if _, err := start(other); err == nil || !strings.Contains(err.Error(), "is another server running there") {
		t.Fatalf("second server on one port: %v", err)
	}
	if code := first.stop(); code != 0 {
		t.Fatalf("exit code %d after SIGTERM:\n%s", code, first.logs())
	}

	second := startTest(t, c)
	after := read(files...)
	for i, f := range files {
		if before[i] != after[i] {
			t.Errorf("%s changed over a restart", f)
		}
	}
	if _, err := second.client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	// The old credentials work at the new port.
	cfg := *first.config
	cfg.Host = second.config.Host
	client, err := kubernetes.NewForConfig(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"server-id", "pki/ca.key", "pki/serving.key", "pki/admin.key", "pki/service-account.key", "kubeconfig"} {
		fi, err := os.Stat(filepath.Join(c.DataDir, f))
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", f, fi.Mode(), err)
		}
	}
}

// leads waits until the server with that id holds the controllers' lease.
func leads(t *testing.T, s *server, id string) {
	t.Helper()
	until(t, id+" leads", func(ctx context.Context) (bool, error) {
		l, err := s.client.CoordinationV1().Leases("kube-system").Get(ctx, election.Lease, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == id, err
	})
}

// works waits until the controllers have made the account of a new namespace at s.
func works(t *testing.T, s *server) {
	t.Helper()
	ns := namespace(t, s)
	until(t, "the controllers work", func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}

func TestControllersMoveWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	url := testEtcd(t, "127.0.0.1:0")
	a := startTest(t, childSettings{Addresses: []string{url}, ServerID: "a", LeaderElection: fast})
	leads(t, a, "a")
	b := startTest(t, childSettings{Addresses: []string{url}, ServerID: "b", LeaderElection: fast})
	a.kill()
	leads(t, b, "b")
	works(t, b)
}

// The lease is far longer than the test, so that it cannot run out.
func TestControllersMoveAtOnce(t *testing.T) {
	slow := election.Pace{Lease: time.Hour, Renew: 30 * time.Minute, Retry: 20 * time.Minute}
	url := testEtcd(t, "127.0.0.1:0")
	ca := childSettings{Addresses: []string{url}, DataDir: t.TempDir(), ServerID: "a", LeaderElection: slow}
	a := startTest(t, ca)
	leads(t, a, "a")
	b := startTest(t, childSettings{Addresses: []string{url}, ServerID: "b", LeaderElection: slow})

	// A leader that is killed and comes back goes on.
	a.kill()
	a = startTest(t, ca)
	works(t, a)
	leads(t, b, "a")

	// A leader that is stopped hands over.
	if code := a.stop(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, a.logs())
	}
	leads(t, b, "b")
	works(t, b)
}

// proxy stands before the store, and can be slow or cut.
func proxy(t *testing.T, url string) *toxiproxy.Proxy {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "etcd", "127.0.0.1:0", strings.TrimPrefix(url, "http://"))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func delay(t *testing.T, p *toxiproxy.Proxy, oneWay time.Duration) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		body := fmt.Sprintf(`{"type":"latency","name":%q,"stream":%q,"attributes":{"latency":%d}}`, stream, stream, oneWay.Milliseconds())
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
}

// Two servers bootstrap one fresh store at once, which is 80 ms away.
func TestBootstrapOnSlowStore(t *testing.T) {
	t.Parallel()
	p := proxy(t, testEtcd(t, "127.0.0.1:0"))
	delay(t, p, 40*time.Millisecond)
	began := time.Now()
	var wg sync.WaitGroup
	var srv [2]*server
	var errs [2]error
	for i := range srv {
		dir := t.TempDir()
		wg.Go(func() {
			srv[i], errs[i] = start(childSettings{Addresses: []string{"http://" + p.Listen}, DataDir: dir, ServerID: string(rune('a' + i)), LeaderElection: fast})
		})
	}
	wg.Wait()
	for i, s := range srv {
		if s != nil {
			defer s.stop()
		}
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
	}
	t.Logf("both ready after %s", time.Since(began))
	for _, s := range srv {
		if _, err := s.client.RbacV1().ClusterRoles().Get(t.Context(), "cluster-admin", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	works(t, srv[0])
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	p := proxy(t, testEtcd(t, "127.0.0.1:0"))
	s := startTest(t, childSettings{Addresses: []string{"http://" + p.Listen}, LeaderElection: fast})
	if err := configMap(s, "before"); err != nil {
		t.Fatal(err)
	}
	p.Stop()

	if err := configMap(s, "during"); err == nil || apierrors.IsForbidden(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		t.Fatalf("write without a store: %v, want a retryable error", err)
	} else {
		t.Logf("write without a store: %v", err)
	}
	until(t, "the server is not ready", func(context.Context) (bool, error) { return status(t, s, "/readyz") != http.StatusOK, nil })
	if code := status(t, s, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d without a store, and would have the server restarted for nothing", code)
	}

	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the server is ready again", func(context.Context) (bool, error) { return status(t, s, "/readyz") == http.StatusOK, nil })
	until(t, "writes succeed again", func(context.Context) (bool, error) {
		err := configMap(s, "after")
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	works(t, s)
}

func TestWaitsForStoreAtStart(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	s, ready, err := launch(childSettings{Addresses: []string{"http://" + addr}, DataDir: t.TempDir(), LeaderElection: fast})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	until(t, "the server says what it waits for", func(context.Context) (bool, error) {
		return strings.Contains(s.logs(), "the store does not answer") && strings.Contains(s.logs(), addr), nil
	})
	testEtcd(t, addr)
	if err := s.await(ready); err != nil {
		t.Fatal(err)
	}
	if err := configMap(s, "x"); err != nil {
		t.Fatal(err)
	}
}

func TestStopsWhileWaitingForStore(t *testing.T) {
	t.Parallel()
	s, _, err := launch(childSettings{Addresses: []string{"http://127.0.0.1:1"}, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the server waits", func(context.Context) (bool, error) {
		return strings.Contains(s.logs(), "the store does not answer"), nil
	})
	if code := s.stop(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, s.logs())
	}
}

func TestSecretsAreEncrypted(t *testing.T) {
	url := testEtcd(t, "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: k1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startTest(t, childSettings{Addresses: []string{url}, Options: Options{Files: Files{EncryptionProviderConfig: file}}})
	const word = "swordfish-in-clear-text"
	if _, err := s.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"word": word},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	resp, err := client.Get(t.Context(), "/registry/secrets/default/s")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("secret in the store: %v, %v", resp, err)
	}
	if v := resp.Kvs[0].Value; bytes.Contains(v, []byte(word)) || !bytes.HasPrefix(v, []byte("k8s:enc:aescbc")) {
		t.Fatalf("secret in the store is %q", v)
	}
	got, err := s.client.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || string(got.Data["word"]) != word {
		t.Fatalf("secret through the API: %v, %v", got, err)
	}
	// The roster is never encrypted, and holds nothing secret.
	resp, err = client.Get(t.Context(), roster.Prefix, clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("roster: %v, %v", resp, err)
	}
	var m roster.Member
	if err := json.Unmarshal(resp.Kvs[0].Value, &m); err != nil || bytes.Contains(resp.Kvs[0].Value, []byte("PRIVATE")) || len(m.ServiceAccountKeys) != 1 {
		t.Fatalf("roster entry: %v, %v", m, err)
	}
	if block, _ := pem.Decode(s.config.CAData); block == nil {
		t.Fatal("kubeconfig holds no CA")
	}
	// A server without the keys says what to do.
	if _, err := start(childSettings{Addresses: []string{url}, DataDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config") {
		t.Fatalf("a server without keys: %v; want it to name the flag", err)
	}
}

// A server runs in this process, on a way to its store instead of an address.
func TestInProcess(t *testing.T) {
	addr := strings.TrimPrefix(testEtcd(t, "127.0.0.1:0"), "http://")
	var dialed sync.Map
	var log bytes.Buffer
	s, err := New(Config{
		Etcd: Endpoint{
			InProcess: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				dialed.Store("yes", true)
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			})},
			Away: func() error { return nil },
		},
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", ServerID: "inside", ContextName: "mine",
		Kubeconfig: filepath.Join(t.TempDir(), "sub", "config"),
		Logger:     slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	if _, ok := dialed.Load("yes"); !ok {
		t.Fatal("the dialer was never used")
	}
	if s.ID() != "inside" || !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Fatalf("id %q, URL %q", s.ID(), s.URL())
	}
	client, err := kubernetes.NewForConfig(s.LoopbackClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(s.KubeconfigFile()); err != nil || !bytes.Contains(b, []byte("current-context: mine")) || !bytes.Contains(b, []byte(s.URL())) {
		t.Fatalf("kubeconfig: %s, %v", b, err)
	}
	other, err := New(Config{Etcd: Endpoint{Addresses: []string{"http://" + addr}}, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); !errors.Is(err, ErrRunning) {
		t.Fatalf("second server in one process: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
		t.Fatal("the server answers after Run returned")
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
