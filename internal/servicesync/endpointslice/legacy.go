package endpointslice

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// EndpointsManagedBy is the label that names the program that manages an Endpoints
// object.
const EndpointsManagedBy = "endpoints.kubernetes.io/managed-by"

// EndpointsOf returns the Endpoints of a Service. Their label keeps Kubernetes from
// copying them to slices.
//
//nolint:staticcheck // deprecated, and asked for
func EndpointsOf(svc *corev1.Service, parts map[string]*Part) *corev1.Endpoints {
	out := &corev1.Endpoints{}
	out.Name, out.Namespace = svc.Name, svc.Namespace
	out.Labels = map[string]string{
		discoveryv1.LabelSkipMirror: "true",
		EndpointsManagedBy:          v1alpha1.ManagedBy,
	}
	found := GatherParts(slices.SortedFunc(maps.Values(parts), func(a, b *Part) int { return cmp.Compare(a.Name(), b.Name()) }))
	kinds := slices.SortedFunc(maps.Keys(found), func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Ports, b.Ports))
	})
	for _, k := range kinds {
		var subset corev1.EndpointSubset
		for _, p := range DecodePorts(k.Ports) {
			subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: ptr.Deref(p.Name, ""), Port: ptr.Deref(p.Port, 0), Protocol: ptr.Deref(p.Protocol, ""), AppProtocol: p.AppProtocol})
		}
		for _, address := range slices.Sorted(maps.Keys(found[k])) {
			e := found[k][address]
			a := corev1.EndpointAddress{IP: address, Hostname: e.Hostname}
			if e.Ready {
				subset.Addresses = append(subset.Addresses, a)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
			}
		}
		out.Subsets = append(out.Subsets, subset)
	}
	return out
}
