// Package endpointslice does the arithmetic of EndpointSlices: it collects and counts
// endpoints, packs those of this cluster into the slices that it publishes, lets
// endpoints of several clusters share slices, and orders the writes of slices. It
// never decides whose endpoints are used.
package endpointslice

import (
	"cmp"
	"encoding/json"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Most is how many endpoints a slice holds at most.
const Most = 100

// Kind is what all endpoints of a slice have in common.
type Kind struct {
	Family discoveryv1.AddressType
	// Ports are as EncodePorts returns them.
	Ports string
}

// Endpoint is the part of an endpoint that is meaningful in other clusters. Of
// several addresses it has the first: proxies ignore all others.
type Endpoint struct {
	Address string
	traits
}

// traits are what endpoints can have in common.
type traits struct {
	Hostname, Zone              string
	Ready, Serving, Terminating bool
}

// Set holds endpoints by kind and address.
type Set map[Kind]map[string]Endpoint

// Gather collects the endpoints of slices. While an endpoint moves between slices it
// is in both, and the one that is ready counts.
func Gather(all []*discoveryv1.EndpointSlice) Set {
	found := make(Set)
	for _, s := range all {
		found.add(s.AddressType, s.Ports, s.Endpoints)
	}
	return found
}

// GatherParts collects the endpoints of parts.
func GatherParts(all []*Part) Set {
	found := make(Set)
	for _, p := range all {
		found.add(p.AddressType, p.Ports, p.Endpoints)
	}
	return found
}

func (found Set) add(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) {
	k := Kind{family, EncodePorts(ports)}
	for _, e := range endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		if found[k] == nil {
			found[k] = make(map[string]Endpoint)
		}
		p := portable(e)
		if old, twice := found[k][p.Address]; !twice || !old.Ready && p.Ready {
			found[k][p.Address] = p
		}
	}
}

// portable returns the part of an endpoint that is meaningful in other clusters.
func portable(e discoveryv1.Endpoint) Endpoint {
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	return Endpoint{e.Addresses[0], traits{
		Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
		Ready: ready, Serving: ptr.Deref(e.Conditions.Serving, ready), Terminating: ptr.Deref(e.Conditions.Terminating, false),
	}}
}

// Imported returns an endpoint as it stands in the slices of other clusters.
func (e Endpoint) Imported() discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  []string{e.Address},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(e.Ready), Serving: ptr.To(e.Serving), Terminating: ptr.To(e.Terminating)},
	}
	if e.Hostname != "" {
		out.Hostname = ptr.To(e.Hostname)
	}
	if e.Zone != "" {
		out.Zone = ptr.To(e.Zone)
	}
	return out
}

// Has reports whether one of the endpoints has the address.
func (found Set) Has(address string) bool {
	for _, endpoints := range found {
		if _, ok := endpoints[address]; ok {
			return true
		}
	}
	return false
}

// Count counts the endpoints by address. The endpoints of a dual-stack Service are in
// slices of both families: the larger family counts.
func (found Set) Count() (ready, total int) {
	type tally struct{ ready, total map[string]bool }
	families := make(map[discoveryv1.AddressType]tally)
	for k, endpoints := range found {
		t, ok := families[k.Family]
		if !ok {
			t = tally{make(map[string]bool), make(map[string]bool)}
			families[k.Family] = t
		}
		for address, e := range endpoints {
			t.total[address] = true
			if e.Ready {
				t.ready[address] = true
			}
		}
	}
	for _, t := range families {
		ready, total = max(ready, len(t.ready)), max(total, len(t.total))
	}
	return ready, total
}

// Ready counts the endpoints of a slice that are said to be ready.
func Ready(endpoints []discoveryv1.Endpoint) (n int) {
	for _, e := range endpoints {
		if ptr.Deref(e.Conditions.Ready, false) {
			n++
		}
	}
	return n
}

// EncodePorts returns the same string for the same set of ports: JSON, in the order
// of the ports' names.
func EncodePorts(ports []discoveryv1.EndpointPort) string {
	ports = slices.Clone(ports)
	slices.SortFunc(ports, func(a, b discoveryv1.EndpointPort) int {
		return cmp.Or(cmp.Compare(ptr.Deref(a.Name, ""), ptr.Deref(b.Name, "")), cmp.Compare(ptr.Deref(a.Port, 0), ptr.Deref(b.Port, 0)))
	})
	out, err := json.Marshal(ports)
	if err != nil {
		panic(err) // plain values
	}
	return string(out)
}

// DecodePorts returns the ports that EncodePorts encoded.
func DecodePorts(encoded string) []discoveryv1.EndpointPort {
	var ports []discoveryv1.EndpointPort
	if err := json.Unmarshal([]byte(encoded), &ports); err != nil {
		panic(err) // EncodePorts returned something else
	}
	return ports
}

// Expire marks endpoints of a cluster whose lease has expired. If there is an
// alternative, they terminate but serve: proxies then use them only when no other
// endpoint is left, without asking anybody. Invariant: the endpoints are not marked.
func Expire(endpoints []discoveryv1.Endpoint, alternative bool) {
	for i := range endpoints {
		c := &endpoints[i].Conditions
		was := ptr.Deref(c.Ready, false)
		c.Ready, c.Serving, c.Terminating = ptr.To(was && !alternative), ptr.To(was), ptr.To(was && alternative)
	}
}

// Unexpire takes the marks of Expire away.
func Unexpire(endpoints []discoveryv1.Endpoint) {
	for i := range endpoints {
		c := &endpoints[i].Conditions
		c.Ready, c.Terminating = ptr.To(ptr.Deref(c.Ready, false) || ptr.Deref(c.Serving, false)), ptr.To(false)
	}
}

// SetStale writes the mark that says how old the endpoints of a slice are; empty:
// none. See AnnotationStale.
func SetStale(s *discoveryv1.EndpointSlice, mark string) {
	if mark == "" {
		delete(s.Annotations, v1alpha1.AnnotationStale)
		return
	}
	if s.Annotations == nil {
		s.Annotations = make(map[string]string)
	}
	s.Annotations[v1alpha1.AnnotationStale] = mark
}
