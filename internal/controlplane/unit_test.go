package controlplane

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

func TestConfigIsChecked(t *testing.T) {
	good := Config{Etcd: Endpoint{Addresses: []string{"http://127.0.0.1:2379"}}, DataDir: "/x"}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string // in the error; none when empty
	}{
		"good":           {func(*Config) {}, ""},
		"no store":       {func(c *Config) { c.Etcd = Endpoint{} }, "exactly one"},
		"two stores":     {func(c *Config) { c.Etcd.Dial = func(context.Context) (net.Conn, error) { return nil, nil } }, "exactly one"},
		"no directory":   {func(c *Config) { c.DataDir = "" }, "no data directory"},
		"listen":         {func(c *Config) { c.Listen = "6443" }, `"6443"`},
		"advertise":      {func(c *Config) { c.AdvertiseURL = "http://x" }, "https://host:port"},
		"id":             {func(c *Config) { c.ServerID = "Not_A_Label" }, "DNS label"},
		"election":       {func(c *Config) { c.LeaderElection = LeaderElection{Lease: 1, Renew: 2, Retry: 3} }, "lease > renew"},
		"election retry": {func(c *Config) { c.LeaderElection = LeaderElection{Lease: 12, Renew: 11, Retry: 10} }, "lease > renew"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			_, err := New(c)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("New: %v, want %q", err, tc.want)
			}
		})
	}
}

func testIdentity(t *testing.T, serverID string) *identity {
	t.Helper()
	id, err := openIdentity(t.TempDir(), serverID, []string{"localhost", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(id.close)
	return id
}

func TestIdentityIsReissuedWhereItMust(t *testing.T) {
	dir := t.TempDir()
	open := func(sans ...string) *identity {
		t.Helper()
		id, err := openIdentity(dir, "", sans)
		if err != nil {
			t.Fatal(err)
		}
		id.close()
		return id
	}
	first := open("localhost")
	if !validServerID(first.id) {
		t.Fatalf("made up the server id %q", first.id)
	}
	again := open("localhost")
	if again.id != first.id || !bytes.Equal(again.serving.CertPEM, first.serving.CertPEM) {
		t.Fatal("a second start made a new identity")
	}
	wider := open("localhost", "api.example.org")
	if bytes.Equal(wider.serving.CertPEM, first.serving.CertPEM) {
		t.Fatal("the serving certificate was not issued again for a new name")
	}
	if !bytes.Equal(wider.ca.CertPEM, first.ca.CertPEM) || !bytes.Equal(wider.admin.CertPEM, first.admin.CertPEM) {
		t.Fatal("a new name changed more than the serving certificate")
	}
	// A crash between the key and the certificate.
	if err := os.Remove(filepath.Join(dir, "pki/admin.crt")); err != nil {
		t.Fatal(err)
	}
	if id := open("localhost"); bytes.Equal(id.admin.CertPEM, first.admin.CertPEM) {
		t.Fatal("the administrator's certificate was not made again")
	}
	// A key that is gone is not made up for: it is a CA, people trust it.
	if err := os.Remove(filepath.Join(dir, "pki/ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := openIdentity(dir, "", nil); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Fatalf("CA without its key: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server-id"), []byte("Bad Id"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openIdentity(dir, "", nil); err == nil || !strings.Contains(err.Error(), "server-id") {
		t.Fatalf("corrupt server id: %v", err)
	}
}

func TestUnwritableDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openIdentity(filepath.Join(file, "data"), "", nil); err == nil || !strings.Contains(err.Error(), "create data directory") {
		t.Fatalf("data directory below a file: %v", err)
	}
}

func TestKubeconfigReplacesTheFile(t *testing.T) {
	id := testIdentity(t, "x")
	file := filepath.Join(t.TempDir(), "deep", "config")
	for range 2 {
		if err := writeKubeconfig(file, "mine", "https://127.0.0.1:1", id.ca.CertPEM, id.admin.CertPEM, id.admin.KeyPEM); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil { // the next write must not keep that
			t.Fatal(err)
		}
	}
	if err := writeKubeconfig(file, "mine", "https://127.0.0.1:2", id.ca.CertPEM, id.admin.CertPEM, id.admin.KeyPEM); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", fi.Mode(), err)
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Contexts) != 1 || cfg.CurrentContext != "mine" || cfg.Clusters["mine"].Server != "https://127.0.0.1:2" {
		t.Fatalf("kubeconfig %+v", cfg)
	}
	left, err := fs.Glob(os.DirFS(filepath.Dir(file)), "*")
	if err != nil || len(left) != 1 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func TestTrustIsTheUnion(t *testing.T) {
	a, b := testIdentity(t, "a"), testIdentity(t, "b")
	of := func(id *identity) member {
		return member{CA: id.ca.CertPEM, ServiceAccountKeys: [][]byte{id.serviceAccountPub}}
	}
	members := map[string]member{"a": of(a), "b": of(b)}
	atA, atB := newTrust("a", of(a), members), newTrust("b", of(b), members)
	if diff := cmp.Diff(string(atA.bundle), string(atB.bundle)); diff != "" {
		t.Fatalf("bundles differ: %s", diff)
	}
	for _, id := range []*identity{a, b} {
		block, _ := pem.Decode(id.admin.CertPEM)
		admin, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Verify(x509.VerifyOptions{Roots: atA.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("administrator of %s: %v", id.id, err)
		}
		if keys := atA.find(keyID(t, id)); len(keys) != 1 {
			t.Errorf("keys of %s: %v", id.id, keys)
		}
	}
	alone := newTrust("a", of(a), map[string]member{"a": of(b)}) // the store has it wrong
	if keys := alone.find(keyID(t, a)); len(keys) != 1 || !bytes.Equal(alone.bundle, a.ca.CertPEM) {
		t.Error("a server must trust itself, whatever the store says")
	}
	if keys := alone.find(keyID(t, b)); len(keys) != 0 {
		t.Error("a key that nobody published is trusted")
	}
}

// keyID is the id that upstream gives to a server's signing key.
func keyID(t *testing.T, id *identity) string {
	t.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(id.serviceAccountKey)
	if err != nil {
		t.Fatal(err)
	}
	getter, err := serviceaccount.StaticPublicKeysGetter([]any{key})
	if err != nil {
		t.Fatal(err)
	}
	return getter.GetPublicKeys(t.Context(), "")[0].KeyID
}

func TestRoster(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{testEtcd(t, "127.0.0.1:0")}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))
	join := func(id *identity) *roster {
		t.Helper()
		r := newRoster(client, id, logger)
		if err := r.join(ctx, "etcd"); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := testIdentity(t, "a"), testIdentity(t, "b")
	atA := join(a)
	done := make(chan error, 1)
	go func() { done <- atA.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	// B's key is found at once, by asking, and stays found through the watch.
	_, changed := atA.current()
	join(b)
	if keys := atA.tokenKeys().GetPublicKeys(ctx, keyID(t, b)); len(keys) != 1 {
		t.Fatalf("keys of B at A: %v", keys)
	}
	<-changed

	// Joining again writes nothing.
	before, err := client.Get(ctx, rosterPrefix+"b")
	if err != nil {
		t.Fatal(err)
	}
	join(b)
	after, err := client.Get(ctx, rosterPrefix+"b")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Fatalf("joining again moved the store from %d to %d, %v", before.Header.Revision, after.Header.Revision, err)
	}

	// Garbage is reported, and trusted by nobody; taking an entry out revokes it.
	_, changed = atA.current()
	if _, err := client.Put(ctx, rosterPrefix+"b", `{"ca":"Z2FyYmFnZQ=="}`); err != nil {
		t.Fatal(err)
	}
	<-changed
	if trust, _ := atA.current(); len(trust.keys) != 1 {
		t.Fatalf("trusted with garbage in the roster: %v", trust.keys)
	}
	_, changed = atA.current()
	join(b)
	<-changed
	_, changed = atA.current()
	if _, err := client.Delete(ctx, rosterPrefix+"b"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if trust, _ := atA.current(); len(trust.keys) != 1 || !bytes.Equal(trust.bundle, a.ca.CertPEM) {
		t.Fatalf("trusted after removal: %v", trust.keys)
	}
}

func FuzzDecodeMember(f *testing.F) {
	id, err := openIdentity(f.TempDir(), "x", nil)
	if err != nil {
		f.Fatal(err)
	}
	id.close()
	good, err := json.Marshal(member{CA: id.ca.CertPEM, ServiceAccountKeys: [][]byte{id.serviceAccountPub}})
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := json.Marshal(member{CA: id.serving.CertPEM})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := decodeMember(leaf); err == nil {
		f.Fatal("a certificate that is no CA was taken for one")
	}
	f.Add(good)
	f.Add(leaf)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"ca":null,"serviceAccountKeys":["AAAA"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMember(b)
		if err != nil {
			return
		}
		// What decodes can be trusted, and comes back the same.
		tr := newTrust("other", m, map[string]member{"m": m})
		if len(tr.bundle) == 0 || len(tr.keys) > len(m.ServiceAccountKeys) {
			t.Fatalf("%d keys, bundle of %d bytes", len(tr.keys), len(tr.bundle))
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if m2, err := decodeMember(again); err != nil || !cmp.Equal(m, m2) {
			t.Fatalf("decoded again: %v", err)
		}
	})
}

func TestKlogBridge(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(klog.ClearLogger)
	phase, err := bridgeKlog(logger, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	klog.ErrorS(nil, "not up yet")
	phase.Store(phaseServing)
	klog.V(2).InfoS("asked for")
	klog.Background().V(2).Info("asked for in context")
	klog.V(8).InfoS("the body of a request")
	klog.Background().V(8).Info("the body of a request")
	klog.ErrorS(nil, "went wrong")
	phase.Store(phaseStopping)
	klog.ErrorS(nil, "went away")
	var away error
	quiet, err := bridgeKlog(slog.New(slog.NewTextHandler(&log, nil)), 0, func() error { return away })
	if err != nil {
		t.Fatal(err)
	}
	quiet.Store(phaseServing)
	away = errors.New("the store does not answer")
	klog.ErrorS(nil, "failed for want of the store")
	quiet.Store(phaseStopping)
	away = nil
	klog.ErrorS(nil, "not worth a word")
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		_, rest, _ := strings.Cut(line, " ")
		got = append(got, rest)
	}
	want := []string{`level=WARN msg="not up yet"`, `level=INFO msg="asked for"`, `level=INFO msg="asked for in context"`, `level=ERROR msg="went wrong"`, `level=INFO msg="went away"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("logged (-want +got):\n%s", diff)
	}
}

func TestServedDefinitionsAreWhole(t *testing.T) {
	ref := func(path string) spec.Ref { return spec.MustCreateRef(path) }
	served, all := servedDefinitions(ref), generatedopenapi.GetOpenAPIDefinitions(ref)
	for name, def := range served {
		for _, dep := range def.Dependencies {
			if _, ok := served[dep]; !ok {
				t.Errorf("%s refers to %s, which is left out", name, dep)
			}
		}
	}
	for _, want := range []string{"io.k8s.api.core.v1.Namespace", "io.k8s.api.rbac.v1.ClusterRole", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} {
		if _, ok := served[want]; !ok {
			t.Errorf("%s is left out", want)
		}
	}
	if _, ok := served["io.k8s.api.core.v1.Pod"]; ok {
		t.Error("pods are served")
	}
	t.Logf("%d definitions of %d", len(served), len(all))
}
