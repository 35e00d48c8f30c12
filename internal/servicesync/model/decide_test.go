package model_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

func TestScope(t *testing.T) {
	for _, c := range []struct {
		scope     model.Scope
		namespace string
		want      bool
	}{
		{model.Scope{}, "shop", true},
		{model.Scope{}, "kube-system", false},
		{model.Scope{Watch: []string{"shop"}}, "shop", true},
		{model.Scope{Watch: []string{"shop"}}, "other", false},
		{model.Scope{Watch: []string{"kube-system"}}, "kube-system", true},
		{model.Scope{Exclude: []string{"shop"}}, "shop", false},
		{model.Scope{Watch: []string{"shop"}, Exclude: []string{"shop"}}, "shop", false},
	} {
		if got := c.scope.Includes(c.namespace); got != c.want {
			t.Errorf("%+v includes %s: %t", c.scope, c.namespace, got)
		}
	}
}

// input is a Service of this cluster with n endpoints, beside a peer b.
func input(n int) model.Input {
	svc := &corev1.Service{}
	svc.Name, svc.Namespace = key.Name, key.Namespace
	svc.Spec.ClusterIP, svc.Spec.Selector = "10.96.0.1", map[string]string{"app": "cart"}
	in := model.Input{Now: time.Unix(1000, 0), Service: key, Peers: map[model.ClusterID]model.Peer{"b": {Health: model.Live, Synced: true, Confirmed: true, Reads: true}}}
	in.Local = model.Local{Namespace: true, Service: svc}
	es := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	es.Name, es.Labels = "cart-x", map[string]string{discoveryv1.LabelServiceName: key.Name}
	for i := range n {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250)}})
	}
	in.Local.Slices = []*discoveryv1.EndpointSlice{es}
	return in
}

// carry puts what was decided into the input, as if it were written, and counts
// the slices that were published anew.
func carry(in *model.Input, r model.Result) (n int) {
	published := make(map[string]*v1alpha1.PublishedSlice)
	for _, s := range in.Published.Slices {
		published[s.Name] = s
	}
	for _, w := range r.Writes {
		switch o := w.Object.(type) {
		case *v1alpha1.PublishedService:
			n += changedSlices(in.Published.Service, o)
			in.Published.Service = o
		case *v1alpha1.PublishedSlice:
			n++
			if published[o.Name] = o; w.Verb == model.Delete {
				delete(published, o.Name)
			}
		}
	}
	in.Published.Slices = nil
	for _, s := range published {
		in.Published.Slices = append(in.Published.Slices, s)
	}
	return n
}

// changedSlices counts the slices in a PublishedService that another did not have so.
func changedSlices(before, now *v1alpha1.PublishedService) (n int) {
	for _, s := range now.Spec.Slices {
		if before == nil || !slices.ContainsFunc(before.Spec.Slices, func(old v1alpha1.InlineSlice) bool { return equality.Semantic.DeepEqual(old, s) }) {
			n++
		}
	}
	return n
}

func endpointsIn(s *v1alpha1.PublishedSlice) (n int) {
	for _, g := range s.Spec.Endpoints {
		n += len(g.Addresses)
	}
	return n
}

// TestGroups: endpoints share an entry if all but their addresses is the same,
// and an importer has them in the order of their addresses.
func TestGroups(t *testing.T) {
	in := input(4)
	es := in.Local.Slices[0]
	a, b := "zone-a", "zone-b"
	for i, zone := range []*string{&a, &b, &a, &b} {
		es.Endpoints[i].Zone = zone
	}
	es.Endpoints[0].Addresses = append(es.Endpoints[0].Addresses, "10.9.9.9") // nobody looks at a second one
	carry(&in, model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in))
	published := in.Published.All()[0]
	want := []v1alpha1.EndpointGroup{
		{Addresses: []string{"10.0.0.0", "10.0.0.2"}, Zone: a, Ready: true, Serving: true},
		{Addresses: []string{"10.0.0.1", "10.0.0.3"}, Zone: b, Ready: true, Serving: true},
	}
	if diff := cmp.Diff(want, published.Spec.Endpoints); diff != "" {
		t.Error(diff)
	}

	there := replicaInput()
	published.Spec.Cluster = "b"
	peer := there.Peers["b"]
	peer.Published.Slices = []*v1alpha1.PublishedSlice{published}
	there.Peers["b"] = peer
	var got []string
	for _, w := range model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, there).Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			for _, e := range s.Endpoints {
				got = append(got, e.Addresses[0]+" "+*e.Zone)
			}
		}
	}
	if want := []string{"10.0.0.1 zone-b", "10.0.0.2 zone-a", "10.0.0.3 zone-b"}; !slices.Equal(got, want) { // 10.0.0.0 is its own
		t.Errorf("imported as %v, not %v", got, want)
	}
}

// TestForeignSlice: of what a publisher may write and xb does not, an address is
// used once, and no more of them than a slice has.
func TestForeignSlice(t *testing.T) {
	in := replicaInput(make([]string, 150)...)
	s := in.Peers["b"].Published.Slices[0]
	s.Spec.Endpoints = append(s.Spec.Endpoints, s.Spec.Endpoints[:10]...)
	result := model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in)
	for _, w := range result.Writes {
		es, ok := w.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		seen := make(map[string]bool)
		for _, e := range es.Endpoints {
			seen[e.Addresses[0]] = true
		}
		if len(seen) != 100 || len(es.Endpoints) != 100 {
			t.Errorf("%d endpoints with %d addresses", len(es.Endpoints), len(seen))
		}
	}
	if !slices.ContainsFunc(result.Events, func(e model.Event) bool { return e.Reason == "TooManyEndpoints" }) {
		t.Errorf("nothing is said of it: %v", result.Events)
	}
}

// TestPacking: a hundred endpoints a slice, and one that goes or comes touches
// one slice only.
func TestPacking(t *testing.T) {
	in := input(250)
	cfg := model.Config{Cluster: "a", Namespace: "sync"}
	if n := carry(&in, model.Decide(cfg, in)); n != 3 {
		t.Fatalf("250 endpoints in %d slices", n)
	}
	for _, s := range in.Published.All() {
		if n := endpointsIn(s); n > 100 {
			t.Errorf("%d endpoints in a slice", n)
		}
		if len(s.Spec.Endpoints) != 1 {
			t.Errorf("endpoints that differ by their addresses only are in %d groups", len(s.Spec.Endpoints))
		}
	}
	if inside, apart := len(in.Published.Service.Spec.Slices), len(in.Published.Slices); inside != 1 || apart != 2 {
		t.Errorf("%d slices in the PublishedService, and %d apart", inside, apart)
	}
	es := in.Local.Slices[0]
	es.Endpoints = es.Endpoints[1:]
	if n := carry(&in, model.Decide(cfg, in)); n != 1 {
		t.Errorf("an endpoint that goes changes %d slices", n)
	}
	es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}})
	if n := carry(&in, model.Decide(cfg, in)); n != 1 {
		t.Errorf("an endpoint that comes changes %d slices", n)
	}
	// Kubernetes packs them anew: nothing changes for others.
	half := es.DeepCopy()
	half.Name, half.Endpoints = "cart-y", es.Endpoints[:100]
	es.Endpoints = es.Endpoints[100:]
	in.Local.Slices = append(in.Local.Slices, half)
	if r := model.Decide(cfg, in); len(r.Writes) > 0 {
		t.Errorf("endpoints that change slices are written: %s %s", r.Writes[0].Verb, r.Writes[0].Object.GetName())
	}
}

// TestPacksInPlace: a slice that is published stays where it is, within the
// PublishedService or apart from it, and another is within it only if there is room.
func TestPacksInPlace(t *testing.T) {
	in := input(10)
	cfg := model.Config{Cluster: "a", Namespace: "sync", Apart: true} // as format 2 was
	where := func(n int) string {
		t.Helper()
		if got := carry(&in, model.Decide(cfg, in)); got != n {
			t.Errorf("%d slices are written, not %d", got, n)
		}
		return fmt.Sprint(len(in.Published.Service.Spec.Slices), " ", len(in.Published.Slices))
	}
	if got := where(1); got != "0 1" {
		t.Errorf("apart: %s", got)
	}
	cfg.Apart = false
	in.Local.Slices[0].Endpoints = in.Local.Slices[0].Endpoints[1:]
	if got := where(1); got != "0 1" {
		t.Errorf("what was apart: %s", got)
	}
	es := in.Local.Slices[0]
	for port := range int32(6) { // each set of ports is another kind
		more := es.DeepCopy()
		more.Name, more.Ports = fmt.Sprintf("cart-%d", port), []discoveryv1.EndpointPort{{Port: &port}}
		in.Local.Slices = append(in.Local.Slices, more)
	}
	if got := where(6); got != "4 3" {
		t.Errorf("of seven kinds: %s", got)
	}
	for _, s := range in.Local.Slices {
		s.Endpoints = s.Endpoints[1:]
	}
	if got := where(7); got != "4 3" {
		t.Errorf("of seven kinds, later: %s", got)
	}
}

// TestForeignName: what another cluster calls a slice cannot be taken for
// something else when an EndpointSlice says whose its endpoints are.
func TestForeignName(t *testing.T) {
	in := replicaInput("", "")
	pub := in.Peers["b"].Published
	pub.Service.Spec.Total = 2
	pub.Service.Spec.Slices = []v1alpha1.InlineSlice{{Name: "x=1,c/y", PublishedEndpoints: pub.Slices[0].Spec.PublishedEndpoints}}
	pub.Slices = nil
	in.Peers["b"] = model.Peer{Health: model.Live, Synced: true, Confirmed: true, Reads: true, Published: pub}
	for _, w := range model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in).Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			parts := endpointslice.Parts(s)
			if len(parts) != 1 || parts[0].Cluster != "b" || len(parts[0].Endpoints) != 2 {
				t.Errorf("%v says %q", parts, s.Annotations[v1alpha1.AnnotationFrom])
			}
			return
		}
	}
	t.Error("no slice is written")
}

// replicaInput is a replica of b's Service in this cluster, and b's endpoints.
func replicaInput(zones ...string) model.Input {
	in := input(1)
	in.Local.Service.Annotations = map[string]string{v1alpha1.AnnotationMode: "union", v1alpha1.AnnotationAnswered: "union", v1alpha1.AnnotationRole: "union"}
	pub := &v1alpha1.PublishedService{Spec: v1alpha1.PublishedServiceSpec{
		FormatVersion: 1, Cluster: "b", Service: v1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		Role: v1alpha1.RoleUnion, Mode: v1alpha1.ModeUnion, Template: &v1alpha1.ServiceTemplate{},
	}}
	s := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: v1alpha1.PublishedEndpoints{AddressType: discoveryv1.AddressTypeIPv4}}}
	s.Name = "cart-0"
	for i, z := range zones {
		s.Spec.Endpoints = append(s.Spec.Endpoints, v1alpha1.EndpointGroup{Addresses: []string{fmt.Sprintf("10.1.0.%d", i)}, Zone: z, Ready: true, Serving: true})
	}
	in.Peers["b"] = model.Peer{Health: model.Live, Synced: true, Confirmed: true, Reads: true, Published: model.Published{Service: pub, Slices: []*v1alpha1.PublishedSlice{s}}}
	return in
}

func hints(r model.Result) []string {
	var out []string
	for _, w := range r.Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			for _, e := range s.Endpoints {
				h := "none"
				if e.Hints != nil {
					h = e.Hints.ForZones[0].Name
				}
				out = append(out, h)
			}
		}
	}
	return out
}

// TestHints: all ready endpoints of a Service have hints, or none has.
func TestHints(t *testing.T) {
	same := "PreferSameZone"
	hinted := func(in *model.Input) {
		in.Local.Slices[0].Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}
	}
	for name, c := range map[string]struct {
		change func(*model.Input)
		want   []string
	}{
		"nobody asks":                  {hinted, []string{"none", "none"}},
		"the own cluster is preferred": {func(in *model.Input) { hinted(in); in.Local.Service.Annotations[v1alpha1.AnnotationPrefer] = "local" }, []string{"b", "b"}},
		"the own zone is preferred":    {func(in *model.Input) { hinted(in); in.Local.Service.Spec.TrafficDistribution = &same }, []string{"z1", "b"}},
		"the own endpoints have none":  {func(in *model.Input) { in.Local.Service.Annotations[v1alpha1.AnnotationPrefer] = "local" }, []string{"none", "none"}},
		"the own endpoints are not ready": {func(in *model.Input) {
			no := false
			in.Local.Slices[0].Endpoints[0].Conditions.Ready = &no
			in.Local.Service.Annotations[v1alpha1.AnnotationPrefer] = "local"
		}, []string{"none", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := replicaInput("z1", "")
			c.change(&in)
			if diff := cmp.Diff(c.want, hints(model.Decide(model.Config{Cluster: "a"}, in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAddressTwice: an address that a pod of this cluster holds is never taken
// for another cluster's.
func TestAddressTwice(t *testing.T) {
	in := replicaInput("", "")
	in.Peers["b"].Published.Slices[0].Spec.Endpoints[0].Addresses = []string{"10.0.0.0"}
	r := model.Decide(model.Config{Cluster: "a"}, in)
	if got := hints(r); len(got) != 1 {
		t.Errorf("%d endpoints are imported", len(got))
	}
	if len(r.Events) == 0 || r.Events[0].Reason != "AddressTwice" {
		t.Errorf("nothing is said: %v", r.Events)
	}
}

// TestFormat: of a publication that is not understood nothing is taken, and
// what is in use stays.
func TestFormat(t *testing.T) {
	in := replicaInput("")
	cfg := model.Config{Cluster: "a"}
	for _, w := range model.Decide(cfg, in).Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			in.Local.Slices = append(in.Local.Slices, s)
		}
	}
	in.Peers["b"].Published.Service.Spec.FormatVersion = v1alpha1.FormatVersion + 1
	in.Peers["b"].Published.Slices[0].Spec.Endpoints = nil
	r := model.Decide(cfg, in)
	for _, w := range r.Writes {
		if _, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			t.Errorf("%s %s", w.Verb, w.Object.GetName())
		}
	}
	if len(r.Events) == 0 || r.Events[0].Reason != "UnknownFormat" {
		t.Errorf("nothing is said: %v", r.Events)
	}
}

// TestAbsence: what a peer does not list is swept only if it is sure that all
// of it was seen, or if somebody took the peer away.
func TestAbsence(t *testing.T) {
	cfg := model.Config{Cluster: "a"}
	for name, c := range map[string]struct {
		change func(*model.Peer)
		swept  bool
	}{
		"confirmed":       {func(p *model.Peer) { p.Confirmed = true }, true},
		"not confirmed":   {func(*model.Peer) {}, false},
		"not even listed": {func(p *model.Peer) { p.Synced = false }, false},
		"expired":         {func(p *model.Peer) { p.Health = model.Expired }, false},
		"forgotten":       {func(p *model.Peer) { p.Forgotten, p.Health = true, model.Expired }, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := replicaInput("")
			for _, w := range model.Decide(cfg, in).Writes {
				if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
					in.Local.Slices = append(in.Local.Slices, s)
				}
			}
			peer := model.Peer{Health: model.Live, Synced: true, Reads: true}
			c.change(&peer)
			in.Peers["b"] = peer
			swept := false
			for _, w := range model.Decide(cfg, in).Writes {
				if _, ok := w.Object.(*discoveryv1.EndpointSlice); ok && w.Verb == model.Delete {
					swept = true
				}
			}
			if swept != c.swept {
				t.Errorf("swept: %t", swept)
			}
		})
	}
	t.Run("not known at all", func(t *testing.T) {
		in := replicaInput("")
		for _, w := range model.Decide(cfg, in).Writes {
			if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
				in.Local.Slices = append(in.Local.Slices, s)
			}
		}
		delete(in.Peers, "b")
		for _, w := range model.Decide(cfg, in).Writes {
			if _, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
				t.Errorf("%s %s", w.Verb, w.Object.GetName())
			}
		}
	})
}

// TestDeleteReplica: a replica goes once whoever it was made from says so. A
// peer that is dead, or was never heard, delays that only if something of it is
// in use here, and absence alone deletes nothing.
func TestDeleteReplica(t *testing.T) {
	b := func(in *model.Input, change func(*model.Peer)) {
		p := model.Peer{Health: model.Live, Synced: true, Confirmed: true, Reads: true}
		change(&p)
		in.Peers["b"] = p
	}
	gone := func(in *model.Input) { b(in, func(*model.Peer) {}) }
	c := func(in *model.Input, p model.Peer) { in.Peers["c"] = p }
	inUse := func(in *model.Input, id string) {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}}
		s.Name, s.Namespace = "cart-of-"+id, key.Namespace
		s.Labels = map[string]string{discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: id}
		in.Local.Slices = []*discoveryv1.EndpointSlice{s}
	}
	published := func(format int32) model.Published {
		return model.Published{Service: &v1alpha1.PublishedService{Spec: v1alpha1.PublishedServiceSpec{
			FormatVersion: format, Cluster: "b", Service: v1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
			Role: v1alpha1.RoleSource, Template: &v1alpha1.ServiceTemplate{},
		}}}
	}
	for name, test := range map[string]struct {
		change  func(*model.Input)
		deleted bool
	}{
		"its Service is gone":                {gone, true},
		"its cluster is not confirmed":       {func(in *model.Input) { b(in, func(p *model.Peer) { p.Confirmed = false }) }, false},
		"its cluster is dead":                {func(in *model.Input) { in.Peers["b"] = model.Peer{Health: model.Expired} }, false},
		"its cluster was listed and is dead": {func(in *model.Input) { in.Peers["b"] = model.Peer{Health: model.Expired, Synced: true} }, false},
		"its cluster is forgotten":           {func(in *model.Input) { in.Peers["b"] = model.Peer{Health: model.Expired, Forgotten: true} }, true},
		"its cluster is not known": {func(in *model.Input) {
			delete(in.Peers, "b")
			c(in, model.Peer{Health: model.Live, Synced: true, Confirmed: true})
		}, false},
		"its format is unknown": {func(in *model.Input) { b(in, func(p *model.Peer) { p.Published = published(99) }) }, false},
		"it is seen, and not all is listed": {func(in *model.Input) {
			b(in, func(p *model.Peer) { p.Synced, p.Confirmed, p.Published = false, false, published(1) })
		}, false},
		"another is dead":            {func(in *model.Input) { gone(in); c(in, model.Peer{Health: model.Expired}) }, true},
		"another is dead and in use": {func(in *model.Input) { gone(in); c(in, model.Peer{Health: model.Expired}); inUse(in, "c") }, false},
		"another is silent":          {func(in *model.Input) { gone(in); c(in, model.Peer{Health: model.Stale}) }, false},
		"another was not listed yet": {func(in *model.Input) { gone(in); c(in, model.Peer{Health: model.Live}) }, false},
		"all are dead": {func(in *model.Input) {
			in.Peers["b"] = model.Peer{Health: model.Expired}
			c(in, model.Peer{Health: model.Expired})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(0)
			in.Local.Service.Labels = map[string]string{v1alpha1.LabelReplica: "b"}
			in.Local.Service.Spec.Selector, in.Local.Slices = nil, nil
			test.change(&in)
			deleted := false
			for _, w := range model.Decide(model.Config{Cluster: "a"}, in).Writes {
				if _, ok := w.Object.(*corev1.Service); ok && w.Verb == model.Delete {
					deleted = true
				}
			}
			if deleted != test.deleted {
				t.Errorf("deleted: %t", deleted)
			}
		})
	}
}

// TestDeleteImport: an import goes once nobody exports its Service, as far as
// can be told. A peer that is dead delays that only by endpoints in the import.
func TestDeleteImport(t *testing.T) {
	for name, test := range map[string]struct {
		other   model.Peer
		inUse   bool
		deleted bool
	}{
		"another is confirmed":          {model.Peer{Health: model.Live, Synced: true, Confirmed: true}, true, true},
		"another is not confirmed":      {model.Peer{Health: model.Live, Synced: true}, false, false},
		"another was not listed yet":    {model.Peer{Health: model.Stale}, false, false},
		"another is dead":               {model.Peer{Health: model.Expired}, false, true},
		"another is dead and in use":    {model.Peer{Health: model.Expired}, true, false},
		"another is dead and forgotten": {model.Peer{Health: model.Expired, Forgotten: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(1)
			in.Peers["c"] = test.other
			in.Local.Import = &mcs.ServiceImport{}
			in.Local.Import.Labels = map[string]string{v1alpha1.LabelImport: key.Name}
			if test.inUse {
				s := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.2.0.1"}}}}
				s.Labels = map[string]string{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "c"}
				in.Local.DerivedSlices = []*discoveryv1.EndpointSlice{s}
			}
			deleted := false
			for _, w := range model.Decide(model.Config{Cluster: "a"}, in).Writes {
				if _, ok := w.Object.(*mcs.ServiceImport); ok && w.Verb == model.Delete {
					deleted = true
				}
			}
			if deleted != test.deleted {
				t.Errorf("deleted: %t", deleted)
			}
		})
	}
}

// TestOnlyPeer: who takes over is not the only one that reads this cluster as
// long as another may, too.
func TestOnlyPeer(t *testing.T) {
	for name, c := range map[string]struct {
		other model.Peer
		heirs []string
	}{
		"another does not":         {model.Peer{Health: model.Live, Synced: true}, []string{"b"}},
		"another does":             {model.Peer{Health: model.Live, Synced: true, Reads: true}, nil},
		"another is not read yet":  {model.Peer{Health: model.Live}, nil},
		"another is silent":        {model.Peer{Health: model.Stale}, nil},
		"another has expired":      {model.Peer{Health: model.Expired}, []string{"b"}},
		"another is not wanted":    {model.Peer{Health: model.Live, Forgotten: true}, []string{"b"}},
		"another did, and expired": {model.Peer{Health: model.Expired, Reads: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(1)
			in.Local.Service.Annotations = map[string]string{v1alpha1.AnnotationMode: "receiver"}
			in.Peers["c"] = c.other
			carry(&in, model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in))
			var heirs []string
			if h := in.Published.Service.Spec.Handover; h != nil {
				heirs = h.Heirs
			}
			if diff := cmp.Diff(c.heirs, heirs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPartOfAView: a Service seen before its slices is not one without endpoints.
func TestPartOfAView(t *testing.T) {
	cfg := model.Config{Cluster: "a"}
	in := replicaInput("", "")
	in.Peers["b"].Published.Service.Spec.Total = 2
	for _, w := range model.Decide(cfg, in).Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			in.Local.Slices = append(in.Local.Slices, s)
		}
	}
	keepsWhatIsNotSeen(t, cfg, in)
}

// keepsWhatIsNotSeen takes the slices of b out of view, and fails if any that is in
// use here is written.
func keepsWhatIsNotSeen(t *testing.T, cfg model.Config, in model.Input) {
	t.Helper()
	p := in.Peers["b"]
	p.Published.Slices = nil
	in.Peers["b"] = p
	for _, w := range model.Decide(cfg, in).Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			t.Errorf("%s %s", w.Verb, s.Name)
		}
	}
}

// TestPartOfAnExport: the same of a Service that is exported, which has an import
// with slices of its own.
func TestPartOfAnExport(t *testing.T) {
	cfg := model.Config{Cluster: "a"}
	in := replicaInput("", "")
	in.Local = model.Local{Namespace: true}
	in.Peers["b"].Published.Service.Spec.Total = 2
	in.Peers["b"].Published.Service.Spec.Exported = &v1alpha1.Export{}
	for range 4 { // the import, its Service, its slices
		for _, w := range model.Decide(cfg, in).Writes {
			switch o := w.Object.(type) {
			case *mcs.ServiceImport:
				in.Local.Import = o
			case *corev1.Service:
				if o.Name == key.Name {
					in.Local.Service = o
				} else {
					in.Local.Derived = o
				}
			case *discoveryv1.EndpointSlice:
				if o.Labels[discoveryv1.LabelServiceName] == key.Name {
					in.Local.Slices = []*discoveryv1.EndpointSlice{o}
				} else {
					in.Local.DerivedSlices = []*discoveryv1.EndpointSlice{o}
				}
			}
		}
	}
	if len(in.Local.DerivedSlices) != 1 || len(in.Local.DerivedSlices[0].Endpoints) != 2 {
		t.Fatalf("the import has %v", in.Local.DerivedSlices)
	}
	keepsWhatIsNotSeen(t, cfg, in)
}

// TestNamespaces: one that is missing is created only if that is asked for.
func TestNamespaces(t *testing.T) {
	in := replicaInput("")
	in.Local = model.Local{}
	in.Peers["b"].Published.Service.Spec.Role = v1alpha1.RoleSource
	if r := model.Decide(model.Config{Cluster: "a"}, in); len(r.Writes) > 0 || r.Facts.Holds == "" {
		t.Errorf("%v, %q", r.Writes, r.Facts.Holds)
	}
	r := model.Decide(model.Config{Cluster: "a", CreateNamespaces: true}, in)
	if ns, ok := r.Writes[0].Object.(*corev1.Namespace); !ok || len(r.Writes) != 1 || len(ns.Labels) > 0 {
		t.Errorf("%v", r.Writes)
	}
	if r := model.Decide(model.Config{Cluster: "a", CreateNamespaces: true, Scope: model.Scope{Exclude: []string{key.Namespace}}}, in); len(r.Writes) > 0 {
		t.Errorf("writes about an excluded namespace: %v", r.Writes)
	}
}

// FuzzDecide feeds what people and other clusters write: annotations of any
// kind and publications with anything in them. A selector is never lost, and a
// Service of this cluster's own never deleted.
func FuzzDecide(f *testing.F) {
	f.Add("union", "50%", "10s", `{"app":"cart"}`, "source", "10.1.0.1", int32(1), int64(3), "Joining")
	f.Add("receiver", "x", "-1", `{`, "candidate", "", int32(0), int64(-1), "")
	f.Add("source", "", "", "", "none", "::1", int32(9), int64(0), "Committed")
	f.Fuzz(func(t *testing.T, mode, ready, stable, saved, role, address string, format int32, turn int64, phase string) {
		in := replicaInput("z")
		in.Local.Service.Annotations = map[string]string{
			v1alpha1.AnnotationMode: mode, v1alpha1.AnnotationMinReady: ready, v1alpha1.AnnotationStableFor: stable, v1alpha1.AnnotationRole: role,
			v1alpha1.AnnotationTo: address, v1alpha1.AnnotationPrefer: saved,
		}
		if len(saved) > 0 {
			in.Local.Service.Annotations[v1alpha1.AnnotationSelector] = saved
		}
		pub := in.Peers["b"].Published
		pub.Service.Spec.FormatVersion, pub.Service.Spec.Role, pub.Service.Spec.Mode = format, v1alpha1.Role(role), v1alpha1.Mode(mode)
		pub.Service.Spec.Handover = &v1alpha1.Handover{Turn: turn, Phase: v1alpha1.Phase(phase), Heirs: []string{"a", address}, Need: format}
		pub.Slices[0].Spec.Endpoints[0].Addresses = nil
		if address != "" {
			pub.Slices[0].Spec.Endpoints[0].Addresses = []string{address}
		}
		in.Published.Service = pub.Service.DeepCopy()
		for _, w := range model.Decide(model.Config{Cluster: "a", Namespace: "sync"}, in).Writes {
			s, ok := w.Object.(*corev1.Service)
			if !ok {
				continue
			}
			if w.Verb == model.Delete {
				t.Error("deletes a Service")
			}
			if len(s.Spec.Selector) == 0 && s.Annotations[v1alpha1.AnnotationSelector] != `{"app":"cart"}` {
				t.Errorf("loses the selector: %v", s.Annotations)
			}
		}
	})
}

// BenchmarkDecide is a Service of twenty endpoints for which there is nothing
// to do: a restart has one such for every Service of every cluster.
func BenchmarkDecide(b *testing.B) {
	cfg := model.Config{Cluster: "a", Namespace: "sync"}
	in := replicaInput(make([]string, 20)...)
	r := model.Decide(cfg, in)
	carry(&in, r)
	for _, w := range r.Writes {
		if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
			in.Local.Slices = append(in.Local.Slices, s)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := model.Decide(cfg, in); len(r.Writes) > 0 {
			b.Fatal(r.Writes)
		}
	}
}
