package model

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// perSlice is how many endpoints a slice holds at most.
const perSlice = 100

// kind is what all endpoints of a slice have in common.
type kind struct {
	family discoveryv1.AddressType
	ports  string // as JSON, in the order of their names
}

// endpoint is what of an endpoint means something elsewhere. Of several addresses
// the first counts: no more does any proxy look at.
type endpoint struct {
	address string
	traits
}

// traits are what endpoints can have in common.
type traits struct {
	hostname, zone              string
	ready, serving, terminating bool
}

// gather collects the endpoints of slices, each once, by kind and address.
func gather(all []*discoveryv1.EndpointSlice) map[kind]map[string]endpoint {
	found := make(map[kind]map[string]endpoint)
	for _, s := range all {
		k := kind{s.AddressType, encodePorts(s.Ports)}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			if found[k] == nil {
				found[k] = make(map[string]endpoint)
			}
			ours := strip(e)
			// While an endpoint moves between slices it is in both: the better one counts.
			if old, twice := found[k][ours.address]; !twice || !old.ready && ours.ready {
				found[k][ours.address] = ours
			}
		}
	}
	return found
}

// strip leaves of an endpoint what means something elsewhere.
func strip(e discoveryv1.Endpoint) endpoint {
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	serving := ready
	if e.Conditions.Serving != nil {
		serving = *e.Conditions.Serving
	}
	return endpoint{e.Addresses[0], traits{
		hostname: deref(e.Hostname), zone: deref(e.Zone),
		ready: ready, serving: serving, terminating: deref(e.Conditions.Terminating),
	}}
}

// grouped has endpoints share an entry that have all but their addresses in
// common.
func grouped(all []endpoint) []v1alpha1.EndpointGroup {
	slices.SortFunc(all, byAddress)
	var groups []v1alpha1.EndpointGroup
	at := make(map[traits]int)
	for _, e := range all {
		i, ok := at[e.traits]
		if !ok {
			i = len(groups)
			at[e.traits] = i
			groups = append(groups, v1alpha1.EndpointGroup{
				Hostname: e.hostname, Zone: e.zone, Ready: e.ready, Serving: e.serving, Terminating: e.terminating,
			})
		}
		groups[i].Addresses = append(groups[i].Addresses, e.address)
	}
	return groups
}

// size counts the endpoints of a published slice.
func size(s *v1alpha1.PublishedSlice) (n int) {
	for _, g := range s.Spec.Endpoints {
		n += len(g.Addresses)
	}
	return n
}

// ungrouped are the endpoints of a published slice, each once, in the order of
// their addresses.
func ungrouped(s *v1alpha1.PublishedSlice) []endpoint {
	var all []endpoint
	for _, g := range s.Spec.Endpoints {
		for _, address := range g.Addresses {
			all = append(all, endpoint{address, traits{g.Hostname, g.Zone, g.Ready, g.Serving, g.Terminating}})
		}
	}
	slices.SortStableFunc(all, byAddress)
	return slices.CompactFunc(all, func(a, b endpoint) bool { return a.address == b.address })
}

func byAddress(a, b endpoint) int { return cmp.Compare(a.address, b.address) }

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// encodePorts is the same for the same set of ports.
func encodePorts(ports []discoveryv1.EndpointPort) string {
	ports = slices.Clone(ports)
	slices.SortFunc(ports, func(a, b discoveryv1.EndpointPort) int {
		return cmp.Or(cmp.Compare(deref(a.Name), deref(b.Name)), cmp.Compare(deref(a.Port), deref(b.Port)))
	})
	out, err := json.Marshal(ports)
	if err != nil {
		panic(err) // plain values
	}
	return string(out)
}

func decodePorts(encoded string) []discoveryv1.EndpointPort {
	var ports []discoveryv1.EndpointPort
	if err := json.Unmarshal([]byte(encoded), &ports); err != nil {
		panic(err) // what encodePorts gave
	}
	return ports
}

// pack distributes endpoints over slices so that whatever is published already
// stays where it is: what is gone leaves a gap, what is new fills gaps of the
// fullest slices first.
func pack(service types.NamespacedName, found map[kind]map[string]endpoint, published []*v1alpha1.PublishedSlice) map[string]v1alpha1.PublishedEndpoints {
	packed := make(map[string]v1alpha1.PublishedEndpoints)
	for k, endpoints := range found {
		packKind(packed, service, k, endpoints, published)
	}
	return packed
}

func packKind(packed map[string]v1alpha1.PublishedEndpoints, service types.NamespacedName, k kind, endpoints map[string]endpoint, published []*v1alpha1.PublishedSlice) {
	prefix := clip(service.Name) + "-" + digest(service.Namespace, service.Name, string(k.family), k.ports) + "-"
	fill := make(map[string][]endpoint)
	rest := maps.Clone(endpoints)
	for _, s := range published {
		if len(s.Name) <= len(prefix) || s.Name[:len(prefix)] != prefix {
			continue
		}
		for _, e := range ungrouped(s) {
			if now, still := rest[e.address]; still && len(fill[s.Name]) < perSlice {
				fill[s.Name] = append(fill[s.Name], now)
				delete(rest, e.address)
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(fill), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(fill[b]), len(fill[a])), cmp.Compare(a, b))
	})
	for _, address := range slices.Sorted(maps.Keys(rest)) {
		for len(names) > 0 && len(fill[names[0]]) >= perSlice {
			names = names[1:]
		}
		if len(names) == 0 {
			names = []string{free(prefix, fill)}
		}
		fill[names[0]] = append(fill[names[0]], rest[address])
	}
	for name, endpoints := range fill {
		packed[name] = v1alpha1.PublishedEndpoints{AddressType: k.family, Ports: decodePorts(k.ports), Endpoints: grouped(endpoints)}
	}
}

// free is the first name that is not taken.
func free(prefix string, taken map[string][]endpoint) string {
	for i := 0; ; i++ {
		name := prefix + strconv.Itoa(i)
		if _, ok := taken[name]; !ok {
			return name
		}
	}
}

// count counts endpoints by address of one family: those of a dual-stack
// Service are in two slices. The family with the most counts.
func count(found map[kind]map[string]endpoint) (ready, total int) {
	type tally struct{ ready, total map[string]bool }
	families := make(map[discoveryv1.AddressType]tally)
	for k, endpoints := range found {
		t, ok := families[k.family]
		if !ok {
			t = tally{make(map[string]bool), make(map[string]bool)}
			families[k.family] = t
		}
		for address, e := range endpoints {
			t.total[address] = true
			if e.ready {
				t.ready[address] = true
			}
		}
	}
	for _, t := range families {
		ready, total = max(ready, len(t.ready)), max(total, len(t.total))
	}
	return ready, total
}
