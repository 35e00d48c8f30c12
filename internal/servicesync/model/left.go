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

// leftOvers are the objects of Kubernetes' own controllers that stay when a Service's
// selector is taken away.
type leftOvers struct {
	// endpoints is nil if there are none.
	endpoints *corev1.Endpoints //nolint:staticcheck // deprecated, and still written by Kubernetes itself
	slices    []*discoveryv1.EndpointSlice
}

// leftOversOf returns what was left behind of a Service; svc is nil if there is none.
func leftOversOf(svc *corev1.Service, l Local) (left leftOvers) {
	for _, s := range l.Slices {
		if leftBehind(svc, s) {
			left.slices = append(left.slices, s)
		}
	}
	if e := l.Endpoints; e != nil && svc != nil && len(svc.Spec.Selector) == 0 && svc.Annotations[v1alpha1.AnnotationSelector] != "" &&
		(e.Labels[endpointslice.EndpointsManagedBy] == "endpoint-controller" || e.Annotations["endpoints.kubernetes.io/last-change-trigger-time"] != "") {
		left.endpoints = e
	}
	return left
}

// objects returns what was left behind, in the order of its deletion: as long as the
// Endpoints exist, Kubernetes copies them to another slice for each slice that is
// deleted.
func (l leftOvers) objects() (all []Object) {
	if l.endpoints != nil {
		all = append(all, l.endpoints)
	}
	for _, s := range l.slices {
		all = append(all, s)
	}
	return all
}

// ready counts the ready endpoints in the slices.
func (l leftOvers) ready() (n int) {
	for _, s := range l.slices {
		n += endpointslice.Ready(s.Endpoints)
	}
	return n
}

// leftAlone reports whether only endpoints that were left behind are ready by now: the
// cluster that was to give endpoints instead has gone as well.
func (v *view) leftAlone() bool { return v.left.ready() > 0 && v.imports.ready() == 0 }

// leftServe reports whether what was left behind must stay until a cluster gives
// endpoints, because nothing else is ready, or will be with these imports.
func (v *view) leftServe(using parts) bool {
	return v.leftAlone() || v.left.ready() > 0 && v.readyAmong(using) == 0
}
