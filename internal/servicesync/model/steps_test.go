package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
)

// These tests give each step of a decision the values of the steps before, and look at
// the value that it returns. What the steps do together is tested by the transcripts
// and simulations.

var (
	key = types.NamespacedName{Namespace: "shop", Name: "cart"}
	now = time.Unix(1000, 0)
)

// member returns what a cluster publishes in a role; change may be nil.
func member(id ClusterID, role v1alpha1.Role, change func(*clusterset.Member)) clusterset.Member {
	m := clusterset.Member{ID: id, Health: Live, PublishedServiceSpec: v1alpha1.PublishedServiceSpec{
		FormatVersion: v1alpha1.FormatVersion, Cluster: string(id), Role: role,
		Service:  v1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		Template: &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "cart"}},
	}}
	if change != nil {
		change(&m)
	}
	return m
}

// service returns the Service of cluster a; following is empty unless it is a replica.
func service(following ClusterID, annotations map[string]string) *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name, s.Annotations = key.Namespace, key.Name, annotations
	if following != "" {
		s.Labels = map[string]string{v1alpha1.LabelReplica: string(following)}
	} else {
		s.Spec.Selector = map[string]string{"app": "cart"}
	}
	return s
}

// seeing returns the view of cluster a, whose peers publish what the members say and
// have the health that the members have.
func seeing(svc *corev1.Service, others ...clusterset.Member) *view {
	in := Input{Now: now, Service: key, Local: Local{Namespace: true, Service: svc}, Peers: make(map[ClusterID]Peer)}
	for _, m := range others {
		p := &v1alpha1.PublishedService{Spec: m.PublishedServiceSpec}
		in.Peers[m.ID] = Peer{Health: m.Health, Synced: true, Confirmed: true, Reads: true, Published: Published{Service: p}}
	}
	return look(Config{Cluster: "a", Namespace: "sync"}, in)
}

func asking(mode v1alpha1.Mode) func(*clusterset.Member) {
	return func(m *clusterset.Member) { m.Mode, m.Asked = mode, true }
}

// asks returns the annotation of a mode that was asked for and not answered yet.
func asks(mode v1alpha1.Mode) map[string]string {
	return map[string]string{v1alpha1.AnnotationMode: string(mode)}
}

// endpoint returns an endpoint as Kubernetes' own controllers write it.
func endpoint(address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
}

// TestLook collects own endpoints, imports and what was left behind from one list of
// slices.
func TestLook(t *testing.T) {
	slice := func(name, by string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{endpoint("10.0.0.1")}}
		s.Name, s.Labels = name, map[string]string{discoveryv1.LabelManagedBy: by}
		return s
	}
	imported := slice("imported", v1alpha1.ManagedBy)
	imported.Annotations = map[string]string{v1alpha1.AnnotationFrom: "b/x=1"}
	in := Input{Service: key, Local: Local{
		Service: service("", map[string]string{v1alpha1.AnnotationSelector: `{"app":"cart"}`}),
		Slices:  []*discoveryv1.EndpointSlice{slice("left", "endpointslice-controller.k8s.io"), slice("own", "me"), imported},
	}}
	in.Local.Service.Spec.Selector = nil
	v := look(Config{Cluster: "a"}, in)
	if v.ready != 1 || !v.imports.uses("b") || len(v.have) != 1 || len(v.left.slices) != 1 || v.left.slices[0].Name != "left" {
		t.Errorf("ready %d, imports %v, have %v, left %v", v.ready, v.imports, v.have, v.left)
	}
}

// TestEntitled follows the objects that say whose endpoints may be used.
func TestEntitled(t *testing.T) {
	joining := &v1alpha1.Handover{Turn: 1, Phase: v1alpha1.PhaseJoining, Heirs: []string{"c"}}
	v := seeing(service("b", nil),
		member("b", v1alpha1.RoleSource, func(m *clusterset.Member) { m.Handover = joining }),
		member("c", v1alpha1.RoleCandidate, nil), member("d", v1alpha1.RoleSource, nil))
	if !v.may["b"] || !v.may["c"] || v.may["d"] {
		t.Errorf("of the cluster it follows, its heir and a stranger: %v", v.may)
	}
	v = seeing(service("b", nil), member("d", v1alpha1.RoleSource, nil))
	if !v.may["b"] || v.may["d"] {
		t.Errorf("the cluster it follows is not read: %v", v.may)
	}
	v = seeing(service("", nil), member("d", v1alpha1.RoleSource, nil))
	if !v.may["d"] {
		t.Errorf("nobody decides: %v", v.may)
	}
}

// TestAimOf names, for one wish at a time, the role that comes of it.
func TestAimOf(t *testing.T) {
	named := asks(v1alpha1.ModeReceiver)
	named[v1alpha1.AnnotationTo] = "c"
	claims := func(m *clusterset.Member) { m.Replica, m.Mode, m.Asked = true, v1alpha1.ModeSource, true }
	for name, test := range map[string]struct {
		seen *view
		want aim
	}{
		"nothing asked":              {seeing(service("", nil)), aim{role: v1alpha1.RoleSource}},
		"a replica":                  {seeing(service("b", nil), member("b", v1alpha1.RoleSource, nil)), aim{role: v1alpha1.RoleReceiver}},
		"asks to be the source":      {seeing(service("b", asks(v1alpha1.ModeSource)), member("b", v1alpha1.RoleSource, nil)), aim{role: v1alpha1.RoleSource}},
		"asks for a union":           {seeing(service("", asks(v1alpha1.ModeUnion))), aim{role: v1alpha1.RoleUnion}},
		"stands alone":               {seeing(service("", asks(v1alpha1.ModeSingular))), aim{role: v1alpha1.RoleSingular}},
		"hands over to its only one": {seeing(service("", asks(v1alpha1.ModeReceiver)), member("b", v1alpha1.RoleReceiver, func(m *clusterset.Member) { m.Replica = true })), aim{role: v1alpha1.RoleReceiver, heirs: []ClusterID{"b"}}},
		"hands over to a named one":  {seeing(service("", named), member("b", v1alpha1.RoleReceiver, nil), member("c", v1alpha1.RoleReceiver, nil)), aim{role: v1alpha1.RoleReceiver, heirs: []ClusterID{"c"}}},
		"two sources":                {seeing(service("", asks(v1alpha1.ModeSource)), member("b", v1alpha1.RoleSource, asking(v1alpha1.ModeSource))), aim{role: v1alpha1.RoleSource, conflict: "TwoSources"}},
		"a claim that is not heeded": {seeing(service("", nil), member("b", v1alpha1.RoleReceiver, claims)), aim{role: v1alpha1.RoleSource}},
	} {
		got := aimOf(test.seen)
		if got.role != test.want.role || got.conflict != test.want.conflict || !cmp.Equal(got.heirs, test.want.heirs) {
			t.Errorf("%s: %s %v %q, want %s %v %q", name, got.role, got.heirs, got.conflict, test.want.role, test.want.heirs, test.want.conflict)
		}
	}
}

// TestReplicate decides about replicas that do not exist, follow, and are used no more.
func TestReplicate(t *testing.T) {
	source := member("b", v1alpha1.RoleSource, nil)
	w := replicate(seeing(nil, source))
	if w.service == nil || w.service.Labels[v1alpha1.LabelReplica] != "b" || len(w.service.Spec.Selector) > 0 {
		t.Errorf("there is none: %v", w.service)
	}
	if again := replicate(seeing(w.service, source)); again.service != nil || again.drop {
		t.Errorf("it is as it should be: %v", again)
	}
	changed := member("b", v1alpha1.RoleSource, func(m *clusterset.Member) { m.Template.PublishNotReadyAddresses = true })
	if next := replicate(seeing(w.service, changed)); next.service == nil || !next.service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service changed: %v", next)
	}
	headless := member("b", v1alpha1.RoleSource, func(m *clusterset.Member) { m.Template.Headless = true })
	if next := replicate(seeing(w.service, headless)); !next.drop {
		t.Error("an update cannot make it headless")
	}
	gone := seeing(w.service)
	gone.in.Peers["b"] = Peer{Health: Live, Synced: true, Confirmed: true}
	if next := replicate(gone); !next.drop {
		t.Error("the Service is gone")
	}
	if next := replicate(seeing(service("", nil), source)); next.service != nil || next.drop {
		t.Error("it is no replica")
	}
}

// TestStep takes single steps towards an aim.
func TestStep(t *testing.T) {
	replica := service("b", asks(v1alpha1.ModeSource))
	source := member("b", v1alpha1.RoleSource, nil)
	n := step(seeing(replica, source), aim{role: v1alpha1.RoleSource}, wanted{})
	if got := n.service.Annotations[v1alpha1.AnnotationRole]; got != string(v1alpha1.RoleCandidate) || len(n.service.Spec.Selector) == 0 {
		t.Errorf("prepares to take over: role %q, selector %v", got, n.service.Spec.Selector)
	}
	if got := n.service.Annotations[v1alpha1.AnnotationAnswered]; got != "" {
		t.Errorf("the wish is answered with %q before it has come true", got)
	}
	if n := step(seeing(replica, source), aim{role: v1alpha1.RoleReceiver, conflict: "TwoSources"}, wanted{}); n.service != nil {
		t.Errorf("it moves in spite of a conflict: %v", n.service.Annotations)
	}
	giver := seeing(service("", asks(v1alpha1.ModeReceiver)), member("b", v1alpha1.RoleReceiver, nil))
	n = step(giver, aim{role: v1alpha1.RoleReceiver, heirs: []ClusterID{"b"}}, wanted{})
	if n.handover == nil || n.handover.Phase != v1alpha1.PhasePreparing || n.holds == "" || n.service != nil {
		t.Errorf("a handover begins: %+v, waits for %q", n.handover, n.holds)
	}
}

// TestStepFinishes takes the selector away once a handover is committed, and keeps it.
func TestStepFinishes(t *testing.T) {
	seen := seeing(service("", asks(v1alpha1.ModeReceiver)), member("b", v1alpha1.RoleSource, nil))
	seen.me.Handover = &v1alpha1.Handover{Turn: 1, Phase: v1alpha1.PhaseCommitted, Heirs: []string{"b"}}
	n := step(seen, aim{role: v1alpha1.RoleReceiver, heirs: []ClusterID{"b"}}, wanted{})
	if n.service == nil || len(n.service.Spec.Selector) > 0 || n.service.Annotations[v1alpha1.AnnotationSelector] != `{"app":"cart"}` {
		t.Errorf("%v", n.service)
	}
	if len(seen.svc.Spec.Selector) == 0 || seen.me.Handover.Phase != v1alpha1.PhaseCommitted {
		t.Error("the step changed the view")
	}
}

// publishing gives a peer one slice with an endpoint.
func publishing(seen *view, id ClusterID, address string) {
	s := &v1alpha1.PublishedSlice{}
	s.Name = "cart-0"
	s.Spec.AddressType = discoveryv1.AddressTypeIPv4
	s.Spec.Endpoints = []v1alpha1.EndpointGroup{{Addresses: []string{address}, Ready: true, Serving: true}}
	p := seen.in.Peers[id]
	p.Published.Slices = append(p.Published.Slices, s)
	seen.in.Peers[id] = p
}

// TestRotate uses what the cluster that is followed gives, and no stranger's endpoints.
func TestRotate(t *testing.T) {
	seen := seeing(service("b", nil), member("b", v1alpha1.RoleSource, nil), member("c", v1alpha1.RoleReceiver, nil))
	publishing(seen, "b", "10.1.0.1")
	publishing(seen, "c", "10.2.0.1")
	u := rotate(seen, aim{}, next{})
	if len(u.parts) != 1 || u.parts["b/cart-0"] == nil || u.parts.ready() != 1 || u.kept {
		t.Errorf("%v, kept %v", u.parts, u.kept)
	}
}

// TestRotateKeeps keeps an import if it is not known what its cluster publishes, and
// marks it if the cluster's lease has expired.
func TestRotateKeeps(t *testing.T) {
	seen := seeing(service("b", nil))
	old := &endpointslice.Part{Cluster: "b", Slice: "cart-0", AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{endpoint("10.1.0.1")}}
	seen.imports = parts{old.Name(): old}
	seen.in.Peers["b"] = Peer{Health: Expired}
	u := rotate(seen, aim{}, next{})
	got := u.parts[old.Name()]
	if got == nil || got.Stale != v1alpha1.StaleExpired || u.parts.ready() != 1 {
		t.Fatalf("it is the only one, and so is used: %v", got)
	}
	if old.Stale != "" || old.Endpoints[0].Conditions.Serving != nil {
		t.Error("rotate changed the view")
	}
	seen.ready = 1
	if got := rotate(seen, aim{}, next{}).parts; got.ready() != 0 || !ptr.Deref(got[old.Name()].Endpoints[0].Conditions.Terminating, false) {
		t.Errorf("an endpoint of this cluster is ready: %v", got[old.Name()])
	}
}

// TestAnswer promises to go on giving only if nothing says otherwise.
func TestAnswer(t *testing.T) {
	joining := func(m *clusterset.Member) {
		m.Handover = &v1alpha1.Handover{Turn: 7, Phase: v1alpha1.PhaseJoining, Heirs: []string{"a"}, Need: 1}
	}
	candidate := service("b", map[string]string{v1alpha1.AnnotationRole: string(v1alpha1.RoleCandidate)})
	seen := seeing(candidate, member("b", v1alpha1.RoleSource, joining))
	seen.ready = 3
	want := []v1alpha1.Seen{{Cluster: "b", Turn: 7, Ready: 1, Stays: true}}
	if diff := cmp.Diff(want, answer(seen, aim{role: v1alpha1.RoleCandidate}, next{})); diff != "" {
		t.Error(diff)
	}
	want[0].Stays = false
	if diff := cmp.Diff(want, answer(seen, aim{role: v1alpha1.RoleReceiver}, next{})); diff != "" {
		t.Errorf("it is to be a receiver: %s", diff)
	}
	seen.shared = false
	want = []v1alpha1.Seen{{Cluster: "b", Turn: 7, Aside: true}}
	if diff := cmp.Diff(want, answer(seen, aim{}, next{})); diff != "" {
		t.Errorf("it does not share the Service: %s", diff)
	}
}

// TestPublish publishes endpoints of a source, none of a receiver, and nothing of a
// plain replica.
func TestPublish(t *testing.T) {
	source := seeing(service("", nil))
	source.own = endpointslice.Gather([]*discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{endpoint("10.0.0.1")}}})
	pub := publish(source, next{}, nil)
	if pub.service == nil || len(pub.slices) != 1 || len(pub.service.Slices) != 1 || pub.service.FormatVersion != v1alpha1.FormatVersion {
		t.Errorf("a source: %+v", pub)
	}
	if pub := publish(seeing(service("b", nil), member("b", v1alpha1.RoleSource, nil)), next{}, nil); pub.service != nil || pub.slices != nil {
		t.Errorf("a replica: %+v", pub)
	}
	answers := []v1alpha1.Seen{{Cluster: "b", Turn: 1, Aside: true}}
	if pub := publish(seeing(nil), next{}, answers); pub.service == nil || pub.service.Role != v1alpha1.RoleNone || pub.service.Template != nil {
		t.Errorf("answers only: %+v", pub)
	}
}

// TestPlanAll orders the writes: a Service is written before it is published.
func TestPlanAll(t *testing.T) {
	seen := seeing(nil, member("b", v1alpha1.RoleSource, nil))
	w := replicate(seen)
	r := planAll(seen, aim{}, next{wanted: w}, use{}, publication{service: &seen.me.PublishedServiceSpec})
	if len(r.Writes) != 2 || r.Writes[0].Where != Own || r.Writes[1].Where != Publications {
		t.Errorf("%+v", r.Writes)
	}
	seen.in.Local.Namespace = false
	r = planAll(seen, aim{}, next{wanted: w}, use{}, publication{})
	if len(r.Writes) != 0 || r.Facts.Holds == "" {
		t.Errorf("there is no namespace: %+v, waits for %q", r.Writes, r.Facts.Holds)
	}
}
