package servicesync

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/store"
)

// hostile is a peer that publishes what it likes: directly, as an API server of its
// own, or with the right to write to one namespace of a store.
type hostile struct {
	api       *fakeAPI
	namespace string
}

// besieged starts an honest cluster a beside a hostile peer, over each transport.
func besieged(t *testing.T, change func(*Config), test func(t *testing.T, a *fakeAPI, evil hostile, p *process)) {
	begin := func(t *testing.T, evil hostile, meet func(*Config)) {
		a := newFakeAPI(t)
		a.service("shop", "web", "10.0.0.1")
		evil.lease("evil")
		p := start(t, "a", a.config(), func(cfg *Config) {
			cfg.Model.Trust = nil
			cfg.Workers = 1 // what was published first is decided about first
			meet(cfg)
			if change != nil {
				change(cfg)
			}
		})
		test(t, a, evil, p)
	}
	t.Run("direct", func(t *testing.T) {
		evil := hostile{newFakeAPI(t), "sync"}
		begin(t, evil, reads(map[string]*rest.Config{"evil": evil.api.config()}))
	})
	t.Run("store", func(t *testing.T) {
		evil := hostile{newFakeAPI(t), "evil"}
		evil.api.apply(spaces, "", "evil", `{"metadata": {"labels": {"servicesync.xbernetes.io/cluster": "evil"}}}`)
		begin(t, evil, func(cfg *Config) {
			found, err := store.Peers(evil.api.config(), cfg.Pace)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Store = evil.api.config()
			cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return found }
		})
	})
}

func (h hostile) lease(as string) {
	h.api.apply(leases, h.namespace, as, fmt.Sprintf(`{"spec": {"formatVersion": 1, "cluster": %q, "durationSeconds": 2000000000, "complete": true, "peers": ["a"]}}`, as))
}

// publish puts a publication as it is; what is not said is what an honest cluster
// would say of a Service that it has.
func (h hostile) publish(namespace, name string, change func(*v1alpha1.PublishedServiceSpec)) {
	port, http, tcp := int32(8080), "http", corev1.ProtocolTCP
	spec := v1alpha1.PublishedServiceSpec{
		FormatVersion: v1alpha1.FormatVersion, Cluster: "evil", Role: v1alpha1.RoleSource, Ready: 1, Total: 1,
		Service:  v1alpha1.ServiceReference{Namespace: namespace, Name: name},
		Template: &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
		Slices: []v1alpha1.InlineSlice{{Name: name + "-0", PublishedEndpoints: v1alpha1.PublishedEndpoints{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port, Protocol: &tcp}},
			Endpoints: []v1alpha1.EndpointGroup{{Addresses: []string{"10.66.0.1"}, Ready: true, Serving: true}},
		}}},
	}
	if change != nil {
		change(&spec)
	}
	h.api.store(published, &v1alpha1.PublishedService{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.namespace, Name: clusterset.PublicationName(keyOf(namespace, name)), Labels: map[string]string{v1alpha1.LabelCluster: "evil"},
	}, Spec: spec})
}

// withdraw removes all that was published.
func (h hostile) withdraw() {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	for path, obj := range h.api.objects {
		if collection, _, _ := strings.Cut(path, " "); collection == published {
			u := unstructured.Unstructured{Object: obj}
			h.api.put("DELETED", target{collection: collection, namespace: u.GetNamespace(), name: u.GetName()}, obj, "SETUP")
		}
	}
}

// decided waits until all that was published so far was decided about.
func (h hostile) decided(a *fakeAPI) {
	for _, marker := range []string{"marker", "marker-2"} {
		h.publish("shop", marker, nil)
		a.awaitInUse("shop", marker, "10.66.0.1")
	}
}

// turnOf is the turn of the handover that a has under way, as any peer can read it.
func (h hostile) turnOf(a *fakeAPI) int64 {
	name := clusterset.PublicationName(keyOf("shop", "web"))
	found := a.get(published, "sync", name)
	if found == nil {
		found = h.api.get(published, "a", name)
	}
	turn, _, _ := unstructured.NestedFloat64(found, "spec", "handover", "turn")
	return int64(turn)
}

// get is an object of the cluster's, or nil; f.mu is not held.
func (f *fakeAPI) get(collection, namespace, name string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if obj, ok := f.objects[target{collection: collection, namespace: namespace, name: name}.path()]; ok {
		return clone(obj)
	}
	return nil
}

// TestHostileTakeover: whatever a peer says of itself, a Service that was created
// here and has no annotation stays as it is.
func TestHostileTakeover(t *testing.T) {
	besieged(t, nil, func(t *testing.T, a *fakeAPI, evil hostile, _ *process) {
		before := a.get(services, "shop", "web")
		turn := &v1alpha1.Handover{Turn: 1 << 40, Phase: v1alpha1.PhaseJoining, Heirs: []string{"evil"}, Need: 1}
		for _, say := range []func(*v1alpha1.PublishedServiceSpec){
			func(s *v1alpha1.PublishedServiceSpec) { s.Replica, s.Mode, s.Asked = true, v1alpha1.ModeSource, true },
			func(s *v1alpha1.PublishedServiceSpec) {
				s.Replica, s.Mode, s.Role = true, v1alpha1.ModeSource, v1alpha1.RoleCandidate
			},
			func(s *v1alpha1.PublishedServiceSpec) {
				s.Replica, s.Mode, s.Role = true, v1alpha1.ModeUnion, v1alpha1.RoleUnion
			},
			func(s *v1alpha1.PublishedServiceSpec) { s.Replica, s.Handover = true, turn },
			func(s *v1alpha1.PublishedServiceSpec) { s.Asked, s.Handover = true, turn },
		} {
			for range 4 { // it reads how far a has come, and answers that
				seen := v1alpha1.Seen{Cluster: "a", Turn: evil.turnOf(a), Ready: 1, Stays: true}
				evil.publish("shop", "web", func(s *v1alpha1.PublishedServiceSpec) { say(s); s.Seen = []v1alpha1.Seen{seen} })
				evil.decided(a)
			}
		}
		if after := a.get(services, "shop", "web"); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the Service was\n%v and is\n%v", before, after)
		}
		a.awaitInUse("shop", "web", "10.0.0.1")
	})
}

// TestHostileTemplate: a replica is a plain Service, whatever it is made from.
func TestHostileTemplate(t *testing.T) {
	besieged(t, nil, func(t *testing.T, a *fakeAPI, evil hostile, _ *process) {
		class := "evil"
		lie := func(s *v1alpha1.PublishedServiceSpec) {
			s.Mode, s.Role = v1alpha1.ModeUnion, v1alpha1.RoleUnion
			s.Template.Type, s.Template.LoadBalancerClass, s.Template.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, &class, []string{"0.0.0.0/0"}
			s.Template.Ports[0].NodePort = 30080
			s.Template.Selector = map[string]string{"app": "x"}
			s.Template.Labels = map[string]string{v1alpha1.LabelImport: "x", discoveryv1.LabelManagedBy: "helm", "team": "evil"}
			s.Template.Annotations = map[string]string{
				"external-dns.alpha.kubernetes.io/hostname": "bank.example.com", v1alpha1.AnnotationMode: "source", v1alpha1.AnnotationSelector: `{"app":"x"}`,
			}
			s.Handover = &v1alpha1.Handover{Turn: 1, Phase: v1alpha1.PhaseJoining, Heirs: []string{"a"}, Need: 1}
		}
		evil.publish("shop", "api", lie)
		evil.publish("shop", "out", func(s *v1alpha1.PublishedServiceSpec) {
			s.Template.Type, s.Template.ExternalName = corev1.ServiceTypeExternalName, "evil.example.com"
		})
		a.awaitInUse("shop", "api", "10.66.0.1")
		evil.publish("shop", "api", func(s *v1alpha1.PublishedServiceSpec) { lie(s); s.Ready = 2 })
		evil.decided(a)
		got := a.get(services, "shop", "api")
		spec := got["spec"].(map[string]any)
		for _, field := range []string{"selector", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy", "externalIPs"} {
			if spec[field] != nil {
				t.Errorf("%s is %v", field, spec[field])
			}
		}
		if spec["type"] != "ClusterIP" || strings.Contains(fmt.Sprint(spec), "30080") {
			t.Errorf("it is exposed: %v", spec)
		}
		u := unstructured.Unstructured{Object: got}
		if labels := u.GetLabels(); len(labels) != 1 || labels[v1alpha1.LabelReplica] != "evil" {
			t.Errorf("it has the labels %v", labels)
		}
		if annotations := u.GetAnnotations(); len(annotations) > 0 {
			t.Errorf("it has the annotations %v", annotations)
		}
		if a.get(services, "shop", "out") != nil {
			t.Error("clients are sent to a name of the peer's choice")
		}

		// All of it goes.
		evil.withdraw()
		a.await("what was withdrawn is gone", func() bool {
			for path := range a.objects {
				if strings.Contains(path, " shop/") && !strings.Contains(path, "shop/web") && !strings.Contains(path, "events") {
					return false
				}
			}
			return true
		})
	})
}

// TestHostileEndpoints: no endpoint of a peer has an address that cannot be a pod's
// in another cluster, or that is this cluster's own; and others are not held up.
func TestHostileEndpoints(t *testing.T) {
	besieged(t, nil, func(t *testing.T, a *fakeAPI, evil hostile, p *process) {
		evil.publish("shop", "api", func(s *v1alpha1.PublishedServiceSpec) {
			s.Slices[0].Endpoints[0].Addresses = []string{"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "100.100.100.200", "10.255.3.4", "10.66.0.9", "localhost", ""}
		})
		a.awaitInUse("shop", "api", "10.66.0.9")
		if !strings.Contains(p.log.String(), "AddressNotAllowed") {
			t.Error("nothing is said of it")
		}
		evil.publish("shop", "bad", func(s *v1alpha1.PublishedServiceSpec) { *s.Slices[0].Ports[0].Port = 99999 })
		evil.publish("shop", "worse", func(s *v1alpha1.PublishedServiceSpec) { s.Slices[0].Endpoints[0].Hostname = "-" })
		evil.decided(a)
		for _, name := range []string{"bad", "worse"} {
			if a.get(services, "shop", name) != nil {
				t.Errorf("there is a replica of %s", name)
			}
		}
		if n := strings.Count(p.log.String(), "PublicationRefused"); n < 2 {
			t.Errorf("%d publications are said to be refused", n)
		}
	})
}

// TestPeerNamespaces: a peer publishes for the namespaces that it is given, and what
// was used of it in others goes.
func TestPeerNamespaces(t *testing.T) {
	trust := func(cfg *Config) { cfg.Model.Trust = model.Trusts{"evil": {Namespaces: []string{"shop"}}} }
	besieged(t, trust, func(t *testing.T, a *fakeAPI, evil hostile, _ *process) {
		a.apply(spaces, "", "pay", `{}`)
		a.apply(services, "pay", "old", `{"metadata": {"labels": {"servicesync.xbernetes.io/replica-of": "evil"}}, "spec": {"type": "ClusterIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`)
		evil.publish("pay", "api", nil)
		evil.publish("pay", "old", nil)
		evil.decided(a)
		a.await("nothing of it is in pay", func() bool {
			return !slices.ContainsFunc(a.paths(), func(path string) bool { return strings.HasPrefix(path, services+" pay/") })
		})
	})
}

// TestStoreNames: in a store, only those speak for a name whose namespace an
// administrator of the store has said to be that cluster's.
func TestStoreNames(t *testing.T) {
	a, shared := newFakeAPI(t), newFakeAPI(t)
	a.service("shop", "web", "10.0.0.1")
	tenant, twin, evil := hostile{shared, "tenant"}, hostile{shared, "twin"}, hostile{shared, "evil"}
	shared.apply(spaces, "", "tenant", `{}`)
	shared.apply(spaces, "", "twin", `{"metadata": {"labels": {"servicesync.xbernetes.io/cluster": "evil"}}}`)
	shared.apply(spaces, "", "evil", `{"metadata": {"labels": {"servicesync.xbernetes.io/cluster": "evil"}}}`)
	for _, h := range []hostile{tenant, twin, evil} {
		h.lease(h.namespace)
		h.lease("evil")
	}
	for _, h := range []hostile{tenant, twin} {
		h.publish("shop", "api", func(s *v1alpha1.PublishedServiceSpec) { s.Cluster = h.namespace })
		h.publish("shop", "db", nil)
	}
	p := start(t, "a", a.config(), func(cfg *Config) {
		found, err := store.Peers(shared.config(), cfg.Pace)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store, cfg.Workers = shared.config(), 1
		cfg.Peers = func(access.Cluster, kubernetes.Interface) peers.Source { return found }
	})
	evil.decided(a)
	for _, name := range []string{"api", "db"} {
		if a.get(services, "shop", name) != nil {
			t.Errorf("there is a replica of %s", name)
		}
	}
	if log := p.log.String(); strings.Contains(log, "peer=tenant") || strings.Contains(log, "peer=twin") {
		t.Error("a namespace that nobody labelled names a cluster")
	}
}
