package model

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// endpointsManagedBy is the label that says whose an Endpoints object is.
const endpointsManagedBy = "endpoints.kubernetes.io/managed-by"

// planEndpoints writes Endpoints for a replica, where somebody asks for them:
// for programs that read nothing newer. The label keeps Kubernetes from making
// slices of them.
func (d *decision) planEndpoints() {
	old := d.in.Local.Endpoints
	mine := old != nil && old.Labels[endpointsManagedBy] == v1alpha1.ManagedBy
	wanted := d.svc != nil && !d.drop && d.me.Replica && len(d.svc.Spec.Selector) == 0 &&
		(d.cfg.Endpoints || d.svc.Annotations[v1alpha1.AnnotationEndpoints] == "true")
	switch {
	case !wanted && mine && (d.svc == nil || len(d.svc.Spec.Selector) == 0):
		d.writes = append(d.writes, Write{Delete, Own, old, nil, "Endpoints are wanted no more"})
	case !wanted || old != nil && !mine:
	case old == nil:
		d.writes = append(d.writes, Write{Create, Own, d.endpoints(), nil, "Endpoints are wanted too"})
	default:
		next := d.endpoints()
		next.ObjectMeta, next.TypeMeta = *old.ObjectMeta.DeepCopy(), old.TypeMeta
		if !equality.Semantic.DeepEqual(old, next) {
			d.writes = append(d.writes, Write{Update, Own, next, old, "follow the slices"})
		}
	}
}

//nolint:staticcheck // deprecated, and asked for
func (d *decision) endpoints() *corev1.Endpoints {
	out := &corev1.Endpoints{}
	out.Name, out.Namespace = d.svc.Name, d.svc.Namespace
	out.Labels = map[string]string{
		discoveryv1.LabelSkipMirror: "true",
		endpointsManagedBy:          v1alpha1.ManagedBy,
	}
	found := gather(slices.SortedFunc(maps.Values(d.slices), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) }))
	kinds := slices.SortedFunc(maps.Keys(found), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.ports, b.ports))
	})
	for _, k := range kinds {
		var subset corev1.EndpointSubset
		for _, p := range decodePorts(k.ports) {
			subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: deref(p.Name), Port: deref(p.Port), Protocol: deref(p.Protocol), AppProtocol: p.AppProtocol})
		}
		for _, address := range slices.Sorted(maps.Keys(found[k])) {
			e := found[k][address]
			a := corev1.EndpointAddress{IP: address, Hostname: e.hostname}
			if e.ready {
				subset.Addresses = append(subset.Addresses, a)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
			}
		}
		out.Subsets = append(out.Subsets, subset)
	}
	return out
}
