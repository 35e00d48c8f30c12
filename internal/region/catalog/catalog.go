// Package catalog says what crosses between a tenant's instance of a service and the instance on
// the service cluster: a definition, a spec one way, a status the other. It reads and writes no
// API, and believes nothing that a service cluster says of anything but the instance.
package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// version is that of the kinds that a region offers.
const version = "v1"

// maxStatus is how many bytes of JSON a status from a service cluster can have.
const maxStatus = 256 << 10

// Kind is a kind of a service cluster.
type Kind struct {
	Group, Version, Plural, Kind string
}

// Resource is where the service cluster serves it.
func (k Kind) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Plural}
}

// Offered is where the region serves it.
func (k Kind) Offered() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.CatalogGroupName, Version: version, Resource: k.Plural}
}

// Definition is the name of the region's definition of it.
func (k Kind) Definition() string { return k.Plural + "." + v1alpha1.CatalogGroupName }

// KindOf reads a CustomResourceDefinition of a service cluster: the version that it stores.
func KindOf(crd *unstructured.Unstructured) (Kind, error) {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(crd.Object, fields...) // "" is refused below
		return s
	}
	k := Kind{Group: text("spec", "group"), Plural: text("spec", "names", "plural"), Kind: text("spec", "names", "kind")}
	if text("spec", "scope") != "Namespaced" {
		return Kind{}, errors.New("its instances have no namespaces")
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions") // none is refused below
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true && v["served"] == true {
			k.Version, _ = v["name"].(string)
		}
	}
	if crd.GetName() != k.Plural+"."+k.Group || len(validation.IsDNS1123Subdomain(k.Group)) > 0 {
		return Kind{}, errors.New("it is no valid definition")
	}
	for _, word := range []string{k.Plural, k.Version, strings.ToLower(k.Kind)} {
		if len(validation.IsDNS1035Label(word)) > 0 {
			return Kind{}, errors.New("it is no valid definition")
		}
	}
	return k, nil
}

// Define is the region's definition of a kind for an entry, NAMESPACE/NAME. Its schema takes any
// spec: the service cluster is the one that knows what it takes.
func Define(k Kind, entry string) *unstructured.Unstructured {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        k.Definition(),
			"annotations": map[string]any{v1alpha1.AnnotationEntry: entry},
		},
		"spec": map[string]any{
			"group": v1alpha1.CatalogGroupName,
			"scope": "Namespaced",
			"names": map[string]any{"plural": k.Plural, "singular": strings.ToLower(k.Kind), "kind": k.Kind, "listKind": k.Kind + "List"},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": open, "status": open}}},
				"additionalPrinterColumns": []any{map[string]any{
					"name": "Synced", "type": "string", "jsonPath": `.status.conditions[?(@.type=="` + v1alpha1.ConditionSynced + `")].status`,
				}},
			}},
		},
	}}
}

// Allows says whether an entry is for an account.
func Allows(e *v1alpha1.CatalogEntry, account string) bool {
	for _, a := range e.Spec.Accounts {
		if a == "*" || a == account {
			return true
		}
	}
	return false
}

// visible is the part of an object, spec or status, that an entry lets through; nil if it lets
// nothing through.
func visible(part string, fields []string, of map[string]any) any {
	value, there := of[part]
	if !there || len(fields) == 0 {
		return value
	}
	var kept any
	for _, field := range fields {
		path := strings.Split(field, ".")
		if path[0] != part {
			continue
		}
		if len(path) == 1 {
			return value
		}
		found, ok, err := unstructured.NestedFieldNoCopy(of, path...)
		if err != nil || !ok {
			continue
		}
		into, _ := kept.(map[string]any)
		if into == nil {
			into = map[string]any{}
		}
		if unstructured.SetNestedField(into, runtime.DeepCopyJSONValue(found), path[1:]...) == nil {
			kept = into
		}
	}
	return kept
}

// Instance is what the service cluster is to have for a tenant's instance, in a namespace there.
func Instance(k Kind, e *v1alpha1.CatalogEntry, tenants *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(k.Group + "/" + k.Version)
	o.SetKind(k.Kind)
	o.SetNamespace(namespace)
	o.SetName(tenants.GetName())
	o.SetLabels(map[string]string{v1alpha1.LabelAccount: tenants.GetNamespace()})
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationInstance: string(tenants.GetUID())})
	if spec := visible("spec", e.Spec.Fields, tenants.Object); spec != nil {
		o.Object["spec"] = runtime.DeepCopyJSONValue(spec)
	}
	return o
}

// MadeFor says whether an instance on a service cluster was made for a tenant's.
func MadeFor(theirs, tenants *unstructured.Unstructured) bool {
	return theirs.GetAnnotations()[v1alpha1.AnnotationInstance] == string(tenants.GetUID())
}

// Status is what a tenant's instance has as its status: what the service cluster says, as far as
// the entry lets it through, with a condition of the agent's own. theirs is nil if that is not
// known now: the tenant's instance then keeps what was known last.
func Status(e *v1alpha1.CatalogEntry, tenants, theirs *unstructured.Unstructured, synced metav1.Condition) map[string]any {
	status, _ := tenants.Object["status"].(map[string]any)
	if theirs != nil {
		status, _ = visible("status", e.Spec.Fields, theirs.Object).(map[string]any)
		if text, err := json.Marshal(status); err != nil || len(text) > maxStatus {
			status = nil
			synced.Status, synced.Reason = metav1.ConditionFalse, "StatusTooLarge"
			synced.Message = fmt.Sprintf("the service cluster says more of it than %d bytes", maxStatus)
		}
	}
	status = runtime.DeepCopyJSON(status)
	if status == nil {
		status = map[string]any{}
	}
	before, _ := tenants.Object["status"].(map[string]any)
	status["conditions"] = withCondition(status["conditions"], before["conditions"], synced)
	return status
}

// withCondition is a list of conditions with the agent's own. The time of its last change is that
// of before, if nothing has changed.
func withCondition(all, before any, own metav1.Condition) []any {
	kept := []any{}
	conditions, _ := all.([]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] != own.Type {
			kept = append(kept, c)
		}
	}
	since := own.LastTransitionTime.UTC().Format("2006-01-02T15:04:05Z")
	old, _ := before.([]any)
	for _, c := range old {
		if c, ok := c.(map[string]any); ok && c["type"] == own.Type && c["status"] == string(own.Status) {
			if then, ok := c["lastTransitionTime"].(string); ok {
				since = then
			}
		}
	}
	return append(kept, map[string]any{
		"type": own.Type, "status": string(own.Status), "reason": own.Reason, "message": own.Message, "lastTransitionTime": since,
	})
}
