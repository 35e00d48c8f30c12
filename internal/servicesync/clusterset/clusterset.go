// Package clusterset describes the clusters that share Services: their identities,
// what each publishes, how sure it is that this still holds, and what each is
// trusted to do. It never decides what becomes of a Service.
package clusterset

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// ID is the identity of a cluster: a DNS label that all clusters know it by.
type ID string

// Member is a cluster that takes part in a Service, as the cluster itself says.
type Member struct {
	v1alpha1.PublishedServiceSpec

	ID     ID
	Health Health
	Trust  Trust
}

// Gives reports whether other clusters use the endpoints of a cluster in this role.
func Gives(r v1alpha1.Role) bool { return r == v1alpha1.RoleSource || r == v1alpha1.RoleUnion }

// Gives reports whether other clusters use the member's endpoints.
func (m Member) Gives() bool { return Gives(m.Role) }

// Published is what a cluster publishes of one Service.
type Published struct {
	// Service is nil if the cluster publishes nothing of the Service.
	Service *v1alpha1.PublishedService
	// Slices are all PublishedSlices that name the Service.
	Slices []*v1alpha1.PublishedSlice
}

// All returns the slices of both fields. If two have the same name, the one in the
// PublishedService comes last.
func (p Published) All() []*v1alpha1.PublishedSlice {
	if p.Service == nil {
		return p.Slices
	}
	all := slices.Grow(slices.Clone(p.Slices), len(p.Service.Spec.Slices))
	for _, in := range p.Service.Spec.Slices {
		s := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{
			Cluster: p.Service.Spec.Cluster, Service: p.Service.Spec.Service, PublishedEndpoints: in.PublishedEndpoints,
		}}
		// An API server that knows the type refuses such a name, but another may
		// not, and AnnotationFrom cannot hold it.
		if s.Name = in.Name; strings.ContainsAny(in.Name, "/=,") {
			s.Name = Digest(in.Name)
		}
		all = append(all, s)
	}
	return all
}

// Whole reports whether these slices hold as many endpoints as the Service says
// that there are.
func (p Published) Whole(all []*v1alpha1.PublishedSlice) bool {
	return p.Service == nil || count(all) >= int(p.Service.Spec.Total)
}

// Understood reports whether the Service is published in a format that this program
// knows. Invariant: p.Service is not nil.
func (p Published) Understood() bool {
	v := p.Service.Spec.FormatVersion
	return v >= 1 && v <= v1alpha1.FormatVersion
}

// count counts the endpoints of published slices by their addresses. The endpoints
// of a dual-stack Service are in slices of both families: the larger family counts.
func count(all []*v1alpha1.PublishedSlice) int {
	most, families := 0, make(map[discoveryv1.AddressType]map[string]bool)
	for _, s := range all {
		family := families[s.Spec.AddressType]
		if family == nil {
			family = make(map[string]bool)
			families[s.Spec.AddressType] = family
		}
		for _, g := range s.Spec.Endpoints {
			for _, address := range g.Addresses {
				family[address] = true
			}
		}
		most = max(most, len(family))
	}
	return most
}
