package model

import (
	"k8s.io/apimachinery/pkg/api/equality"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// planEndpoints writes an Endpoints object for a replica, if the configuration or an
// annotation asks for it, for programs that do not read EndpointSlices.
func planEndpoints(seen *view, next next, use use) []Write {
	old := seen.in.Local.Endpoints
	mine := old != nil && old.Labels[endpointslice.EndpointsManagedBy] == v1alpha1.ManagedBy
	wanted := seen.svc != nil && !next.drop && seen.me.Replica && len(seen.svc.Spec.Selector) == 0 &&
		(seen.cfg.Endpoints || seen.svc.Annotations[v1alpha1.AnnotationEndpoints] == "true")
	switch {
	case !wanted && mine && (seen.svc == nil || len(seen.svc.Spec.Selector) == 0):
		return []Write{plan.Deleted(old, "Endpoints are wanted no more")}
	case !wanted || old != nil && !mine:
	case old == nil:
		return []Write{plan.Created(endpointslice.EndpointsOf(seen.svc, use.parts), "Endpoints are wanted too")}
	default:
		next := endpointslice.EndpointsOf(seen.svc, use.parts)
		next.ObjectMeta, next.TypeMeta = *old.ObjectMeta.DeepCopy(), old.TypeMeta
		if !equality.Semantic.DeepEqual(old, next) {
			return []Write{plan.Updated(old, next, "follow the slices")}
		}
	}
	return nil
}
