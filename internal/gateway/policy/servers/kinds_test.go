package servers

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKindsAreThoseSentToTheServer(t *testing.T) {
	lists := []*metav1.APIResourceList{
		{GroupVersion: "a/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", Verbs: metav1.Verbs{"list", "delete", "deletecollection"}},
			{Name: "plain", Verbs: metav1.Verbs{"list", "delete"}},
			{Name: "reviews", Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Verbs: metav1.Verbs{"list", "delete", "deletecollection"}}}},
	}
	known := map[string]string{"widgets.a": "v1", "hidden.a": "v2", "foreign.z": "v1", "lost.b": "v1"}
	of := func(group string) standing { return map[string]standing{"a": sent, "b": vacant}[group] }
	broken := map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("503")}
	got, err := kindsOf(lists, broken, known, of)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range got {
		names = append(names, k.String())
	}
	want := []string{"a/v1, Resource=widgets", "a/v1, Resource=plain", "a/v2, Resource=hidden", "b/v1, Resource=lost"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	for _, group := range []string{"a", "b"} {
		broken[schema.GroupVersion{Group: group, Version: "v3"}] = errors.New("503")
		if _, err := kindsOf(lists, broken, known, of); err == nil || !strings.Contains(err.Error(), "discover "+group+"/v3: 503") {
			t.Errorf("discovery of group %s has failed: %v", group, err)
		}
		delete(broken, schema.GroupVersion{Group: group, Version: "v3"})
	}
	if !got[0].collective || got[1].collective || got[2].shown {
		t.Errorf("%+v", got)
	}
}
