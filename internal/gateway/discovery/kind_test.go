package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

func TestKindIsWhatTheServerShows(t *testing.T) {
	d := &Document{Groups: []apidiscoveryv2.APIGroupDiscovery{{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
			{Resource: "widgets", Scope: apidiscoveryv2.ScopeNamespace, ResponseKind: &metav1.GroupVersionKind{Kind: "Widget"},
				Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status"}}},
			{Resource: "others", Scope: apidiscoveryv2.ScopeCluster, ResponseKind: &metav1.GroupVersionKind{Group: "b", Version: "v2", Kind: "Other"}},
		}}},
	}}}
	of := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	for gvr, want := range map[schema.GroupVersionResource]*canonical.Kind{
		of("a", "v1", "widgets"): {GroupVersionKind: schema.GroupVersionKind{Group: "a", Version: "v1", Kind: "Widget"}, Namespaced: true, Subresources: []string{"status"}},
		of("a", "v1", "others"):  {GroupVersionKind: schema.GroupVersionKind{Group: "b", Version: "v2", Kind: "Other"}},
		of("a", "v1", "Widgets"): nil,
		of("a", "v2", "widgets"): nil,
		of("", "v1", "widgets"):  nil,
	} {
		got, ok := d.Kind(gvr)
		if ok != (want != nil) {
			t.Errorf("%v: shown %t", gvr, ok)
		} else if ok {
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("%v:\n%s", gvr, diff)
			}
		}
	}
}
