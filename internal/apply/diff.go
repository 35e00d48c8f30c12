package apply

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// diff returns what changes of an object, as a unified diff of YAML; nil is an object that is
// not there. Fields that the server sets with each write are left out, and the values of a
// Secret are not shown.
func diff(name string, before, after *unstructured.Unstructured) (string, error) {
	before, after = comparable(before), comparable(after)
	hide(before, after)
	old, err := text(before)
	if err != nil {
		return "", err
	}
	now, err := text(after)
	if err != nil {
		return "", err
	}
	return udiff.Unified(name+" (now)", name+" (after)", old, now), nil
}

// comparable returns o without the fields that differ after each write.
func comparable(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	o = o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// hide replaces the values of Secrets. Those that differ still do.
func hide(before, after *unstructured.Unstructured) {
	for _, field := range []string{"data", "stringData"} {
		old, now := secretValues(before, field), secretValues(after, field)
		for key := range old {
			if other, ok := now[key]; ok && other == old[key] {
				old[key], now[key] = "(hidden)", "(hidden)"
				continue
			}
			old[key] = "(hidden, now)"
		}
		for key := range now {
			if now[key] != "(hidden)" {
				now[key] = "(hidden, after)"
			}
		}
	}
}

// secretValues returns a field of o that holds values of a Secret; nil if o has none.
func secretValues(o *unstructured.Unstructured, field string) map[string]any {
	if o == nil || o.GetAPIVersion() != "v1" || o.GetKind() != "Secret" {
		return nil
	}
	values, _ := o.Object[field].(map[string]any)
	return values
}

func text(o *unstructured.Unstructured) (string, error) {
	if o == nil {
		return "", nil
	}
	out, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", fmt.Errorf("write %s %q as YAML: %w", strings.ToLower(o.GetKind()), o.GetName(), err)
	}
	return string(out), nil
}
