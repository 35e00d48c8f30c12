package endpointslice

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// Pack distributes endpoints over slices to publish, by their names. An endpoint that
// is published already stays in its slice. Endpoints that are gone leave gaps, and
// new endpoints fill the gaps of the fullest slices first.
func Pack(service types.NamespacedName, found Set, published []*v1alpha1.PublishedSlice) map[string]v1alpha1.PublishedEndpoints {
	packed := make(map[string]v1alpha1.PublishedEndpoints)
	for k, endpoints := range found {
		prefix := clusterset.Clip(service.Name) + "-" + clusterset.Digest(service.Namespace, service.Name, string(k.Family), k.Ports) + "-"
		for name, of := range fill(prefix, endpoints, published) {
			packed[name] = v1alpha1.PublishedEndpoints{AddressType: k.Family, Ports: DecodePorts(k.Ports), Endpoints: grouped(of)}
		}
	}
	return packed
}

// fill distributes the endpoints of one kind over slices whose names have the prefix.
func fill(prefix string, endpoints map[string]Endpoint, published []*v1alpha1.PublishedSlice) map[string][]Endpoint {
	filled := make(map[string][]Endpoint)
	rest := maps.Clone(endpoints)
	for _, s := range published {
		if len(s.Name) <= len(prefix) || !strings.HasPrefix(s.Name, prefix) {
			continue
		}
		for _, e := range Ungrouped(s) {
			if now, still := rest[e.Address]; still && len(filled[s.Name]) < Most {
				filled[s.Name] = append(filled[s.Name], now)
				delete(rest, e.Address)
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(filled), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(filled[b]), len(filled[a])), cmp.Compare(a, b))
	})
	for _, address := range slices.Sorted(maps.Keys(rest)) {
		for len(names) > 0 && len(filled[names[0]]) >= Most {
			names = names[1:]
		}
		if len(names) == 0 {
			names = []string{free(prefix, filled)}
		}
		filled[names[0]] = append(filled[names[0]], rest[address])
	}
	return filled
}

// free returns the first name with the prefix that is not taken.
func free(prefix string, taken map[string][]Endpoint) string {
	for i := 0; ; i++ {
		name := prefix + strconv.Itoa(i)
		if _, ok := taken[name]; !ok {
			return name
		}
	}
}

// grouped puts endpoints that differ in nothing but their addresses into one entry.
func grouped(all []Endpoint) []v1alpha1.EndpointGroup {
	slices.SortFunc(all, byAddress)
	var groups []v1alpha1.EndpointGroup
	at := make(map[traits]int)
	for _, e := range all {
		i, ok := at[e.traits]
		if !ok {
			i = len(groups)
			at[e.traits] = i
			groups = append(groups, v1alpha1.EndpointGroup{
				Hostname: e.Hostname, Zone: e.Zone, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
			})
		}
		groups[i].Addresses = append(groups[i].Addresses, e.Address)
	}
	return groups
}

// Ungrouped returns the endpoints of a published slice in the order of their
// addresses. If an address is there twice, the first endpoint counts.
func Ungrouped(s *v1alpha1.PublishedSlice) []Endpoint {
	var all []Endpoint
	for _, g := range s.Spec.Endpoints {
		for _, address := range g.Addresses {
			all = append(all, Endpoint{address, traits{g.Hostname, g.Zone, g.Ready, g.Serving, g.Terminating}})
		}
	}
	slices.SortStableFunc(all, byAddress)
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Address == b.Address })
}

// Size counts the endpoints of a published slice.
func Size(s *v1alpha1.PublishedSlice) (n int) {
	for _, g := range s.Spec.Endpoints {
		n += len(g.Addresses)
	}
	return n
}

func byAddress(a, b Endpoint) int { return cmp.Compare(a.Address, b.Address) }
