package discovery

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// anything is the groups of a spec that trusts its server.
var anything = []string{ownership.AnyGroup}

func fetched(t testing.TB, apis, api string) *Document {
	t.Helper()
	answers := map[string]string{"/apis": apis}
	if api != "" {
		answers["/api"], answers["/version"] = api, `{"gitVersion":"v1.37.1"}`
	}
	doc, err := Fetch(t.Context(), served(answers), nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func ask(t testing.TB, x *Index, path, accept, etag string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	x.Handler().ServeHTTP(w, r)
	return w.Result()
}

func read[T any](t testing.TB, resp *http.Response) T {
	t.Helper()
	var v T
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v: %.300s", resp.StatusCode, err, body)
	}
	return v
}

const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func names(list apidiscoveryv2.APIGroupDiscoveryList) []string {
	var out []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			out = append(out, g.Name+"/"+v.Version)
		}
	}
	return out
}

func TestIndexMergesDiscovery(t *testing.T) {
	x := NewIndex()
	core := Member{Name: "core", Named: []string{"", "apps", ownership.AnyGroup, "*.k8s.io"}, Document: fetched(t, aggregatedDocument("zeta.k8s.io/v1/zetas", "apps/v1/deployments"), aggregatedDocument("/v1/pods")),
		Addresses: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: "core.example.com:6443"}}}
	other := Member{Name: "other", Named: anything, Document: fetched(t, aggregatedDocument("apps/v1/deployments", "a.example.com/v1/widgets", "a.example.com/v1beta1/widgets"), ""),
		Addresses: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: "other.example.com/prod"}}}
	x.Set([]Member{other, core})

	// Kubernetes' groups first, then the rest; versions in their server's order.
	want := []string{"apps/v1", "a.example.com/v1", "a.example.com/v1beta1", "zeta.k8s.io/v1"}
	resp := ask(t, x, "/apis", v2, "")
	if diff := cmp.Diff(want, names(read[apidiscoveryv2.APIGroupDiscoveryList](t, resp))); diff != "" {
		t.Errorf("/apis (-want +got):\n%s", diff)
	}
	if got := names(read[apidiscoveryv2.APIGroupDiscoveryList](t, ask(t, x, "/api", v2, ""))); !slices.Equal(got, []string{"/v1"}) {
		t.Errorf("/api: %q", got)
	}
	etag := resp.Header.Get("Etag")
	if again := ask(t, x, "/apis", v2, etag); again.StatusCode != http.StatusNotModified {
		t.Errorf("asked with its own ETag %s: %d", etag, again.StatusCode)
	}
	// Setting the same again changes nothing.
	x.Set([]Member{core, other})
	if again := ask(t, x, "/apis", v2, etag); again.StatusCode != http.StatusNotModified {
		t.Errorf("asked with its own ETag after nothing has changed: %d", again.StatusCode)
	}

	var old []string
	list := read[metav1.APIGroupList](t, ask(t, x, "/apis", "application/json", ""))
	for _, g := range list.Groups {
		for _, v := range g.Versions {
			old = append(old, v.GroupVersion)
		}
	}
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("/apis, the old form (-want +got):\n%s", diff)
	}
	g := read[metav1.APIGroup](t, ask(t, x, "/apis/a.example.com", "application/json", ""))
	if g.PreferredVersion.Version != "v1" || len(g.ServerAddressByClientCIDRs) != 1 || g.ServerAddressByClientCIDRs[0].ServerAddress != "other.example.com/prod" {
		t.Errorf("/apis/a.example.com: %+v", g)
	}
	v := read[metav1.APIVersions](t, ask(t, x, "/api", "application/json", ""))
	if !slices.Equal(v.Versions, []string{"v1"}) || v.ServerAddressByClientCIDRs[0].ServerAddress != "core.example.com:6443" {
		t.Errorf("/api: %+v", v)
	}
	for path, want := range map[string]string{"/apis/a.example.com/v1": "widgets", "/api/v1": "pods", "/apis/a.example.com/v1/": "widgets"} {
		if l := read[metav1.APIResourceList](t, ask(t, x, path, "application/json", "")); len(l.APIResources) != 1 || l.APIResources[0].Name != want {
			t.Errorf("%s: %+v", path, l)
		}
	}
	for _, path := range []string{"/apis/b.example.com", "/apis/a.example.com/v2", "/api/v2", "/apis/a.example.com/v1/widgets", "/other"} {
		if resp := ask(t, x, path, "application/json", ""); resp.StatusCode != http.StatusNotFound || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d, %s; want a 404 as a Status", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
	if version := read[map[string]string](t, ask(t, x, "/version", "application/json", "")); version["gitVersion"] != "v1.37.1" {
		t.Errorf("/version: %v", version)
	}
}

func TestIndexFollowsChanges(t *testing.T) {
	x := NewIndex()
	a := Member{Name: "a", Named: anything, Document: fetched(t, aggregatedDocument("one.example.com/v1/things", "two.example.com/v1/things", "two.example.com/v2/things"), "")}
	b := Member{Name: "b", Named: anything, Document: fetched(t, aggregatedDocument("one.example.com/v9/things"), "")}
	see := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		got := names(read[apidiscoveryv2.APIGroupDiscoveryList](t, ask(t, x, "/apis", v2, "")))
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("/apis (-want +got):\n%s", diff)
		}
	}
	x.Set([]Member{a, b})
	see("one.example.com/v1", "two.example.com/v1", "two.example.com/v2")
	a.Document = fetched(t, aggregatedDocument("two.example.com/v2/things"), "")
	x.Set([]Member{a, b})
	see("one.example.com/v9", "two.example.com/v2")
	if diff := cmp.Diff(map[string][]string{"a": {"two.example.com/v2"}, "b": {"one.example.com/v9"}}, x.GroupVersions()); diff != "" {
		t.Errorf("group versions (-want +got):\n%s", diff)
	}
	x.Set([]Member{b})
	see("one.example.com/v9")
	x.Set(nil)
	see()
}

// TestIndexRemembers: a server that is not reached yet keeps what it held.
func TestIndexRemembers(t *testing.T) {
	x := NewIndex()
	x.Remember(map[string]string{"one.example.com": "slow"})
	fast := Member{Name: "fast", Named: anything, Priority: 1, Document: fetched(t, aggregatedDocument("one.example.com/v1/things"), "")}
	slow := Member{Name: "slow", Named: anything}
	x.Set([]Member{fast, slow})
	if holder, _ := x.Holder("one.example.com"); holder != "slow" {
		t.Errorf("the group went to %q", holder)
	}
	slow.Document = fetched(t, aggregatedDocument("two.example.com/v1/things"), "")
	x.Set([]Member{fast, slow})
	if holder, _ := x.Holder("one.example.com"); holder != "fast" {
		t.Errorf("its holder serves the group no more, and it is held by %q", holder)
	}
}

// TestIndexWithholds: a server that is withheld keeps what it held, shows
// nothing of it, and gets nothing more.
func TestIndexWithholds(t *testing.T) {
	x := NewIndex()
	x.Remember(map[string]string{"one.example.com": "s", "gone.example.com": "s"})
	both := fetched(t, aggregatedDocument("one.example.com/v1/things", "two.example.com/v1/things"), "")
	other := Member{Name: "other", Named: []string{"one.example.com", "two.example.com"}, Document: both}
	s := Member{Name: "s", Priority: 1, Named: []string{"one.example.com", "two.example.com"}, Withheld: true}
	for _, s.Document = range []*Document{nil, both} {
		owned := x.Set([]Member{other, s})
		if diff := cmp.Diff(map[string]string{"one.example.com": "s", "two.example.com": "other"}, owned.Holder); diff != "" {
			t.Errorf("holders (-want +got):\n%s", diff)
		}
		got := names(read[apidiscoveryv2.APIGroupDiscoveryList](t, ask(t, x, "/apis", v2, "")))
		if !slices.Equal(got, []string{"two.example.com/v1"}) {
			t.Errorf("shown are %q", got)
		}
	}
	s.Document = fetched(t, aggregatedDocument("two.example.com/v1/things"), "")
	if owned := x.Set([]Member{other, s}); owned.Holder["one.example.com"] != "other" {
		t.Errorf("it serves the group no more, and the holders are %v", owned.Holder)
	}
}

// TestIndexTouchesWhatChanged: with a hundred servers of five groups each, one
// server's change makes one group anew.
func TestIndexTouchesWhatChanged(t *testing.T) {
	x := NewIndex()
	var members []Member
	for s := range 100 {
		var groups []string
		for g := range 5 {
			groups = append(groups, fmt.Sprintf("g%d.s%d.example.com/v1/things", g, s))
		}
		members = append(members, Member{Name: fmt.Sprintf("s%03d", s), Named: anything, Document: fetched(t, aggregatedDocument(groups...), "")})
	}
	x.Set(members)
	before := x.view.Load().groups
	members[7].Document = fetched(t, aggregatedDocument("g0.s7.example.com/v1/others"), "")
	x.Set(members)
	after := x.view.Load().groups
	if len(before) != 500 || len(after) != 496 {
		t.Fatalf("%d groups before, %d after", len(before), len(after))
	}
	made := 0
	for name, g := range after {
		if before[name] != g {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d groups were made anew", made)
	}
}

// TestRoutedFirst: what is in discovery can be asked for.
func TestRoutedFirst(t *testing.T) {
	x := NewIndex()
	members := []Member{{Name: "s", Named: anything, Document: fetched(t, aggregatedDocument("a.example.com/v1/things"), "")}}
	shown := func() int { return ask(t, x, "/apis/a.example.com", "application/json", "").StatusCode }
	routed := false
	x.SetRouted(members, func(o ownership.Assignment) {
		routed = true
		if o.Holder["a.example.com"] != "s" {
			t.Errorf("routed is %v", o.Holder)
		}
		if code := shown(); code != http.StatusNotFound {
			t.Errorf("the group is shown before it is routed: %d", code)
		}
	})
	if code := shown(); !routed || code != http.StatusOK {
		t.Errorf("routed: %t, and then %d", routed, code)
	}
}
