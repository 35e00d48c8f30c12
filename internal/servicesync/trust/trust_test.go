package trust

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

func TestWords(t *testing.T) {
	f := Words{
		Namespaces: []string{"west=shop,pay", "west=web"},
		Ranges:     []string{"*=10.0.0.0/8,fd00::/8"},
		Allow:      []string{"west=claim,NodePort", "*=selector"},
		Carry:      []string{"label:team", "annotation:example.com/*"},
	}
	got, err := f.Trusts()
	if err != nil {
		t.Fatal(err)
	}
	want := model.Trusts{
		"west": {Namespaces: []string{"shop", "pay", "web"}, Claim: true, Types: []corev1.ServiceType{corev1.ServiceTypeNodePort}},
		"*":    {Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, Selector: true},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	carry, err := f.Carried()
	if diff := cmp.Diff(model.Carry{Labels: []string{"team"}, Annotations: []string{"example.com/*"}}, carry); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// What cannot be understood is refused: nothing is allowed by a mistake.
func TestBadWords(t *testing.T) {
	for want, f := range map[string]Words{
		"want PEER=":           {Allow: []string{"claim"}},
		"where PEER":           {Allow: []string{"=claim"}},
		"is none of claim":     {Allow: []string{"west=everything"}},
		"is no range":          {Ranges: []string{"west=10.0.0.1"}},
		"is no namespace":      {Namespaces: []string{"west=shop,*"}},
		"want label:KEY":       {Carry: []string{"team"}},
		`"a b" is no key`:      {Carry: []string{"label:a b"}},
		`--peer-namespaces is`: {Namespaces: []string{"west="}},
	} {
		_, err := f.Trusts()
		if err == nil {
			_, err = f.Carried()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v says %v; want %q", f, err, want)
		}
	}
}
