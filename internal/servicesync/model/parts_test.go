package model_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// shared is a Service of this cluster and of others, which have so many
// endpoints each.
func shared(sizes map[model.ClusterID]int) model.Input {
	in := replicaInput("")
	like := in.Peers["b"]
	in.Peers = make(map[model.ClusterID]model.Peer)
	for id, size := range sizes {
		pub := like.Published.Service.DeepCopy()
		pub.Spec.Cluster, pub.Spec.Total = string(id), int32(size)
		s := like.Published.Slices[0].DeepCopy()
		s.Spec.Endpoints = []v1alpha1.EndpointGroup{{Ready: true, Serving: true}}
		for i := range size {
			s.Spec.Endpoints[0].Addresses = append(s.Spec.Endpoints[0].Addresses, fmt.Sprintf("10.%d.0.%d", id[0], i))
		}
		p := like
		p.Published = model.Published{Service: pub, Slices: []*v1alpha1.PublishedSlice{s}}
		in.Peers[id] = p
	}
	return in
}

// imports are the slices of a Service that were imported, by name.
type imports map[string]*discoveryv1.EndpointSlice

// carry puts one write into what there is.
func (i imports) carry(w model.Write) {
	s, ok := w.Object.(*discoveryv1.EndpointSlice)
	switch {
	case !ok:
	case w.Verb == model.Delete:
		delete(i, s.Name)
	default:
		i[s.Name] = s
	}
}

// into is in with these slices beside its own.
func (i imports) into(in model.Input) model.Input {
	in.Local.Slices = append(in.Local.Slices[:1:1], slices.Collect(maps.Values(i))...)
	return in
}

// addresses counts in how many slices each address is.
func (i imports) addresses() map[string]int {
	n := make(map[string]int)
	for _, s := range i {
		for _, e := range s.Endpoints {
			n[e.Addresses[0]]++
		}
	}
	return n
}

// parts are the sizes of the parts of each slice, as CLUSTER=SIZE, sorted.
func (i imports) parts() []string {
	var all []string
	for _, s := range i {
		var of []string
		for _, p := range endpointslice.Parts(s) {
			of = append(of, strings.TrimSuffix(fmt.Sprintf("%s=%d %s", p.Cluster, len(p.Endpoints), p.Stale), " "))
		}
		all = append(all, strings.Join(of, ","))
	}
	slices.Sort(all)
	return all
}

// TestSharedSlices: endpoints of several clusters share slices, and what holds
// for one cluster only is said of its part.
func TestSharedSlices(t *testing.T) {
	cfg := model.Config{Cluster: "a"}
	sizes := make(map[model.ClusterID]int)
	for id := 'b'; id <= 'j'; id++ {
		sizes[model.ClusterID(id)] = 20
	}
	have := imports{}
	pass := func(in model.Input) {
		t.Helper()
		for range 2 {
			r := model.Decide(cfg, have.into(in))
			for _, w := range r.Writes {
				have.carry(w)
			}
		}
		for _, w := range model.Decide(cfg, have.into(in)).Writes {
			if _, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
				t.Errorf("a second pass writes: %s %s", w.Verb, w.Object.GetName())
			}
		}
		for name, s := range have {
			if len(s.Endpoints) > 100 {
				t.Errorf("%s has %d endpoints", name, len(s.Endpoints))
			}
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, have.parts()); diff != "" {
			t.Error(diff)
		}
	}

	in := shared(sizes)
	pass(in)
	expect("b=20,c=20,d=20,e=20", "f=20,g=20,h=20,i=20", "j=20")
	for _, s := range have {
		want := ""
		if len(s.Endpoints) == 20 {
			want = "j"
		}
		if got := s.Labels[v1alpha1.LabelCluster]; got != want {
			t.Errorf("the slice %s is said to be of the cluster %q", s.Annotations[v1alpha1.AnnotationFrom], got)
		}
	}

	t.Log("one is silent, one has not been read yet")
	set := func(id model.ClusterID, change func(*model.Peer)) {
		p := in.Peers[id]
		change(&p)
		in.Peers[id] = p
	}
	set("c", func(p *model.Peer) { p.Health, p.Confirmed = model.Expired, false })
	set("d", func(p *model.Peer) { p.Synced, p.Published = false, model.Published{} })
	pass(in)
	expect("b=20,c=20 expired,d=20,e=20", "f=20,g=20,h=20,i=20", "j=20")
	for _, s := range have {
		for _, p := range endpointslice.Parts(s) {
			for _, e := range p.Endpoints {
				if *e.Conditions.Ready != (p.Cluster != "c") {
					t.Errorf("an endpoint of %s: ready is %t", p.Cluster, *e.Conditions.Ready)
				}
			}
		}
	}

	t.Log("both are back, and one is taken away")
	in = shared(sizes)
	set("b", func(p *model.Peer) { p.Published = model.Published{} })
	pass(in)
	expect("c=20,d=20,e=20,f=20", "g=20,h=20,i=20,j=20")
}

// TestWhoseEndpoints: a slice that does not say any more whose its endpoints are
// goes once all clusters have been heard.
func TestWhoseEndpoints(t *testing.T) {
	cfg := model.Config{Cluster: "a"}
	in := shared(map[model.ClusterID]int{"b": 1, "c": 1})
	have := imports{}
	for _, w := range model.Decide(cfg, have.into(in)).Writes {
		have.carry(w)
	}
	for _, s := range have {
		s.Annotations, s.Endpoints[0].Addresses = nil, []string{"10.9.9.9"}
	}
	c := in.Peers["c"]
	c.Confirmed = false
	in.Peers["c"] = c
	for _, want := range []int{1, 0} {
		for range 2 {
			for _, w := range model.Decide(cfg, have.into(in)).Writes {
				have.carry(w)
			}
		}
		if n := have.addresses()["10.9.9.9"]; n != want {
			t.Errorf("it is in %d slices, not %d", n, want)
		}
		c.Confirmed = true
		in.Peers["c"] = c
	}
}

// TestMoves: while parts move between slices, what was there before and is to be
// there afterwards is there after each write. After a pass that was cut short parts
// may have to move in a circle: then it is so again at the end of the next.
func TestMoves(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := model.Config{Cluster: "a", PerSlice: 24}
		have, whole := imports{}, true
		for range 8 {
			sizes := make(map[model.ClusterID]int)
			for id := 'b'; id <= 'j'; id++ {
				if rng.IntN(3) > 0 {
					sizes[model.ClusterID(id)] = rng.IntN(24)
				}
			}
			in := shared(sizes)
			before := have.addresses()
			writes := model.Decide(cfg, have.into(in)).Writes
			after := maps.Clone(have)
			for _, w := range writes {
				after.carry(w)
			}
			for address, n := range after.addresses() {
				if n > 1 {
					t.Fatalf("seed %d: %s is in %d slices", seed, address, n)
				}
			}
			wholeNow := rng.IntN(3) > 0
			if !wholeNow {
				writes = writes[:rng.IntN(len(writes)+1)]
			}
			for _, w := range writes {
				have.carry(w)
				now := have.addresses()
				for address := range after.addresses() {
					if whole && before[address] > 0 && now[address] == 0 {
						t.Fatalf("seed %d: %s is nowhere after %s %s", seed, address, w.Verb, w.Object.GetName())
					}
				}
			}
			whole = wholeNow
		}
	}
}

// TestNamesOfSlices: two Services whose names begin with the same 40 characters
// have slices of their own.
func TestNamesOfSlices(t *testing.T) {
	names := make(map[string]bool)
	for _, service := range []string{"checkout-payment-gateway-europe-west-production-blue", "checkout-payment-gateway-europe-west-production-green"} {
		in := shared(map[model.ClusterID]int{"b": 3, "c": 100})
		in.Service.Name, in.Local.Service.Name = service, service
		for id, p := range in.Peers {
			p.Published.Service.Spec.Service.Name = service
			in.Peers[id] = p
		}
		for _, w := range model.Decide(model.Config{Cluster: "a"}, in).Writes {
			if s, ok := w.Object.(*discoveryv1.EndpointSlice); ok {
				names[s.Name] = true
			}
		}
	}
	if len(names) != 4 {
		t.Errorf("two Services with two slices each: %q", slices.Sorted(maps.Keys(names)))
	}
}
