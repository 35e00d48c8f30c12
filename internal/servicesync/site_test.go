package servicesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/notebook"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/roster"
	"github.com/xbernetes/xbernetes/internal/servicesync/store"
)

// turnDelay is how long a roster gathers changes of what holds for a whole peer.
const turnDelay = 100 * time.Millisecond

func TestMain(m *testing.M) {
	// The broadcaster of Events lets go of its last one in its own time.
	goleak.VerifyTestMain(m)
}

const (
	services  = "api/v1/services"
	spaces    = "api/v1/namespaces"
	slicesOf  = "apis/discovery.k8s.io/v1/endpointslices"
	published = "apis/servicesync.xbernetes.io/v1alpha1/publishedservices"
	pubSlices = "apis/servicesync.xbernetes.io/v1alpha1/publishedslices"
	imports   = "apis/multicluster.x-k8s.io/v1beta1/serviceimports"
	leases    = "apis/servicesync.xbernetes.io/v1alpha1/clusterleases"
)

// apply puts an object that somebody else writes.
func (f *fakeAPI) apply(collection, namespace, name, text string) {
	f.t.Helper()
	obj := map[string]any{}
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tgt := target{collection: collection, namespace: namespace, name: name}
	kind := "ADDED"
	if old, ok := f.objects[tgt.path()]; ok {
		kind = "MODIFIED"
		meta, _ := obj["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			obj["metadata"] = meta
		}
		meta["uid"], meta["creationTimestamp"] = old["metadata"].(map[string]any)["uid"], old["metadata"].(map[string]any)["creationTimestamp"]
	}
	f.put(kind, tgt, obj, "SETUP")
}

func (f *fakeAPI) remove(collection, namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tgt := target{collection: collection, namespace: namespace, name: name}
	f.put("DELETED", tgt, f.objects[tgt.path()], "SETUP")
}

// service makes a Service and a slice with an endpoint.
func (f *fakeAPI) service(namespace, name string, addresses ...string) {
	f.apply(spaces, "", namespace, `{}`)
	f.apply(services, namespace, name, `{"spec": {"type": "ClusterIP", "selector": {"app": "x"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`)
	f.endpoints(namespace, name, addresses...)
}

func (f *fakeAPI) endpoints(namespace, name string, addresses ...string) {
	var list []string
	for _, a := range addresses {
		list = append(list, fmt.Sprintf(`{"addresses": [%q], "conditions": {"ready": true}}`, a))
	}
	f.apply(slicesOf, namespace, name+"-x", fmt.Sprintf(`{"metadata": {"labels": {"kubernetes.io/service-name": %q, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": [%s]}`, name, strings.Join(list, ",")))
}

// inUse are the addresses that a Service is served by; f.mu is held.
func (f *fakeAPI) inUse(namespace, service string) []string {
	var all []string
	for path, obj := range f.objects {
		u := unstructured.Unstructured{Object: obj}
		if !strings.HasPrefix(path, slicesOf+" ") || u.GetNamespace() != namespace || u.GetLabels()["kubernetes.io/service-name"] != service {
			continue
		}
		endpoints, _, _ := unstructured.NestedSlice(clone(obj), "endpoints")
		for _, e := range endpoints {
			for _, a := range e.(map[string]any)["addresses"].([]any) {
				all = append(all, a.(string))
			}
		}
	}
	slices.Sort(all)
	return all
}

func (f *fakeAPI) awaitInUse(namespace, service string, want ...string) {
	f.t.Helper()
	f.await(fmt.Sprintf("%s/%s is served by %v", namespace, service, want), func() bool {
		return slices.Equal(f.inUse(namespace, service), want)
	})
}

// recorder keeps what is logged.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// process is one xb servicesync in a test.
type process struct {
	log     recorder
	metrics *prometheus.Registry
	stop    func()
}

// samples calls do for what the metrics say under a name: the value of a gauge, or
// the count of a histogram.
func (p *process) samples(t *testing.T, name string, do func(labels map[string]string, gauge float64, count uint64)) {
	t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			do(labels, m.GetGauge().GetValue(), m.GetHistogram().GetSampleCount())
		}
	}
}

// peerState is the state that the metrics say a peer is in; empty for none.
func (p *process) peerState(t *testing.T, peer string) (state string) {
	t.Helper()
	p.samples(t, "xb_servicesync_peer_health", func(labels map[string]string, is float64, _ uint64) {
		if labels["peer"] == peer && is == 1 {
			state = labels["state"]
		}
	})
	return state
}

// passes is how many times a Service was decided about.
func (p *process) passes(t *testing.T) (n uint64) {
	t.Helper()
	p.samples(t, "xb_servicesync_pass_seconds", func(_ map[string]string, _ float64, count uint64) { n += count })
	return n
}

// start runs a process for a cluster until stop, or the test's end.
func start(t *testing.T, name string, own *rest.Config, change func(*Config)) *process {
	t.Helper()
	p := &process{metrics: prometheus.NewRegistry()}
	cfg := Config{
		Clusters: []access.Cluster{{Name: name, Config: own, PodRanges: []string{"10.255.0.0/16"}}},
		Peers:    func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() },
		// Nothing in these tests waits for a lease to run out.
		Model:     model.Config{Trust: model.Trusts{model.Everybody: {Selector: true}}}, // heirs in these tests are asked by others
		Namespace: "sync", Lease: time.Hour, Workers: 4, Pace: access.Pace{QPS: -1}, Version: "test",
		Metrics: p.metrics, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&p.log, t.Output()), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- Run(ctx, cfg) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-over:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run did not end")
		}
	})
	t.Cleanup(p.stop)
	return p
}

func reads(all map[string]*rest.Config) func(*Config) {
	return func(cfg *Config) {
		var found []peers.Peer
		for name, config := range all {
			found = append(found, peers.Peer{Name: name, Origin: "test", Config: config})
		}
		cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed(found...) }
	}
}

// transports are the two ways of publications from cluster to cluster.
func transports(t *testing.T, test func(t *testing.T, a, b *fakeAPI, forA, forB func(*Config))) {
	t.Run("direct", func(t *testing.T) {
		a, b := newFakeAPI(t), newFakeAPI(t)
		both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
		test(t, a, b, both, both)
	})
	t.Run("store", func(t *testing.T) {
		a, b, shared := newFakeAPI(t), newFakeAPI(t), newFakeAPI(t)
		through := func(cfg *Config) {
			found, err := store.Peers(shared.config(), cfg.Pace)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Store = shared.config()
			cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return found }
		}
		test(t, a, b, through, through)
	})
}

func TestServiceCrosses(t *testing.T) {
	transports(t, func(t *testing.T, a, b *fakeAPI, forA, forB func(*Config)) {
		a.service("shop", "web", "10.0.0.1", "10.0.0.2")
		b.apply(spaces, "", "shop", `{}`)
		pa, pb := start(t, "a", a.config(), forA), start(t, "b", b.config(), forB)
		b.awaitInUse("shop", "web", "10.0.0.1", "10.0.0.2")
		a.endpoints("shop", "web", "10.0.0.2", "10.0.0.3")
		b.awaitInUse("shop", "web", "10.0.0.2", "10.0.0.3")

		// A restart without changes writes nothing.
		pa.stop()
		pb.stop()
		before, beforeA := b.mark(), a.mark()
		pa, pb = start(t, "a", a.config(), forA), start(t, "b", b.config(), forB)
		a.service("shop", "later", "10.0.0.9")
		b.awaitInUse("shop", "later", "10.0.0.9")
		for _, w := range append(b.wrote(before), a.wrote(beforeA)...) {
			if strings.Contains(w, "web") {
				t.Errorf("written after a restart without changes: %s", w)
			}
		}

		// What goes at the source goes here; a namespace stays.
		a.remove(services, "shop", "web")
		a.remove(slicesOf, "shop", "web-x")
		b.await("the replica is gone", func() bool {
			_, there := b.objects[target{services, "shop", "web", ""}.path()]
			return !there && len(b.inUse("shop", "web")) == 0
		})
		pb.stop()
		pa.stop()
	})
}

// A peer's lease and what it publishes are watched apart. Where a Service is
// gone before the count of them is, nothing goes here; once it is, all does,
// however soon that was.
func TestCountThatComesLate(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
	pa := start(t, "a", a.config(), both)
	start(t, "b", b.config(), both)
	b.awaitInUse("shop", "web", "10.0.0.1")
	pa.stop()
	time.Sleep(3 * turnDelay) // in which what holds for the peer settles
	count := func(n int64) {
		tgt := target{collection: leases, namespace: "sync", name: "a"}
		obj := clone(a.objects[tgt.path()])
		if err := unstructured.SetNestedField(obj, n, "spec", "services"); err != nil {
			t.Error(err)
		}
		a.put("MODIFIED", tgt, obj, "SETUP")
	}
	a.mu.Lock()
	count(2)
	for path, obj := range a.objects {
		if collection, _, _ := strings.Cut(path, " "); collection == published || collection == pubSlices {
			u := unstructured.Unstructured{Object: obj}
			a.put("DELETED", target{collection: collection, namespace: "sync", name: u.GetName()}, obj, "SETUP")
		}
	}
	a.mu.Unlock()
	time.Sleep(turnDelay / 2) // in which the Service is decided about
	a.mu.Lock()
	count(0)
	a.mu.Unlock()
	b.awaitInUse("shop", "web")
}

// store puts an object that somebody else has written.
func (f *fakeAPI) store(collection string, obj model.Object) {
	f.t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(collection, obj.GetNamespace(), obj.GetName(), string(text))
}

// lease puts the lease of a cluster that says how many Services it publishes.
func (f *fakeAPI) lease(cluster string, services int) {
	f.apply(leases, "sync", cluster, fmt.Sprintf(`{"spec": {"formatVersion": 1, "cluster": %q, "durationSeconds": 3600, "complete": true, "services": %d}}`, cluster, services))
}

// publish puts what a cluster publishes of a Service that it gives.
func (f *fakeAPI) publish(cluster, name string, spec v1alpha1.PublishedServiceSpec) {
	spec.FormatVersion, spec.Cluster, spec.Role = v1alpha1.FormatVersion, cluster, v1alpha1.RoleSource
	spec.Service, spec.Template = v1alpha1.ServiceReference{Namespace: "shop", Name: name}, &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP}
	f.store(published, &v1alpha1.PublishedService{ObjectMeta: metav1.ObjectMeta{
		Namespace: "sync", Name: clusterset.PublicationName(keyOf("shop", name)), Labels: map[string]string{v1alpha1.LabelCluster: cluster},
	}, Spec: spec})
}

// The Service that gives an import its address is kept as it should be.
func TestDerivedServiceIsRepaired(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.lease("a", 1)
	a.publish("a", "shared", v1alpha1.PublishedServiceSpec{Exported: &v1alpha1.Export{}})
	b.apply(spaces, "", "shop", `{}`)
	start(t, "b", b.config(), reads(map[string]*rest.Config{"a": a.config()}))
	derived := target{collection: services, namespace: "shop", name: model.DerivedName(keyOf("shop", "shared"))}
	there := func() bool { return b.objects[derived.path()] != nil }
	b.await("the import has its Service", there)
	time.Sleep(3 * turnDelay) // in which everything settles
	b.remove(services, derived.namespace, derived.name)
	b.await("the Service is made again", there)
	time.Sleep(3 * turnDelay) // the same
	b.mu.Lock()
	changed := clone(b.objects[derived.path()])
	_ = unstructured.SetNestedField(changed, "ClientIP", "spec", "sessionAffinity")
	b.put("MODIFIED", derived, changed, "SETUP")
	b.mu.Unlock()
	b.await("the Service is as it was", func() bool {
		affinity, _, _ := unstructured.NestedString(b.objects[derived.path()], "spec", "sessionAffinity")
		return affinity != "ClientIP"
	})
}

// Endpoints that were asked for are kept as they should be.
func TestEndpointsAreRepaired(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
	start(t, "a", a.config(), both)
	start(t, "b", b.config(), func(cfg *Config) {
		cfg.Model.Endpoints = true
		both(cfg)
	})
	object := target{collection: "api/v1/endpoints", namespace: "shop", name: "web"}
	written := func() bool {
		text, _ := json.Marshal(b.objects[object.path()]["subsets"])
		return strings.Contains(string(text), "10.0.0.1")
	}
	b.await("there are Endpoints", written)
	time.Sleep(3 * turnDelay) // in which everything settles
	b.remove(object.collection, object.namespace, object.name)
	b.await("they are made again", written)
	time.Sleep(3 * turnDelay) // the same
	b.mu.Lock()
	changed := clone(b.objects[object.path()])
	delete(changed, "subsets")
	b.put("MODIFIED", object, changed, "SETUP")
	b.mu.Unlock()
	b.await("they are as they were", written)
}

// All that waits until a peer is known to lack it goes once it is: a replica of
// another peer's, an import, its endpoints in an import of others, and an
// answer to it.
func TestWhatWaitsForConfirmation(t *testing.T) {
	a, b, c := newFakeAPI(t), newFakeAPI(t), newFakeAPI(t)
	a.lease("a", 1)
	a.publish("a", "shared", v1alpha1.PublishedServiceSpec{Exported: &v1alpha1.Export{}})
	c.lease("c", 1) // which is not seen

	b.service("shop", "mine", "10.1.0.1")
	b.publish("b", "mine", v1alpha1.PublishedServiceSpec{Seen: []v1alpha1.Seen{{Cluster: "c", Turn: 1, Stays: true}}})
	b.store(services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "replica", Labels: map[string]string{v1alpha1.LabelReplica: "a"}}})
	b.store(imports, &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "import", Labels: map[string]string{v1alpha1.LabelImport: "import"}}})
	b.store(slicesOf, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shared-of-c", Labels: map[string]string{
			discoveryv1.LabelServiceName: model.DerivedName(keyOf("shop", "shared")), discoveryv1.LabelManagedBy: v1alpha1.ManagedBy,
			mcs.LabelServiceName: "shared", mcs.LabelSourceCluster: "c", v1alpha1.LabelCluster: "c",
		}, Annotations: map[string]string{v1alpha1.AnnotationFrom: "c/shared-0=1"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.2.0.1"}}},
	})
	start(t, "b", b.config(), reads(map[string]*rest.Config{"a": a.config(), "c": c.config()}))
	b.await("the import of what a exports has its Service", func() bool {
		return b.objects[target{services, "shop", model.DerivedName(keyOf("shop", "shared")), ""}.path()] != nil
	})
	time.Sleep(3 * turnDelay) // in which what holds for the peers settles
	waiting := func() map[string]bool {
		own := b.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "mine")), ""}.path()]
		_, answers, _ := unstructured.NestedFieldNoCopy(own, "spec", "seen")
		return map[string]bool{
			"an answer": answers,
			"a replica": b.objects[target{services, "shop", "replica", ""}.path()] != nil,
			"an import": b.objects[target{imports, "shop", "import", ""}.path()] != nil,
			"endpoints": b.objects[target{slicesOf, "shop", "shared-of-c", ""}.path()] != nil,
		}
	}
	b.mu.Lock()
	all := waiting()
	b.mu.Unlock()
	for what, waits := range all {
		if !waits {
			t.Errorf("%s did not wait", what)
		}
	}
	c.lease("c", 0)
	for what := range all {
		b.await(what+" is gone", func() bool { return !waiting()[what] })
	}
}

// What a peer has is not decided about anew because more is known of what it lacks.
func TestWhatConfirmsNothing(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	b.apply(spaces, "", "shop", `{}`)
	a.lease("a", 1)
	a.publish("a", "web", v1alpha1.PublishedServiceSpec{Ready: 1, Total: 1, Slices: []v1alpha1.InlineSlice{{
		Name: "web-0", PublishedEndpoints: v1alpha1.PublishedEndpoints{
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []v1alpha1.EndpointGroup{{Addresses: []string{"10.0.0.1"}, Ready: true, Serving: true}},
		},
	}}})
	p := start(t, "b", b.config(), reads(map[string]*rest.Config{"a": a.config()}))
	b.awaitInUse("shop", "web", "10.0.0.1")
	rest := func() (passes uint64) {
		for {
			time.Sleep(3 * turnDelay)
			now := p.passes(t)
			if now == passes {
				return now
			}
			passes = now
		}
	}
	before := rest()
	for _, services := range []int{2, 1} { // one is not seen; all are
		a.lease("a", services)
		if now := rest(); now != before {
			t.Errorf("%d passes more once the lease says %d", now-before, services)
		}
	}
}

// newBareSite is the site of a cluster a, of which nothing runs.
func newBareSite(t *testing.T, f *fakeAPI) *site {
	t.Helper()
	a, err := access.New(f.config(), access.Pace{QPS: -1}, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSite(&site{model: model.Config{Cluster: "a"}, own: a, publications: a, log: slog.New(slog.DiscardHandler)}, time.Hour, roster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.queue.ShutDown)
	return s
}

// runBeside runs until the test ends, and is over by then.
func runBeside(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
}

// A write that changes nothing is not waited for: no event comes of it, and another
// pass would only write it again.
func TestWriteThatChangesNothing(t *testing.T) {
	f := newFakeAPI(t)
	f.service("shop", "web", "10.0.0.1")
	s := newBareSite(t, f)
	runBeside(t, s.informers.services.Run)
	for !s.informers.services.Synced() {
		access.Pause(t.Context(), time.Millisecond)
	}
	web := keyOf("shop", "web")
	there := s.informers.services.Get(web.Namespace, web.Name)
	changed := there.DeepCopy()
	changed.Annotations = map[string]string{"by": "test"}
	for _, w := range []model.Write{
		{Verb: model.Update, Where: model.Own, Object: there, Before: there},
		{Verb: model.Update, Where: model.Own, Object: changed, Before: there},
	} {
		if err := s.write(t.Context(), web, w); err != nil {
			t.Fatal(err)
		}
		if waits := !s.notes.CaughtUp(web, time.Now()); waits && w.Object == w.Before {
			t.Error("what changes nothing is waited for")
		}
	}
	for !s.notes.CaughtUp(web, time.Now()) {
		access.Pause(t.Context(), time.Millisecond)
	}
	if got := s.informers.services.Get(web.Namespace, web.Name).Annotations["by"]; got != "test" {
		t.Errorf("nothing waited until the change was seen, and it is %q", got)
	}
}

// A Service whose write no event ever shows is decided about all the same.
func TestWriteThatIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := access.New(&rest.Config{Host: "http://none"}, access.Pace{QPS: -1}, "test")
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSite(&site{model: model.Config{Cluster: "a"}, own: a, publications: a, log: slog.New(slog.DiscardHandler)}, time.Hour, roster.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.queue.ShutDown()
		web, waits := keyOf("shop", "web"), keyOf("shop", "waits")
		never := func() bool { return false }
		s.notes.Wrote(web, never)
		time.Sleep(notebook.Patience - time.Millisecond)
		s.notes.Wrote(waits, never)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.overdue(ctx)
		}()
		if k, _ := s.queue.Get(); k != web || !s.notes.CaughtUp(k, time.Now()) {
			t.Errorf("%s is decided about, or waits on", k)
		}
		if s.notes.CaughtUp(waits, time.Now()) {
			t.Error("nothing is waited for")
		}
		stop()
		<-over
	})
}

// A peer that accepts connections and never answers holds nobody up, neither at
// the start nor at the end.
func TestDeadPeerDelaysNothing(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	all := map[string]*rest.Config{
		"a": a.config(), "b": b.config(), "dead": {Host: "http://" + lis.Addr().String()},
		"refusing": {Host: "http://127.0.0.1:1"},
	}
	pa, pb := start(t, "a", a.config(), reads(all)), start(t, "b", b.config(), reads(all))
	b.awaitInUse("shop", "web", "10.0.0.1")
	b.await("the lease says what is wrong", func() bool {
		lease := b.objects[target{leases, "sync", "b", ""}.path()]
		text, _ := json.Marshal(lease["status"])
		return strings.Contains(string(text), "peer refusing cannot be reached")
	})
	b.mu.Lock()
	var lease v1alpha1.ClusterLease
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(clone(b.objects[target{leases, "sync", "b", ""}.path()]), &lease)
	b.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range lease.Status.Peers {
		if p.Cluster != "a" && (p.State != "Unknown" || p.Heard != nil) {
			t.Errorf("%s was never reached, and is said to be %s, heard %v", p.Cluster, p.State, p.Heard)
		}
	}
	for start := time.Now(); pb.peerState(t, "a") != "Live"; time.Sleep(50 * time.Millisecond) { // until gauges are set once more
		if time.Since(start) > 30*time.Second {
			t.Fatal("the metrics do not say that a peer that is read is Live")
		}
	}
	if state := pb.peerState(t, "refusing"); state != "Unknown" {
		t.Errorf("the metrics say that a peer that was never reached is %s", state)
	}
	pa.stop()
	pb.stop()
	for line := range strings.Lines(pb.log.String()) {
		if strings.Contains(line, "peer=refusing") && strings.Contains(line, "state=Live") {
			t.Errorf("logged of a peer that was never reached: %s", line)
		}
	}
}

// A peer whose client hangs, as one does whose credential plugin hangs, keeps
// nobody from reading others, nor the process from its end.
func TestHungClientDelaysNothing(t *testing.T) {
	for name, c := range map[string]struct {
		watches bool // that hang, and not lists
		left    int  // readings that do not end
	}{"at a list": {false, 0}, "at a watch": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			a, b := newFakeAPI(t), newFakeAPI(t)
			a.service("shop", "web", "10.0.0.1")
			b.apply(spaces, "", "shop", `{}`)
			release, hung := make(chan struct{}), make(chan struct{}, 100)
			transport := answers(func(r *http.Request) (*http.Response, error) {
				if c.watches && r.URL.Query().Get("watch") == "" {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(
						`{"apiVersion":"servicesync.xbernetes.io/v1alpha1","kind":"ClusterLeaseList","metadata":{"resourceVersion":"1"},"items":[]}`))}, nil
				}
				hung <- struct{}{}
				<-release // whether or not the request's context has ended
				return nil, errors.New("released")
			})
			source := make(source)
			start(t, "a", a.config(), nil)
			pb := start(t, "b", b.config(), func(cfg *Config) {
				cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return source }
			})
			t.Cleanup(func() { close(release) })
			hanging := peers.Peer{Name: "hanging", Origin: "test", Config: &rest.Config{Host: "http://hanging", Transport: transport}}
			source <- []peers.Peer{hanging}
			for range 3 { // kinds of publications
				<-hung
			}
			source <- []peers.Peer{{Name: "a", Origin: "test", Config: a.config()}}
			b.awaitInUse("shop", "web", "10.0.0.1")
			hanging.Fingerprint = "another"
			source <- []peers.Peer{hanging}
			<-hung
			pb.stop()
			if n := strings.Count(pb.log.String(), "is left running"); n != c.left {
				t.Errorf("%d clients are said to hang, want %d", n, c.left)
			}
		})
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// An API without Services is said to have none, once, and is left as it is.
func TestNoServices(t *testing.T) {
	f := newFakeAPI(t)
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, resource := range []string{"services", "endpoints", "endpointslices"} {
			if strings.HasSuffix(r.URL.Path, "/"+resource) {
				http.NotFound(w, r)
				return
			}
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		bare.CloseClientConnections()
		bare.Close()
	})
	var log recorder
	cfg := Config{Namespace: "sync", Pace: access.Pace{QPS: -1}, Peers: func(access.Cluster, kubernetes.Interface) peers.Source { return peers.Fixed() }}
	term := &term{
		cfg: cfg, cluster: access.Cluster{Name: "a", Config: &rest.Config{Host: bare.URL}},
		metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	if err := term.connect(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would work for the cluster without end
	defer cancel()
	err := term.hold(ctx)
	if got := access.Explain(err, "cluster a"); !strings.HasPrefix(got, "cluster a has no Services to sync") {
		t.Errorf("%v is explained as %q", err, got)
	}
	if wrote := f.wrote(0); len(wrote) > 0 || log.String() != "" {
		t.Errorf("wrote %v, and said besides: %s", wrote, log.String())
	}
}

// Peers come and go while the process runs.
func TestPeersComeAndGo(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	source := make(source)
	start(t, "a", a.config(), nil)
	start(t, "b", b.config(), func(cfg *Config) {
		cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return source }
	})
	peer := peers.Peer{Name: "a", Origin: "test", Config: a.config()}
	source <- nil
	source <- []peers.Peer{{Name: "bad", Origin: "bad.yaml", Err: errors.New("bad.yaml: is no kubeconfig")}, peer}
	b.awaitInUse("shop", "web", "10.0.0.1")
	b.await("the lease names the peer, and the fault", func() bool {
		lease := b.objects[target{leases, "sync", "b", ""}.path()]
		text, _ := json.Marshal(lease)
		return strings.Contains(string(text), `"peers":["a"]`) && strings.Contains(string(text), "bad.yaml: is no kubeconfig")
	})
	source <- nil
	b.await("the lease names no peer", func() bool {
		lease := b.objects[target{leases, "sync", "b", ""}.path()]
		_, named, _ := unstructured.NestedSlice(clone(lease), "spec", "peers")
		return !named
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.inUse("shop", "web"); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("a peer was taken out, and its endpoints went at once: %v are left", got)
	}
}

// The lease of a peer that is no longer read runs out all the same, be it that
// it was taken out while no process ran.
func TestPeerThatIsTakenOutExpires(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			a, b := newFakeAPI(t), newFakeAPI(t)
			for f, address := range map[*fakeAPI]string{a: "10.0.0.1", b: "10.1.0.1"} {
				f.service("shop", "web", address)
				f.apply(services, "shop", "web", `{"metadata": {"annotations": {"servicesync.xbernetes.io/mode": "union"}},
					"spec": {"type": "ClusterIP", "selector": {"app": "x"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`)
			}
			source := make(source)
			takes := func(cfg *Config) {
				cfg.Lease = time.Second
				cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return source }
			}
			start(t, "a", a.config(), func(cfg *Config) { cfg.Lease = time.Second })
			pb := start(t, "b", b.config(), takes)
			source <- []peers.Peer{{Name: "a", Origin: "test", Config: a.config()}}
			b.awaitInUse("shop", "web", "10.0.0.1", "10.1.0.1")
			b.await("the lease remembers the peer", func() bool {
				text, _ := json.Marshal(b.objects[target{leases, "sync", "b", ""}.path()]["status"])
				return strings.Contains(string(text), `"durationSeconds":1`)
			})
			if restart {
				pb.stop()
				start(t, "b", b.config(), takes)
			}
			source <- nil
			b.await("what came from the peer is marked as expired", func() bool {
				return slices.ContainsFunc(b.paths(), func(path string) bool {
					u := unstructured.Unstructured{Object: b.objects[path]}
					return u.GetAnnotations()[v1alpha1.AnnotationStale] == v1alpha1.StaleExpired
				})
			})
		})
	}
}

// Of a peer that is to be forgotten the lease remembers nothing.
func TestForgottenPeerLeavesTheLease(t *testing.T) {
	b := newFakeAPI(t)
	lease := target{collection: leases, namespace: "sync", name: "b"}
	b.apply(leases, "sync", "b", `{"spec": {"formatVersion": 1, "cluster": "b", "durationSeconds": 3600},
		"status": {"peers": [{"cluster": "west", "state": "Expired", "heard": "2026-01-01T00:00:00.000000Z"}, {"cluster": "east", "state": "Expired", "heard": "2026-01-01T00:00:00.000000Z"}]}}`)
	start(t, "b", b.config(), func(cfg *Config) { cfg.Forget = []string{"west"} })
	b.await("the lease remembers the other one only", func() bool {
		text, _ := json.Marshal(b.objects[lease.path()]["status"])
		return strings.Contains(string(text), `"east"`) && !strings.Contains(string(text), `"west"`)
	})
}

// A process that starts goes on naming the peers that the one before it read,
// until it knows better: who hands over waits for the answers of those who read it.
func TestRestartNamesPeers(t *testing.T) {
	b := newFakeAPI(t)
	source := make(source)
	takes := func(cfg *Config) {
		cfg.Lease = time.Second // its status is written as often as it is renewed
		cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return source }
	}
	named := func(lease map[string]any) []string {
		names, _, _ := unstructured.NestedStringSlice(lease, "spec", "peers")
		return names
	}
	lease := target{collection: leases, namespace: "sync", name: "b"}
	p := start(t, "b", b.config(), takes)
	source <- []peers.Peer{{Name: "a", Origin: "test", Config: &rest.Config{Host: "http://127.0.0.1:1"}}}
	b.await("the lease names the peer", func() bool { return slices.Equal(named(b.objects[lease.path()]), []string{"a"}) })
	p.stop()
	b.mu.Lock()
	before := len(b.events)
	b.mu.Unlock()
	start(t, "b", b.config(), takes)
	b.await("the lease is renewed", func() bool {
		return slices.ContainsFunc(b.events[before:], func(e fakeEvent) bool { return e.collection == leases })
	})
	for _, fault := range []string{"no secrets today", "still none"} {
		source <- []peers.Peer{{Name: "sync", Origin: "secrets", Unread: true, Err: errors.New(fault)}}
		b.await("the lease names the fault", func() bool {
			text, _ := json.Marshal(b.objects[lease.path()]["status"])
			return strings.Contains(string(text), fault)
		})
	}
	b.mu.Lock()
	for _, e := range b.events[before:] {
		if got := named(e.object); e.collection == leases && !slices.Equal(got, []string{"a"}) {
			t.Errorf("before anybody said who is to be read, the lease names %v", got)
		}
	}
	b.mu.Unlock()
	source <- nil
	b.await("the lease names no peer", func() bool { return len(named(b.objects[lease.path()])) == 0 })
}

type source chan []peers.Peer

func (s source) Run(ctx context.Context, found func([]peers.Peer)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-s:
			found(p)
		}
	}
}

// The lease says how many Services there are before there are as many, and
// Complete only once there are.
func TestCountIsAnnounced(t *testing.T) {
	a := newFakeAPI(t)
	const n = 40
	for i := range n {
		a.service("shop", fmt.Sprintf("web-%d", i), "10.0.0.1")
	}
	lease := func() (services int64, complete bool) {
		spec, _ := a.objects[target{leases, "sync", "a", ""}.path()]["spec"].(map[string]any)
		switch n := spec["services"].(type) {
		case float64:
			services = int64(n)
		case int64:
			services = n
		}
		complete, _ = spec["complete"].(bool)
		return services, complete
	}
	count := func() (n int64) {
		for path := range a.objects {
			if strings.HasPrefix(path, published+" ") {
				n++
			}
		}
		return n
	}
	a.before = func(method, path string) error {
		said, complete := lease()
		switch there := count(); {
		case !strings.HasPrefix(path, published+" ") || method != "POST":
		case complete && there < n:
			t.Error("the lease says that all is published, and it is not")
		case complete && said < there+1:
			t.Errorf("%s is created as number %d, and the lease says %d", path, there+1, said)
		}
		return nil
	}
	start(t, "a", a.config(), nil)
	publishes := func(n int64) {
		t.Helper()
		a.await("all is published", func() bool {
			said, complete := lease()
			return complete && said == n && count() == n
		})
	}
	publishes(n)
	writes := func() (n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.events {
			if e.collection == leases {
				n++
			}
		}
		return n
	}
	if n := writes(); n > 10 {
		t.Errorf("the lease was written %d times before it said that all is published", n)
	}
	for i := range n {
		a.service("shop", fmt.Sprintf("late-%d", i), "10.0.0.2")
	}
	publishes(2 * n)
}

// What was announced and is not to be is taken back: a Service that takes many
// attempts counts once.
func TestCountIsTakenBack(t *testing.T) {
	for name, refuse := range map[string]func(a *fakeAPI){
		"the lease is not written": func(a *fakeAPI) {
			failed := 0
			a.before = func(_, path string) error {
				if !strings.HasPrefix(path, leases+" ") || failed == 2 {
					return nil
				}
				failed++
				return errors.New("the store is away")
			}
		},
		"the Service is not published": func(a *fakeAPI) {
			denied := 0
			a.denied = func(verb, resource string) bool {
				if verb != "create" || resource != "publishedservices" || denied == 6 {
					return false
				}
				denied++
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI(t)
			a.service("shop", "web", "10.0.0.1")
			refuse(a)
			start(t, "a", a.config(), nil)
			a.await("it is published", func() bool {
				return a.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "web")), ""}.path()] != nil
			})
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, e := range a.events {
				said, _, _ := unstructured.NestedFieldNoCopy(e.object, "spec", "services")
				if e.collection == leases && said != nil && fmt.Sprint(said) != "1" {
					t.Errorf("the lease says that %v Services are published", said)
				}
			}
		})
	}
}

// Somebody else's change between the reading of a Service and the writing of it
// is kept, and one that the store did not take is made again.
func TestForeignChangesAreKept(t *testing.T) {
	a, b := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	b.apply(spaces, "", "shop", `{}`)
	both := reads(map[string]*rest.Config{"a": a.config(), "b": b.config()})
	start(t, "a", a.config(), both)
	var once sync.Once
	b.before = func(method, path string) error {
		if strings.HasPrefix(path, services+" ") && method == "PATCH" {
			once.Do(func() {
				tgt := target{collection: services, namespace: "shop", name: "web"}
				obj := clone(b.objects[tgt.path()])
				_ = unstructured.SetNestedField(obj, "yes", "metadata", "labels", "theirs")
				b.put("MODIFIED", tgt, obj, "SETUP")
			})
		}
		if strings.HasPrefix(path, slicesOf+" ") && method == "POST" && b.version%2 == 0 {
			b.version++
			return errors.New("the store is away")
		}
		return nil
	}
	start(t, "b", b.config(), both)
	b.awaitInUse("shop", "web", "10.0.0.1")
	a.apply(services, "shop", "web", `{"spec": {"type": "ClusterIP", "selector": {"app": "x"}, "sessionAffinity": "ClientIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`)
	b.await("the Service follows, and keeps the label", func() bool {
		obj := b.objects[target{services, "shop", "web", ""}.path()]
		label, _, _ := unstructured.NestedString(obj, "metadata", "labels", "theirs")
		affinity, _, _ := unstructured.NestedString(obj, "spec", "sessionAffinity")
		return label == "yes" && affinity == "ClientIP"
	})
}

func TestMissingRights(t *testing.T) {
	a := newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	a.denied = func(verb, resource string) bool { return verb == "delete" && resource == "endpointslices" }
	p := start(t, "a", a.config(), nil)
	a.await("the lease says which right is missing", func() bool {
		text, _ := json.Marshal(a.objects[target{leases, "sync", "a", ""}.path()]["status"])
		return strings.Contains(string(text), "may not delete endpointslices.discovery.k8s.io")
	})
	if !strings.Contains(p.log.String(), `right="delete endpointslices.discovery.k8s.io"`) {
		t.Error("the log does not name the right")
	}
}

// A cluster that serves ServiceExports, and does not let them be read, is
// worked for all the same, and says what is the matter.
func TestExportsThatMayNotBeRead(t *testing.T) {
	a := newFakeAPI(t)
	version := metav1.GroupVersionForDiscovery{GroupVersion: mcs.GroupVersion.String(), Version: mcs.GroupVersion.Version}
	a.groups = []metav1.APIGroup{{Name: mcs.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}}}
	a.service("shop", "web", "10.0.0.1")
	a.denied = func(_, resource string) bool { return resource == "serviceexports" }
	p := start(t, "a", a.config(), func(cfg *Config) { cfg.Lease = time.Second }) // for await to look again
	a.await("the Service is published, and the fault is said", func() bool {
		return a.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "web")), ""}.path()] != nil &&
			strings.Contains(p.log.String(), "own cluster cannot be read")
	})
}

// Of two processes one works; when it stops, the other does.
func TestLeaderElection(t *testing.T) {
	a := newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	as := func(name string) func(*Config) { return func(cfg *Config) { cfg.Identity = name } }
	one := start(t, "a", a.config(), as("one"))
	a.await("one works", func() bool {
		return a.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "web")), ""}.path()] != nil
	})
	two := start(t, "a", a.config(), as("two"))
	a.service("shop", "later", "10.0.0.2")
	a.await("one still works", func() bool {
		return a.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "later")), ""}.path()] != nil
	})
	if strings.Contains(two.log.String(), "working for cluster") {
		t.Error("both work")
	}
	one.stop()
	a.service("shop", "last", "10.0.0.3")
	a.await("two works", func() bool {
		return a.objects[target{published, "sync", clusterset.PublicationName(keyOf("shop", "last")), ""}.path()] != nil
	})
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
