package model

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// modeOf is the mode that a Service's annotations ask for.
func modeOf(s *corev1.Service) (v1alpha1.Mode, error) {
	key := v1alpha1.AnnotationMode
	value, ok := s.Annotations[key]
	if !ok {
		key = v1alpha1.AnnotationModeCompat
		value = s.Annotations[key]
	}
	switch m := v1alpha1.Mode(value); m {
	case v1alpha1.ModeNone, v1alpha1.ModeSource, v1alpha1.ModeReceiver, v1alpha1.ModeUnion, v1alpha1.ModeSingular:
		if m != v1alpha1.ModeNone && m != v1alpha1.ModeSingular && s.Spec.Type == corev1.ServiceTypeExternalName {
			return m, fmt.Errorf("an ExternalName Service has no endpoints to migrate: the annotation %s: %s changes nothing; remove it", key, value)
		}
		return m, nil
	default:
		return m, fmt.Errorf("the annotation %s is %q, which is none of source, receiver, union and singular: nothing changes until it is", key, value)
	}
}

// need is how many ready endpoints must stand where n are given up: 1 at least.
func (d *decision) need(n int) int32 {
	want := d.cfg.MinReady
	if want == (intstr.IntOrString{}) {
		want = intstr.FromString("75%")
	}
	if s := d.svc.Annotations[v1alpha1.AnnotationMinReady]; s != "" {
		want = intstr.Parse(s)
	}
	v, err := intstr.GetScaledValueFromIntOrPercent(&want, n, true)
	if err != nil {
		d.warn("BadMinReady", fmt.Sprintf("%s is %q, which is neither a number nor a percentage: all endpoints that are given up must be replaced until it is", v1alpha1.AnnotationMinReady, want.String()))
		v = n
	}
	return int32(max(v, 1)) //nolint:gosec // endpoints of one Service
}

// stableFor is for how long they must have been ready.
func (d *decision) stableFor() time.Duration {
	s, ok := d.svc.Annotations[v1alpha1.AnnotationStableFor]
	if !ok {
		return d.cfg.StableFor
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		d.warn("BadStableFor", fmt.Sprintf("%s is %q, which is no duration such as 30s: %s counts until it is", v1alpha1.AnnotationStableFor, s, d.cfg.StableFor))
		return d.cfg.StableFor
	}
	return v
}
