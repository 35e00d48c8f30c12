package model

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
)

// leftBehind reports whether Kubernetes' own controllers made a slice before the
// Service's selector was taken away. They never remove it, and proxies still route to
// it (kubernetes/kubernetes#118376).
func leftBehind(svc *corev1.Service, s *discoveryv1.EndpointSlice) bool {
	if svc == nil || len(svc.Spec.Selector) > 0 || svc.Annotations[v1alpha1.AnnotationSelector] == "" {
		return false
	}
	by := s.Labels[discoveryv1.LabelManagedBy]
	return by == "endpointslice-controller.k8s.io" || by == "endpointslicemirroring-controller.k8s.io"
}

// leftOvers returns the objects that Kubernetes left behind when the selector was taken
// away.
func (v *view) leftOvers() (left []Object) {
	if v.svc == nil {
		return nil
	}
	// The Endpoints go first: as long as they exist, Kubernetes copies them to another
	// slice for each slice that is deleted.
	if e := v.in.Local.Endpoints; e != nil && len(v.svc.Spec.Selector) == 0 && v.svc.Annotations[v1alpha1.AnnotationSelector] != "" &&
		(e.Labels[endpointsManagedBy] == "endpoint-controller" || e.Annotations["endpoints.kubernetes.io/last-change-trigger-time"] != "") {
		left = append(left, e)
	}
	for _, s := range v.left {
		left = append(left, s)
	}
	return left
}

// leftReady counts the ready endpoints that were left behind.
func (v *view) leftReady() (n int) {
	for _, s := range v.left {
		n += endpointslice.Ready(s.Endpoints)
	}
	return n
}

// leftAlone reports whether only endpoints that were left behind are ready by now: the
// cluster that was to give endpoints instead has gone as well.
func (v *view) leftAlone() bool { return v.leftReady() > 0 && v.imports.ready() == 0 }

// leftServe reports whether what was left behind must stay until a cluster gives
// endpoints, because nothing else is ready, or will be with these imports.
func (v *view) leftServe(using parts) bool {
	return v.leftAlone() || v.leftReady() > 0 && v.readyAmong(using) == 0
}
