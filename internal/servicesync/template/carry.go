package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Carry lists the keys of the labels and annotations that a Service shares with its
// replicas: those that this cluster publishes, and those that it takes from its peers.
// A key that ends with * stands for all keys with that prefix. Empty: none.
type Carry struct {
	Labels, Annotations []string
}

// LabelsOf returns those of the labels that Carry lists.
func (c Carry) LabelsOf(all map[string]string) map[string]string { return carried(c.Labels, all) }

// AnnotationsOf returns those of the annotations that Carry lists.
func (c Carry) AnnotationsOf(all map[string]string) map[string]string {
	return carried(c.Annotations, all)
}

// carried returns the entries whose keys are listed, except those that hold only for
// the object that has them.
func carried(list []string, all map[string]string) map[string]string {
	var out map[string]string
	for k, v := range all {
		if !listed(list, k) || bound(k) || len(content.IsLabelKey(k)) > 0 {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[k] = v
	}
	return out
}

// listed reports whether a list of Carry has a key.
func listed(list []string, key string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		prefix, wild := strings.CutSuffix(l, "*")
		return l == key || wild && strings.HasPrefix(key, prefix)
	})
}

// bound reports whether a label or an annotation describes the object that has it, and
// so is never published.
func bound(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	switch domain {
	case v1alpha1.GroupName, "endpoints.kubernetes.io", "endpointslice.kubernetes.io":
		return true
	case "meta.helm.sh", "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io":
		return true // a replica belongs to no release: a tool that finds its mark would delete it
	}
	return key == v1alpha1.AnnotationModeCompat || key == corev1.LastAppliedConfigAnnotation
}

func readKeys(from *corev1.Service, c Carry, to *Template) {
	to.Labels, to.Annotations = c.LabelsOf(from.Labels), c.AnnotationsOf(from.Annotations)
}

func admitKeys(from *Template, c Carry, to *Template) {
	to.Labels, to.Annotations = c.LabelsOf(from.Labels), c.AnnotationsOf(from.Annotations)
}

// mostKeys bounds the bytes of labels and of annotations, as API servers bound
// annotations.
const mostKeys = 256 << 10

func checkKeys(t *Template) error {
	switch {
	case sizeOf(t.Labels) > mostKeys:
		return fmt.Errorf("it has labels of more than %d bytes", mostKeys)
	case sizeOf(t.Annotations) > mostKeys:
		return fmt.Errorf("it has annotations of more than %d bytes", mostKeys)
	}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) { // the first error is shown as an event, once
		v := t.Labels[key]
		if len(content.IsLabelValue(v)) > 0 {
			return fmt.Errorf("a label has the value %.80q", v)
		}
	}
	return nil
}

func sizeOf(all map[string]string) (n int) {
	for k, v := range all {
		n += len(k) + len(v)
	}
	return n
}

// applyKeys replaces the labels and annotations that an earlier version of the
// template brought, which AnnotationCarried lists.
func applyKeys(from *Template, to *corev1.Service) {
	l, a, _ := strings.Cut(to.Annotations[v1alpha1.AnnotationCarried], ";")
	to.Labels = replaced(to.Labels, strings.Split(l, ","), from.Labels)
	to.Annotations = replaced(to.Annotations, strings.Split(a, ","), from.Annotations)
	if len(from.Labels)+len(from.Annotations) == 0 {
		delete(to.Annotations, v1alpha1.AnnotationCarried)
		return
	}
	to.Annotations[v1alpha1.AnnotationCarried] = keysOf(from.Labels) + ";" + keysOf(from.Annotations)
}

func keysOf(all map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(all)), ",")
}

// replaced returns the entries without the keys of before, and with those of now.
func replaced(have map[string]string, before []string, now map[string]string) map[string]string {
	out := make(map[string]string, len(have)+len(now)+1)
	maps.Copy(out, have)
	for _, k := range before {
		delete(out, k)
	}
	maps.Copy(out, now)
	return out
}
