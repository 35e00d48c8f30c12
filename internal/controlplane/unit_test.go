package controlplane

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/xbernetes/xbernetes/internal/controlplane/election"
	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
)

func TestConfigIsChecked(t *testing.T) {
	good := Config{Etcd: Endpoint{Addresses: []string{"http://127.0.0.1:2379"}}, DataDir: "/x"}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string // in the error; none when empty
	}{
		"good":           {func(*Config) {}, ""},
		"no probe":       {func(c *Config) { c.Etcd = Endpoint{InProcess: []grpc.DialOption{grpc.EmptyDialOption{}}} }, "no address to probe"},
		"no store":       {func(c *Config) { c.Etcd = Endpoint{} }, "exactly one"},
		"two stores":     {func(c *Config) { c.Etcd.InProcess = []grpc.DialOption{grpc.EmptyDialOption{}} }, "exactly one"},
		"no directory":   {func(c *Config) { c.DataDir = "" }, "no data directory"},
		"listen":         {func(c *Config) { c.Listen = "6443" }, `"6443"`},
		"advertise":      {func(c *Config) { c.AdvertiseURL = "http://x" }, "https://host:port"},
		"id":             {func(c *Config) { c.ServerID = "Not_A_Label" }, "DNS label"},
		"election":       {func(c *Config) { c.LeaderElection = election.Pace{Lease: 1, Renew: 2, Retry: 3} }, "lease > renew"},
		"election retry": {func(c *Config) { c.LeaderElection = election.Pace{Lease: 12, Renew: 11, Retry: 10} }, "lease > renew"},
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

func testIdentity(t *testing.T, serverID string) *identity.Identity {
	t.Helper()
	id, err := identity.Open(t.TempDir(), serverID, []string{"localhost", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(id.Close)
	return id
}

// keyID is the id that upstream gives to a server's signing key.
func keyID(t *testing.T, id *identity.Identity) string {
	t.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(id.ServiceAccountKey)
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
	join := func(id *identity.Identity) *roster.Roster {
		t.Helper()
		r := roster.New(client, id.ID, roster.Member{CA: id.CA.CertPEM, ServiceAccountKeys: [][]byte{id.ServiceAccountPub}}, logger)
		if err := r.Join(ctx, "etcd"); err != nil {
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
	_, changed := atA.Current()
	join(b)
	if keys := (tokenKeys{atA}).GetPublicKeys(ctx, keyID(t, b)); len(keys) != 1 {
		t.Fatalf("keys of B at A: %v", keys)
	}
	<-changed

	// Joining again writes nothing.
	before, err := client.Get(ctx, roster.Prefix+"b")
	if err != nil {
		t.Fatal(err)
	}
	join(b)
	after, err := client.Get(ctx, roster.Prefix+"b")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Fatalf("joining again moved the store from %d to %d, %v", before.Header.Revision, after.Header.Revision, err)
	}

	// A corrupt entry is reported and not trusted; deleting an entry revokes it.
	_, changed = atA.Current()
	if _, err := client.Put(ctx, roster.Prefix+"b", `{"ca":"Z2FyYmFnZQ=="}`); err != nil {
		t.Fatal(err)
	}
	<-changed
	if trust, _ := atA.Current(); len(trust.Keys) != 1 {
		t.Fatalf("trusted with garbage in the roster: %v", trust.Keys)
	}
	_, changed = atA.Current()
	join(b)
	<-changed
	_, changed = atA.Current()
	if _, err := client.Delete(ctx, roster.Prefix+"b"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if trust, _ := atA.Current(); len(trust.Keys) != 1 || !bytes.Equal(trust.Bundle, a.CA.CertPEM) {
		t.Fatalf("trusted after removal: %v", trust.Keys)
	}
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
