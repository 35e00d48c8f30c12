package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

func TestTrustFlags(t *testing.T) {
	f := trustFlags{
		namespaces: []string{"west=shop,pay", "west=web"},
		ranges:     []string{"*=10.0.0.0/8,fd00::/8"},
		allow:      []string{"west=claim,NodePort", "*=selector"},
		carry:      []string{"label:team", "annotation:example.com/*"},
	}
	got, err := f.trusts()
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
	carry, err := f.carried()
	if diff := cmp.Diff(model.Carry{Labels: []string{"team"}, Annotations: []string{"example.com/*"}}, carry); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// What cannot be understood is refused: nothing is allowed by a mistake.
func TestBadTrustFlags(t *testing.T) {
	for want, f := range map[string]trustFlags{
		"want PEER=":           {allow: []string{"claim"}},
		"where PEER":           {allow: []string{"=claim"}},
		"is none of claim":     {allow: []string{"west=everything"}},
		"is no range":          {ranges: []string{"west=10.0.0.1"}},
		"is no namespace":      {namespaces: []string{"west=shop,*"}},
		"want label:KEY":       {carry: []string{"team"}},
		`"a b" is no key`:      {carry: []string{"label:a b"}},
		`--peer-namespaces is`: {namespaces: []string{"west="}},
	} {
		_, err := f.trusts()
		if err == nil {
			_, err = f.carried()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v says %v; want %q", f, err, want)
		}
	}
}
