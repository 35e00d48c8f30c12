package synccmd

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesIn(t *testing.T) {
	for list, want := range map[string][]string{
		"":                 nil,
		"a":                {"a"},
		"a,b":              {"a", "b"},
		` ["a", "b"] `:     {"a", "b"},
		"a b\n,c":          {"a", "b", "c"},
		"['kube-system' ]": {"kube-system"},
	} {
		if got := namesIn(list); !slices.Equal(got, want) {
			t.Errorf("%q has %q; want %q", list, got, want)
		}
	}
}

func TestServiceNames(t *testing.T) {
	if got, err := serviceNames([]string{"shop/web"}); err != nil || got[0].String() != "shop/web" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"web", "/web", "shop/", "a/b/c", ""} {
		if _, err := serviceNames([]string{bad}); err == nil || !strings.Contains(err.Error(), "want NAMESPACE/NAME") {
			t.Errorf("%q is said to be %v", bad, err)
		}
	}
}
