package transaction

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// TestSubjectInOtherLetters: the API server tells fields apart by their letters, and so does
// what finds out which object an operation is about.
func TestSubjectInOtherLetters(t *testing.T) {
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"shop","NAME":"two","Namespace":"other"},"Kind":"Secret","APIVERSION":"v2"}`
	got, err := subjectOf(v1alpha1.Operation{Verb: v1alpha1.Create, Object: &runtime.RawExtension{Raw: []byte(object)}})
	want := subject{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "shop", "one"}
	if err != nil || got != want {
		t.Errorf("the operation is about %v, %v; want %v", got, err, want)
	}
}

// TestDefinitionInOtherLetters: the same holds for the kind that a definition defines.
func TestDefinitionInOtherLetters(t *testing.T) {
	crd := `{"spec":{"group":"shop.example","GROUP":"other","names":{"kind":"Box","Kind":"Other"}}}`
	steps := []step{{
		Operation: v1alpha1.Operation{Verb: v1alpha1.Create, Object: &runtime.RawExtension{Raw: []byte(crd)}},
		subject:   subject{kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, name: "boxes"},
	}}
	if got := definitionsIn(steps); got[schema.GroupKind{Group: "shop.example", Kind: "Box"}] != "boxes" {
		t.Errorf("the definitions are %v, want that of Box", got)
	}
}
