package servicesync

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/migration"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/report"
)

func (f *fakeAPI) annotations(namespace, service string) map[string]string {
	return (&unstructured.Unstructured{Object: f.objects[target{services, namespace, service, ""}.path()]}).GetAnnotations()
}

// A Service moves, is shown to move, and moves back; a dry run writes nothing.
func TestMigrate(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
	start(t, "a", a.config(), both)
	start(t, "b", b.config(), both)
	b.awaitInUse("shop", "web", "10.0.0.1")
	for f, peer := range map[*fakeAPI][2]string{a: {"a", "b"}, b: {"b", "a"}} {
		f.await("the lease of "+peer[0]+" names its peer", func() bool {
			names, _, _ := unstructured.NestedStringSlice(f.objects[target{leases, "sync", peer[0], ""}.path()], "spec", "peers")
			return slices.Contains(names, peer[1])
		})
	}

	cfg := Config{
		Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync", Lease: time.Hour, Workers: 1, Pace: access.Pace{QPS: -1},
		Logger: slog.New(slog.DiscardHandler),
		Peers: func(access.Cluster, kubernetes.Interface) peers.Source {
			return peers.Fixed(peers.Peer{Name: "b", Origin: "test", Config: b.config()})
		},
	}
	m, err := NewMigration(cfg, keyOf("shop", "web"), "b")
	if err != nil {
		t.Fatal(err)
	}
	beforeA, beforeB := a.mark(), b.mark()
	var out strings.Builder
	if err := m.Preview(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"servicesync.xbernetes.io/mode": "receiver"`, `"phase": "Preparing"`, "Then it waits for b", "Nothing was written."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the preview does not say %s:\n%s", want, out.String())
		}
	}
	if wrote := append(a.wrote(beforeA), b.wrote(beforeB)...); len(wrote) > 0 {
		t.Errorf("the preview wrote %v", wrote)
	}

	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await("b prepares", func() bool { return b.annotations("shop", "web")[v1alpha1.AnnotationRole] == "candidate" })
	b.endpoints("shop", "web", "10.1.0.1")
	var phases []v1alpha1.Phase
	if err := m.Wait(t.Context(), func(p migration.Progress) { phases = append(phases, p.Phase) }); err != nil {
		t.Fatal(err)
	}
	if last := phases[len(phases)-1]; last != v1alpha1.PhaseDone {
		t.Errorf("it ended with %s", last)
	}
	a.awaitInUse("shop", "web", "10.1.0.1")
	b.awaitInUse("shop", "web", "10.1.0.1")

	// And back, asked for where it went to.
	cfg.Clusters = []access.Cluster{{Name: "b", Config: b.config()}}
	back, err := NewMigration(cfg, keyOf("shop", "web"), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.await("a prepares", func() bool { return a.annotations("shop", "web")[v1alpha1.AnnotationRole] == "candidate" })
	a.endpoints("shop", "web", "10.0.0.1")
	if err := back.Wait(t.Context(), func(migration.Progress) {}); err != nil {
		t.Fatal(err)
	}
	b.awaitInUse("shop", "web", "10.0.0.1")
}

// Whoever is named must be known, reached or not; nothing is written for another.
func TestMigrateToUnknownCluster(t *testing.T) {
	const reads = `{"spec": {"formatVersion": 1, "cluster": "a", "durationSeconds": 40, "peers": ["b", "c"]}, "status": {"peers": [{"cluster": "d", "message": "d.yaml: is no kubeconfig"}]}}`
	for _, test := range []struct{ to, lease, want string }{
		{"mars", reads, "cluster a knows no cluster mars: it reads b, c; name one"},
		{"mars", `{"spec": {"formatVersion": 1, "cluster": "a", "durationSeconds": 40}}`, "cluster a knows no cluster mars: it reads no other cluster; name one"},
		{"c", reads, ""},
		{"d", reads, ""}, // nothing of it can be read now
		{"a", reads, ""},
		{"mars", "", ""}, // nobody knows yet
	} {
		a := newFakeAPI(t)
		a.service("shop", "web", "10.0.0.1")
		if test.lease != "" {
			a.apply(leases, "sync", "a", test.lease)
		}
		m, err := NewMigration(Config{
			Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync", Pace: access.Pace{QPS: -1}, Logger: slog.New(slog.DiscardHandler),
			Peers: func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() },
		}, keyOf("shop", "web"), test.to)
		if err != nil {
			t.Fatal(err)
		}
		before := a.mark()
		err = m.Start(t.Context())
		switch wrote := len(a.wrote(before)) > 0; {
		case test.want == "" && (err != nil || !wrote):
			t.Errorf("to %s: %v, and written: %t", test.to, err, wrote)
		case test.want != "" && (err == nil || wrote || !strings.HasPrefix(err.Error(), test.want)):
			t.Errorf("to %s: %v, and written: %t; want %s", test.to, err, wrote, test.want)
		case test.want != "":
			if err := m.Preview(t.Context(), io.Discard); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("a preview to %s: %v", test.to, err)
			}
		}
	}
}

// A Service that changes while it is asked for is asked for as it is then.
func TestMigrateOvertaken(t *testing.T) {
	a := newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	m, err := NewMigration(Config{
		Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync", Pace: access.Pace{QPS: -1}, Logger: slog.New(slog.DiscardHandler),
		Peers: func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() },
	}, keyOf("shop", "web"), "b")
	if err != nil {
		t.Fatal(err)
	}
	web := target{collection: services, namespace: "shop", name: "web"}
	a.mu.Lock()
	a.before = func(string, string) error {
		a.before = nil
		a.put("MODIFIED", web, a.objects[web.path()], "SETUP")
		return nil
	}
	a.mu.Unlock()
	if err := m.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

// The handover of an earlier migration says nothing of this one.
func TestProgressIsOfThisMigration(t *testing.T) {
	a := newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	m, err := NewMigration(Config{
		Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync", Pace: access.Pace{QPS: -1}, Logger: slog.New(slog.DiscardHandler),
		Peers: func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() },
	}, keyOf("shop", "web"), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		turn        int64
		phase, want v1alpha1.Phase
	}{
		{1, v1alpha1.PhaseDone, ""},
		{2, v1alpha1.PhasePreparing, v1alpha1.PhasePreparing},
		{2, v1alpha1.PhaseWithdrawn, ""},
	} {
		a.publish("a", "web", v1alpha1.PublishedServiceSpec{Handover: &v1alpha1.Handover{Turn: test.turn, Phase: test.phase}})
		got, err := m.Progress(t.Context())
		if err != nil || got.Phase != test.want || got.Done {
			t.Errorf("with a handover that is %s: %+v, %v; want the phase %q, and not done", test.phase, got, err, test.want)
		}
	}
}

func TestMigrateNothing(t *testing.T) {
	a := newFakeAPI(t)
	m, err := NewMigration(Config{
		Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync", Logger: slog.New(slog.DiscardHandler),
		Peers: func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() },
	}, keyOf("shop", "web"), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err == nil || err.Error() != "cluster a has no Service shop/web" {
		t.Errorf("said %v", err)
	}
}

// How things stand is read from the clusters' APIs alone.
func TestInspect(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1", "10.0.0.2")
	b.apply(spaces, "", "shop", `{}`)
	both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
	pa, pb := start(t, "a", a.config(), both), start(t, "b", b.config(), both)
	b.awaitInUse("shop", "web", "10.0.0.1", "10.0.0.2")
	pa.stop()
	pb.stop()
	found, err := report.Inspect(t.Context(), []access.Cluster{{Name: "a", Config: a.config()}, {Name: "b", Config: b.config()}}, nil, "sync", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Clusters) != 2 || len(found.Services) != 2 {
		t.Fatalf("there are %d clusters and %d Services; want 2 and 2", len(found.Clusters), len(found.Services))
	}
	at, there := found.Services[0], found.Services[1]
	if at.Role != v1alpha1.RoleSource || at.Ready["a"] != 2 || there.Role != v1alpha1.RoleReceiver || there.Ready["a"] != 2 {
		t.Errorf("got %+v and %+v", at, there)
	}
	if name, err := report.WhoIs(t.Context(), b.config(), "sync"); err != nil || name != "b" {
		t.Errorf("b is said to be %q, %v", name, err)
	}
}

// Peers are found in Secrets, as they come.
func TestPeersInSecrets(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	start(t, "a", a.config(), nil)
	start(t, "b", b.config(), func(cfg *Config) {
		cfg.Peers = func(_ access.Cluster, kube kubernetes.Interface) peers.Source {
			return peers.Join(peers.Secrets(kube, "sync"), peers.Folder(t.TempDir()))
		}
	})
	b.await("b works", func() bool { return b.objects[target{leases, "sync", "b", ""}.path()] != nil })
	kubeconfig := `{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: "` + a.srv.URL + `"}}],
		contexts: [{name: x, context: {cluster: x}}]}`
	b.apply("api/v1/secrets", "sync", "peer-a", `{"metadata": {"labels": {"`+peers.Label+`": "a"}}, "data": {"kubeconfig": "`+base64.StdEncoding.EncodeToString([]byte(kubeconfig))+`"}}`)
	b.awaitInUse("shop", "web", "10.0.0.1")
}

// A migration that is committed waits no more for what it waited for before, though
// the condition that says so is written only later.
func TestCommittedWaitsForNothing(t *testing.T) {
	a := newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	m, err := NewMigration(Config{Clusters: []access.Cluster{{Name: "a", Config: a.config()}}, Namespace: "sync"}, keyOf("shop", "web"), "b")
	if err != nil {
		t.Fatal(err)
	}
	for phase, waits := range map[v1alpha1.Phase]string{v1alpha1.PhasePreparing: "waits for b", v1alpha1.PhaseCommitted: ""} {
		a.apply(published, "sync", clusterset.PublicationName(m.Service), fmt.Sprintf(`{
			"spec": {"handover": {"turn": 1, "phase": %q}},
			"status": {"conditions": [{"type": "Migrating", "status": "True", "message": "waits for b"}]}
		}`, phase))
		got, err := m.Progress(t.Context())
		if err != nil || got.Phase != phase || got.Waits != waits {
			t.Errorf("in phase %s it is %+v, %v; want it to wait for %q", phase, got, err, waits)
		}
	}
}
