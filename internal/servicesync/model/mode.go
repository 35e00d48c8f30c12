package model

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// modeOf returns the mode that a Service's annotations ask for.
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
		return m, fmt.Errorf("the annotation %s is %q, which is none of source, receiver, union and singular: nothing changes until it is one of them", key, value)
	}
}
