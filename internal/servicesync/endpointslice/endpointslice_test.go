package endpointslice

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// endpoints returns n endpoints of a cluster, of which all are ready.
func endpoints(id string, n int) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for i := range n {
		all = append(all, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", id[0]-'a', i)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	return all
}

func part(id string, n int) *Part {
	return &Part{Cluster: clusterset.ID(id), Slice: "web-0", AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints(id, n)}
}

func web() *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name = "shop", "web"
	return s
}

func bundle(most int, all ...*Part) map[string]*discoveryv1.EndpointSlice {
	parts := make(map[string]*Part)
	for _, p := range all {
		parts[p.Name()] = p
	}
	return Bundle(web(), parts, most)
}

// TestBundle takes apart what it has put together.
func TestBundle(t *testing.T) {
	a, b, c := part("a", 3), part("b", 2), part("c", 99)
	b.Stale = v1alpha1.StaleKept
	slices := bundle(100, a, b, c)
	if len(slices) != 2 {
		t.Errorf("%d slices: two clusters share one, and the third leaves no room", len(slices))
	}
	want := map[string]*Part{a.Name(): a, b.Name(): b, c.Name(): c}
	if diff := cmp.Diff(want, Unbundle(slices)); diff != "" {
		t.Error(diff)
	}
}

// TestWrites moves a part to its new slice before it leaves the old one.
func TestWrites(t *testing.T) {
	have := bundle(16, part("a", 1), part("b", 1))
	want := bundle(16, part("a", 1), part("b", 9)) // no room beside a any more
	grow, shrink := Writes(have, want)
	if len(grow) != 1 || grow[0].Verb != plan.Create || len(shrink) != 1 || shrink[0].Verb != plan.Update {
		t.Errorf("first %+v, then %+v", grow, shrink)
	}
	if grow, shrink := Writes(want, want); len(grow)+len(shrink) > 0 {
		t.Errorf("there is nothing to do: %+v, %+v", grow, shrink)
	}
	if grow, shrink := Writes(have, nil); len(grow) > 0 || len(shrink) != 1 || shrink[0].Why != "endpoints of a, b are used no more" {
		t.Errorf("first %+v, then %+v", grow, shrink)
	}
}

// TestPack leaves endpoints in the slices that they are in.
func TestPack(t *testing.T) {
	service := types.NamespacedName{Namespace: "shop", Name: "web"}
	gather := func(from, to int) Set {
		return Gather([]*discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints("a", to)[from:]}})
	}
	var published []*v1alpha1.PublishedSlice
	for name, p := range Pack(service, gather(0, 150), nil) {
		s := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: p}}
		s.Name = name
		published = append(published, s)
	}
	if len(published) != 2 {
		t.Fatalf("%d slices of 150 endpoints", len(published))
	}
	packed := Pack(service, gather(1, 150), published)
	changed := 0
	for _, s := range published {
		if cmp.Diff(s.Spec.PublishedEndpoints, packed[s.Name]) != "" {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d slices change because an endpoint went", changed)
	}
}

// TestExpire marks endpoints as the last resort, and takes the marks away.
func TestExpire(t *testing.T) {
	p := part("a", 2)
	p.Endpoints[1].Conditions.Ready = ptr.To(false)
	Expire(p.Endpoints, true)
	if c := p.Endpoints[0].Conditions; *c.Ready || !*c.Serving || !*c.Terminating {
		t.Errorf("there is an alternative: %+v", c)
	}
	p.Stale = v1alpha1.StaleExpired
	if again := p.Unexpired(); Ready(again.Endpoints) != 1 || Ready(p.Endpoints) != 0 {
		t.Errorf("%+v of %+v", again, p)
	}
	alone := part("a", 1)
	Expire(alone.Endpoints, false)
	if Ready(alone.Endpoints) != 1 {
		t.Error("there is no alternative")
	}
}

// TestCount counts the larger family of a dual-stack Service.
func TestCount(t *testing.T) {
	six := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: endpoints("b", 3)}
	six.Endpoints[0].Conditions.Ready = ptr.To(false)
	four := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints("a", 1)}
	if ready, total := Gather([]*discoveryv1.EndpointSlice{six, four}).Count(); ready != 2 || total != 3 {
		t.Errorf("%d of %d", ready, total)
	}
}
