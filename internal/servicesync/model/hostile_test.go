// The model has one thread: there is no race to find.

//go:build !race

package model_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// hostileSeeds are seeds that failed once.
var hostileSeeds = []uint64{2582}

// TestHostilePeer has one of the peers publish anything, while nobody here trusts
// it, or anybody, with more than every peer may do. At every write of an honest
// cluster it checks what docs/servicesync-threats.md says; once the hostile peer has
// withdrawn what it published, nothing of it may be left.
func TestHostilePeer(t *testing.T) {
	run := slices.Clone(hostileSeeds)
	for i := range *seeds {
		run = append(run, *first+uint64(i))
	}
	if *seed != 0 {
		run = []uint64{*seed}
	}
	lies := 0
	for _, s := range run {
		w := besiege(t, s, model.Trusts{})
		lies += w.lies
		if *seed != 0 {
			t.Log("\n" + strings.Join(w.trace, "\n"))
		}
		if w.failed != "" {
			t.Errorf("seed %d: %s\nreplay it with -run TestHostilePeer -seed %d", s, w.failed, s)
		}
	}
	t.Logf("%d seeds, %d publications of the hostile peer", len(run), lies)
}

// besiege runs one seed: two honest clusters, and a hostile one.
func besiege(t *testing.T, seed uint64, trust model.Trusts) *world {
	w := newWorld(t, seed, 3)
	w.trust, w.carry = trust, model.Carry{Labels: []string{"*"}, Annotations: []string{"*"}}
	w.perSlice = []int{100, 8}[seed%2]
	a, b, c := w.clusters[0], w.clusters[1], w.clusters[2]
	c.hostile = true
	native := seed%4 != 0 // else the hostile peer alone has the Service
	if native {
		a.native(1 + w.rng.IntN(3))
	}
	a.addPod("pay", true, true)
	for _, app := range []string{"cart", "pay"} {
		b.addPod(app, true, true)
	}
	w.settle()
	before, people := w.standing(), native && seed%3 != 0
	for range 300 + w.rng.IntN(200) {
		if w.failed != "" {
			return w
		}
		switch n := w.rng.IntN(10); {
		case n < 3:
			c.lie()
		case n < 4 && people && w.rng.IntN(4) == 0:
			w.wish()
		default:
			w.chaos = true
			w.churn()
		}
	}
	w.say("%s withdraws all", c.id)
	for _, o := range all[model.Object](c.api.objects) {
		c.api.remove(o)
	}
	c.renew()
	clear(a.cut)
	clear(b.cut)
	for range 2 { // the lease is seen to change
		c.renew()
		w.settle()
	}
	a.leavesNothing(c.id)
	b.leavesNothing(c.id)
	w.checkAtRest()
	w.checkRestart()
	if after := w.standing(); !people && after != before {
		w.fail("the hostile peer changed\n%s to\n%s", before, after)
	}
	return w
}

// churn has one thing happen to the honest clusters that changes nothing for good.
func (w *world) churn() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(400)) * time.Millisecond)
	c := w.clusters[w.rng.IntN(2)]
	switch n := w.rng.IntN(100); {
	case n < 50:
		c.look()
		c.reconcile()
	case n < 65:
		c.kubernetes()
	case n < 80 && c.up:
		c.renew()
	case n < 90 && !c.up:
		c.start()
	case n < 92:
		w.cutSomething(c)
	case n < 97:
		c.roll()
	}
}

// standing is state without the addresses of the pods, which come and go.
func (w *world) standing() (s string) {
	for line := range strings.Lines(w.state()) {
		line, _, _ = strings.Cut(line, " uses ")
		s += line + "\n"
	}
	return s
}

// TestHostilePeerIsSeen lets the hostile peer do one thing after the other: each is
// noticed, so each is held by what is not allowed.
func TestHostilePeerIsSeen(t *testing.T) {
	for says, trust := range map[string]model.Trust{
		"own Service|nobody asked":  {Claim: true},
		"gets a selector|adopts":    {Selector: true},
		"is exposed":                {Types: []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}},
		"sends clients of a's|last": {Claim: true, Selector: true},
	} {
		t.Run(says, func(t *testing.T) {
			for s := range uint64(300) {
				w := besiege(t, s+1, model.Trusts{"c": trust})
				if slices.ContainsFunc(strings.Split(says, "|"), func(part string) bool { return strings.Contains(w.failed, part) }) {
					return
				}
			}
			t.Error("nothing noticed")
		})
	}
}

// wish is somebody's annotation in an honest cluster. Whoever asks a cluster to be a
// receiver names its heir.
func (w *world) wish() {
	c := w.clusters[w.rng.IntN(2)]
	if c.api.service() == nil {
		return
	}
	m := []string{"source", "receiver", "union", ""}[w.rng.IntN(4)]
	if m == "receiver" {
		c.apply(func(s *corev1.Service) { setTo(s, w.clusters[1-int(c.id[0]-'a')].id) })
	}
	c.mode(m)
}

// leavesNothing fails if there is anything in the cluster that came from another.
func (c *cluster) leavesNothing(of model.ClusterID) {
	for k, o := range c.api.objects {
		switch o := o.(type) {
		case *corev1.Service:
			if o.Labels[v1alpha1.LabelReplica] == string(of) || o.Labels["team"] == "evil" {
				c.w.fail("%s: %s is left of %s: %s", c.id, k, of, mustJSON(o))
			}
		case *discoveryv1.EndpointSlice:
			for _, p := range endpointslice.Parts(o) {
				if p.Cluster == of {
					c.w.fail("%s: %s is left of %s", c.id, k, of)
				}
			}
		}
		if strings.HasPrefix(k, "*v1beta1.ServiceImport") {
			c.w.fail("%s: %s is left", c.id, k)
		}
	}
}

// lie has a hostile cluster publish something.
func (c *cluster) lie() {
	c.w.lies++
	if c.w.rng.IntN(3) == 0 {
		c.renew()
	}
	if c.w.rng.IntN(12) == 0 {
		for _, o := range all[*v1alpha1.PublishedService](c.api.objects) {
			c.api.remove(o)
		}
		return
	}
	name := clusterset.PublicationName(key)
	lie := &v1alpha1.PublishedService{Spec: spin(c.w.rng, c.id)}
	lie.Name, lie.Namespace = name, "servicesync"
	old := all[*v1alpha1.PublishedService](c.api.objects)
	if len(old) > 0 {
		lie.UID = old[0].UID
	}
	c.api.put(lie, len(old) == 0)
	c.w.say("%s lies: %s", c.id, brief(lie))
}

// pick is one of several.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// some is one of several, or nil.
func some[T any](rng *rand.Rand, of ...T) *T {
	if rng.IntN(2) == 0 {
		return nil
	}
	v := pick(rng, of...)
	return &v
}

// spin is anything that a cluster could publish of the Service.
func spin(rng *rand.Rand, id model.ClusterID) v1alpha1.PublishedServiceSpec {
	yes := func() bool { return rng.IntN(2) == 0 }
	s := v1alpha1.PublishedServiceSpec{
		FormatVersion: pick[int32](rng, 1, 2, 3, 3, 3, 3, 3, 3, 3, 9), Cluster: pick(rng, string(id), string(id), string(id), string(id), "a"),
		Service: v1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		Role:    pick(rng, v1alpha1.RoleSource, v1alpha1.RoleSource, v1alpha1.RoleUnion, v1alpha1.RoleCandidate, v1alpha1.RoleReceiver, v1alpha1.RoleSingular, "king"),
		Mode:    pick(rng, v1alpha1.ModeNone, v1alpha1.ModeSource, v1alpha1.ModeSource, v1alpha1.ModeUnion, v1alpha1.ModeReceiver, v1alpha1.ModeSingular),
		Asked:   yes(), Replica: yes(), To: pick(rng, "", "a", "b", "c"),
		Ready: pick[int32](rng, 0, 1, 100), Total: pick[int32](rng, 0, 1, 2, 1000),
		Template: spinTemplate(rng),
	}
	if rng.IntN(4) == 0 {
		s.Exported = &v1alpha1.Export{Labels: map[string]string{v1alpha1.LabelImport: "other", "team": "evil"}, Annotations: map[string]string{"note": "evil"}}
	}
	for i := range rng.IntN(3) {
		s.Slices = append(s.Slices, spinSlice(rng, i))
	}
	if yes() {
		s.Handover = &v1alpha1.Handover{
			Turn: rng.Int64N(1 << 42), Need: pick[int32](rng, 0, 1, 100),
			Phase: pick(rng, v1alpha1.PhasePreparing, v1alpha1.PhaseJoining, v1alpha1.PhaseCommitted, v1alpha1.PhaseDone, v1alpha1.PhaseWithdrawn),
			Heirs: pick(rng, nil, []string{"c"}, []string{"a"}, []string{"b"}, []string{"a", "b", "c", "x"}),
		}
	}
	for _, of := range []string{"a", "b"} {
		if yes() {
			s.Seen = append(s.Seen, v1alpha1.Seen{Cluster: of, Turn: rng.Int64N(1 << 42), Ready: pick[int32](rng, 0, 100), Stays: yes(), Aside: yes()})
		}
	}
	return s
}

func spinSlice(rng *rand.Rand, i int) v1alpha1.InlineSlice {
	s := v1alpha1.InlineSlice{Name: pick(rng, fmt.Sprint("cart-", i), "x=1,a/y", "a/b", strings.Repeat("n", 300))}
	s.AddressType = pick(rng, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN, "Moon")
	port, none, tcp := pick[int32](rng, 8080, 8080, 8080, 0), "", corev1.ProtocolTCP
	s.Ports = []discoveryv1.EndpointPort{{Name: &none, Port: &port, Protocol: &tcp}}
	for range 1 + rng.IntN(3) {
		s.Endpoints = append(s.Endpoints, v1alpha1.EndpointGroup{
			Addresses: []string{pick(rng, "10.66.0.1", "10.66.0.2", "fd00::66", "127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", "localhost", "010.0.0.1", "")},
			Hostname:  pick(rng, "", "", "web-0", "-"), Zone: pick(rng, "", "z1", "z 1"),
			Ready: rng.IntN(4) > 0, Serving: rng.IntN(2) == 0, Terminating: rng.IntN(4) == 0,
		})
	}
	return s
}

func spinTemplate(rng *rand.Rand) *v1alpha1.ServiceTemplate {
	if rng.IntN(8) == 0 {
		return nil
	}
	keys := func(of ...string) map[string]string {
		all := make(map[string]string)
		for _, k := range of {
			if rng.IntN(2) == 0 {
				all[k] = pick(rng, "evil", "evil", "source", `{"app":"pay"}`)
			}
		}
		return all
	}
	t := &v1alpha1.ServiceTemplate{
		Created: metav1.Unix(rng.Int64N(2), 0), Headless: rng.IntN(4) == 0,
		Labels: map[string]string{"team": "evil"},
		Annotations: keys(v1alpha1.AnnotationMode, v1alpha1.AnnotationModeCompat, v1alpha1.AnnotationSelector, v1alpha1.AnnotationRole, v1alpha1.AnnotationAnswered,
			v1alpha1.AnnotationCarried, v1alpha1.AnnotationTo, corev1.LastAppliedConfigAnnotation, "meta.helm.sh/release-name", "a,b;c"),
		Type:         pick(rng, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName, "Tunnel"),
		ExternalName: pick(rng, "", "evil.example.com"), Selector: pick(rng, nil, map[string]string{"app": "pay"}, map[string]string{"app": "cart"}),
		Ports:                 []corev1.ServicePort{{Port: pick[int32](rng, 80, 80, 80, 0), Protocol: corev1.ProtocolTCP, NodePort: 30080, TargetPort: intstr.FromInt32(8080)}},
		ExternalTrafficPolicy: pick(rng, "", corev1.ServiceExternalTrafficPolicyLocal), LoadBalancerClass: some(rng, "evil"), AllocateLoadBalancerNodePorts: some(rng, true),
		LoadBalancerSourceRanges: pick(rng, nil, []string{"0.0.0.0/0"}), TrafficDistribution: some(rng, "PreferMe"),
	}
	for _, k := range []string{v1alpha1.LabelReplica, v1alpha1.LabelImport, discoveryv1.LabelManagedBy, "endpointslice.kubernetes.io/skip-mirror"} {
		if rng.IntN(2) == 0 {
			t.Labels[k] = "evil"
		}
	}
	return t
}

// evil is what a peer b publishes of a Service that this cluster has, too.
func evil(in *model.Input, change func(*model.Peer, *v1alpha1.PublishedServiceSpec)) {
	spec := v1alpha1.PublishedServiceSpec{
		FormatVersion: v1alpha1.FormatVersion, Cluster: "b", Service: v1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		Role: v1alpha1.RoleSource, Replica: true, Ready: 1, Total: 1, Template: &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP},
		Slices: []v1alpha1.InlineSlice{{Name: "cart-0", PublishedEndpoints: v1alpha1.PublishedEndpoints{
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []v1alpha1.EndpointGroup{{Addresses: []string{"10.66.0.1"}, Ready: true, Serving: true}},
		}}},
	}
	p := model.Peer{Health: model.Live, Synced: true, Confirmed: true, Reads: true}
	if change != nil {
		change(&p, &spec)
	}
	p.Published = model.Published{Service: &v1alpha1.PublishedService{Spec: spec}, Slices: p.Published.Slices}
	in.Peers["b"] = p
}

// TestForgedRecord: what a store says that this cluster has committed to is not done
// if nobody has asked for it here.
func TestForgedRecord(t *testing.T) {
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseJoining, v1alpha1.PhaseCommitted, v1alpha1.PhaseDone} {
		in := input(1)
		evil(&in, nil)
		in.Published.Service = &v1alpha1.PublishedService{Spec: v1alpha1.PublishedServiceSpec{
			FormatVersion: 3, Cluster: "a", Role: v1alpha1.RoleSource, Mode: v1alpha1.ModeReceiver,
			Handover: &v1alpha1.Handover{Turn: 7, Phase: phase, Heirs: []string{"b"}, Need: 1},
		}}
		for _, w := range model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in).Writes {
			if w.Where == model.Own {
				t.Errorf("%s: %s %s: %s", phase, w.Verb, keyOf(w.Object), w.Why)
			}
		}
	}
}

// TestOthersName: nobody publishes for another cluster, nor gives a slice a name that
// could be taken for another's.
func TestOthersName(t *testing.T) {
	for name, change := range map[string]func(*model.Peer, *v1alpha1.PublishedServiceSpec){
		"as another cluster": func(_ *model.Peer, s *v1alpha1.PublishedServiceSpec) { s.Cluster = "c" },
		"another Service":    func(_ *model.Peer, s *v1alpha1.PublishedServiceSpec) { s.Service.Name = "other" },
		"a slice of another": func(p *model.Peer, s *v1alpha1.PublishedServiceSpec) {
			slice := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: s.Slices[0].PublishedEndpoints}}
			slice.Name = "x=1,c/y"
			p.Published.Slices = []*v1alpha1.PublishedSlice{slice}
		},
	} {
		in := input(0)
		in.Local = model.Local{Namespace: true}
		evil(&in, change)
		r := model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in)
		if len(r.Writes) > 0 || len(r.Events) == 0 {
			t.Errorf("%s: %d writes, %v", name, len(r.Writes), r.Events)
		}
	}
}

// TestPeerRanges: the addresses that a peer may publish are those that it is given,
// or else all but this cluster's own; never some.
func TestPeerRanges(t *testing.T) {
	range_ := func(cidr string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(cidr)} }
	for _, c := range []struct {
		address string
		ranges  []netip.Prefix
		used    bool
	}{
		{"10.66.0.1", nil, true},
		{"10.0.3.1", nil, false}, // reserved
		{"10.0.3.1", range_("10.0.0.0/8"), true},
		{"10.66.0.1", range_("10.67.0.0/16"), false},
		{"127.0.0.1", range_("0.0.0.0/0"), false},
		{"169.254.169.254", range_("0.0.0.0/0"), false},
		{"10.66.0.1", range_("::/0"), false},
	} {
		in := input(0)
		in.Local = model.Local{Namespace: true}
		evil(&in, func(_ *model.Peer, s *v1alpha1.PublishedServiceSpec) {
			s.Slices[0].Endpoints[0].Addresses[0], s.Replica = c.address, false
		})
		cfg := model.Config{Cluster: "a", Namespace: "sync", Reserved: range_("10.0.0.0/16"), Trust: model.Trusts{model.Everybody: {Ranges: c.ranges}}}
		used := 0
		for _, w := range model.Decide(cfg, in).Writes {
			if s, ok := w.Object.(*corev1.Service); ok {
				in.Local.Service = s
			}
		}
		for _, w := range model.Decide(cfg, in).Writes {
			if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
				used += len(s.Endpoints)
			}
		}
		if (used == 1) != c.used {
			t.Errorf("%s with %v is used %d times", c.address, c.ranges, used)
		}
	}
}
