package catalog

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

func definition(change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"group": "example.com", "scope": "Namespaced",
		"names":    map[string]any{"plural": "widgets", "kind": "Widget"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": false}, map[string]any{"name": "v2", "served": true, "storage": true}},
	}
	if change != nil {
		change(spec)
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "widgets.example.com"}, "spec": spec}}
}

// TestKindOf: a definition is taken whole, or refused; what a hostile one says is never a path.
func TestKindOf(t *testing.T) {
	k, err := KindOf(definition(nil))
	if diff := cmp.Diff(Kind{"example.com", "v2", "widgets", "Widget"}, k); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	for name, change := range map[string]func(map[string]any){
		"no namespaces":        func(s map[string]any) { s["scope"] = "Cluster" },
		"no versions":          func(s map[string]any) { delete(s, "versions") },
		"versions of a kind":   func(s map[string]any) { s["versions"] = []any{int64(1), "v1", nil} },
		"another group":        func(s map[string]any) { s["group"] = "example.org" },
		"a kind that is a way": func(s map[string]any) { s["names"] = map[string]any{"plural": "widgets", "kind": "../../x"} },
		"nothing at all":       func(s map[string]any) { clear(s) },
	} {
		if k, err := KindOf(definition(change)); err == nil {
			t.Errorf("%s was taken: %v", name, k)
		}
	}
}

func entry(fields ...string) *v1alpha1.CatalogEntry {
	return &v1alpha1.CatalogEntry{Spec: v1alpha1.CatalogEntrySpec{Accounts: []string{"team-a"}, Fields: fields}}
}

func tenants(object map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: object}
	o.SetName("mine")
	o.SetNamespace("team-a")
	o.SetUID(types.UID("1"))
	return o
}

// TestFields: a tenant sets and sees what the entry names, and nothing beside it.
func TestFields(t *testing.T) {
	spec := func() map[string]any {
		return map[string]any{"spec": map[string]any{"size": int64(3), "admin": map[string]any{"password": "x", "name": "root"}}, "other": "y"}
	}
	for _, test := range []struct {
		fields []string
		want   any
	}{
		{nil, map[string]any{"size": int64(3), "admin": map[string]any{"password": "x", "name": "root"}}},
		{[]string{"spec.size"}, map[string]any{"size": int64(3)}},
		{[]string{"spec.size", "spec.admin.name"}, map[string]any{"size": int64(3), "admin": map[string]any{"name": "root"}}},
		{[]string{"spec"}, map[string]any{"size": int64(3), "admin": map[string]any{"password": "x", "name": "root"}}},
		{[]string{"status"}, nil},
		{[]string{"spec.size.x", "spec.none"}, nil},
	} {
		o := Instance(Kind{"example.com", "v1", "widgets", "Widget"}, entry(test.fields...), tenants(spec()), "there")
		if diff := cmp.Diff(test.want, o.Object["spec"]); diff != "" {
			t.Errorf("%v: %s", test.fields, diff)
		}
		if o.Object["other"] != nil || o.GetNamespace() != "there" || !MadeFor(o, tenants(spec())) {
			t.Errorf("the instance is %v", o)
		}
	}
}

// TestStatus: the service cluster's status comes back with a condition of the agent's own, which
// keeps its time; a status that is too large does not.
func TestStatus(t *testing.T) {
	own := metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue, Reason: "Synced", LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}
	theirs := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"phase": "Running", "secret": "x",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, "no condition", map[string]any{"type": v1alpha1.ConditionSynced, "status": "False"}},
	}}}
	first := Status(entry("status.phase", "status.conditions"), tenants(map[string]any{}), theirs, own)
	want := map[string]any{"phase": "Running", "conditions": []any{
		map[string]any{"type": "Ready", "status": "True"},
		map[string]any{"type": v1alpha1.ConditionSynced, "status": "True", "reason": "Synced", "message": "", "lastTransitionTime": "1970-01-01T00:16:40Z"},
	}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	own.LastTransitionTime = metav1.NewTime(time.Unix(2000, 0))
	if diff := cmp.Diff(want, Status(entry("status.phase", "status.conditions"), tenants(map[string]any{"status": first}), theirs, own)); diff != "" {
		t.Errorf("the same a second time: %s", diff)
	}
	if diff := cmp.Diff(first["phase"], Status(entry(), tenants(map[string]any{"status": first}), nil, own)["phase"]); diff != "" {
		t.Errorf("what was known last is lost: %s", diff)
	}
	theirs.Object["status"] = map[string]any{"phase": strings.Repeat("x", maxStatus)}
	large := Status(entry(), tenants(map[string]any{}), theirs, own)
	if c := large["conditions"].([]any)[0].(map[string]any); large["phase"] != nil || c["reason"] != "StatusTooLarge" || c["status"] != "False" {
		t.Errorf("a status that is too large is %v", c)
	}
	theirs.Object["status"] = "no object"
	if got := Status(entry(), tenants(map[string]any{}), theirs, own); len(got) != 1 {
		t.Errorf("a status that is none is %v", got)
	}
}
