package model

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// endpointsManagedBy is the label that names the program that manages an Endpoints
// object.
const endpointsManagedBy = "endpoints.kubernetes.io/managed-by"

// planEndpoints writes an Endpoints object for a replica, if the configuration or an
// annotation asks for it, for programs that do not read EndpointSlices.
func planEndpoints(seen *view, next next, use use) []Write {
	old := seen.in.Local.Endpoints
	mine := old != nil && old.Labels[endpointsManagedBy] == v1alpha1.ManagedBy
	wanted := seen.svc != nil && !next.drop && seen.me.Replica && len(seen.svc.Spec.Selector) == 0 &&
		(seen.cfg.Endpoints || seen.svc.Annotations[v1alpha1.AnnotationEndpoints] == "true")
	switch {
	case !wanted && mine && (seen.svc == nil || len(seen.svc.Spec.Selector) == 0):
		return []Write{plan.Deleted(old, "Endpoints are wanted no more")}
	case !wanted || old != nil && !mine:
	case old == nil:
		return []Write{plan.Created(endpointsOf(seen.svc, use.parts), "Endpoints are wanted too")}
	default:
		next := endpointsOf(seen.svc, use.parts)
		next.ObjectMeta, next.TypeMeta = *old.ObjectMeta.DeepCopy(), old.TypeMeta
		if !equality.Semantic.DeepEqual(old, next) {
			return []Write{plan.Updated(old, next, "follow the slices")}
		}
	}
	return nil
}

// endpointsOf returns the Endpoints of a Service. Their label keeps Kubernetes from
// copying them to slices.
//
//nolint:staticcheck // deprecated, and asked for
func endpointsOf(svc *corev1.Service, all parts) *corev1.Endpoints {
	out := &corev1.Endpoints{}
	out.Name, out.Namespace = svc.Name, svc.Namespace
	out.Labels = map[string]string{
		discoveryv1.LabelSkipMirror: "true",
		endpointsManagedBy:          v1alpha1.ManagedBy,
	}
	found := endpointslice.GatherParts(slices.SortedFunc(maps.Values(all), func(a, b *endpointslice.Part) int { return cmp.Compare(a.Name(), b.Name()) }))
	kinds := slices.SortedFunc(maps.Keys(found), func(a, b endpointslice.Kind) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Ports, b.Ports))
	})
	for _, k := range kinds {
		var subset corev1.EndpointSubset
		for _, p := range endpointslice.DecodePorts(k.Ports) {
			subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: ptr.Deref(p.Name, ""), Port: ptr.Deref(p.Port, 0), Protocol: ptr.Deref(p.Protocol, ""), AppProtocol: p.AppProtocol})
		}
		for _, address := range sortedNames(found[k]) {
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
