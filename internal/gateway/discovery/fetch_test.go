package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// handlerTripper answers in process.
type handlerTripper struct {
	http.Handler
	asked []string
}

func (h *handlerTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked = append(h.asked, r.URL.Path)
	w := httptest.NewRecorder()
	r.RequestURI = r.URL.RequestURI()
	h.ServeHTTP(w, r)
	return w.Result(), r.Context().Err()
}

// served is a server whose answers are texts.
func served(answers map[string]string) *handlerTripper {
	return &handlerTripper{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, `{"kind":"Status","message":"no such path"}`, http.StatusNotFound)
			return
		}
		etag := fmt.Sprintf("%q", fmt.Sprint(len(text)))
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Etag", etag)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	})}
}

// aggregated is a discovery document of groups, each "group/version/resource".
func aggregatedDocument(resources ...string) string {
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, gvr := range resources {
		p := strings.Split(gvr, "/")
		g := len(list.Items) - 1
		if g < 0 || list.Items[g].Name != p[0] {
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: p[0]}})
			g++
		}
		v := len(list.Items[g].Versions) - 1
		if v < 0 || list.Items[g].Versions[v].Version != p[1] {
			list.Items[g].Versions = append(list.Items[g].Versions, apidiscoveryv2.APIVersionDiscovery{Version: p[1], Freshness: "Current"})
			v++
		}
		list.Items[g].Versions[v].Resources = append(list.Items[g].Versions[v].Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: p[2], SingularResource: strings.TrimSuffix(p[2], "s"), Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get", "list", "create"},
			ResponseKind: &metav1.GroupVersionKind{Group: p[0], Version: p[1], Kind: strings.ToUpper(p[2][:1]) + strings.TrimSuffix(p[2][1:], "s")},
		})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestFetchAsksForWhatHasChangedOnly(t *testing.T) {
	answers := map[string]string{
		"/apis":    aggregatedDocument("b.example.com/v1/widgets", "a.example.com/v1/gadgets"),
		"/version": `{"gitVersion":"v1.2.3"}`,
	}
	rt := served(answers)
	first, err := Fetch(t.Context(), rt, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b.example.com", "a.example.com"}, first.Offered()); diff != "" {
		t.Errorf("groups, in the server's order (-want +got):\n%s", diff)
	}
	second, err := Fetch(t.Context(), rt, first)
	if err != nil || second != first {
		t.Fatalf("nothing has changed, and Fetch made another document: %v", err)
	}
	answers["/apis"] = aggregatedDocument("b.example.com/v1/widgets", "b.example.com/v2/widgets")
	third, err := Fetch(t.Context(), rt, second)
	if err != nil || third == second || len(third.Groups[0].Versions) != 2 {
		t.Fatalf("a new version is not seen: %v, %v", third, err)
	}
}

func TestFetchOldDiscovery(t *testing.T) {
	doc, err := Fetch(t.Context(), served(map[string]string{
		"/apis":                  `{"kind":"APIGroupList","groups":[{"name":"a.example.com","versions":[{"groupVersion":"a.example.com/v1","version":"v1"}]}]}`,
		"/api":                   `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis/a.example.com/v1": `{"kind":"APIResourceList","resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["get"]},{"name":"widgets/status","kind":"Widget","namespaced":true,"verbs":["get"]}]}`,
		"/api/v1":                `{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["get"]}]}`,
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "a.example.com"}, doc.Offered()); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if r := doc.Groups[1].Versions[0].Resources; len(r) != 1 || len(r[0].Subresources) != 1 {
		t.Errorf("widgets and their status: got %+v", r)
	}
}

// TestFetchRefuses: whatever a server answers, the error is a sentence that a
// person can act on, and nothing of the answer is taken.
// TestFetchPlain404: a server without a core group says no more than "404 page
// not found", of which the way there makes an error.
func TestFetchPlain404(t *testing.T) {
	document := served(map[string]string{"/apis": aggregatedDocument("a.example.com/v1/as")})
	way := tripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/api" {
			return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "no Status", 0, false)
		}
		return document.RoundTrip(r)
	})
	got, err := Fetch(t.Context(), way, nil)
	if err != nil || len(got.Groups) != 1 {
		t.Errorf("%+v, %v; want the one group", got, err)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFetchRefuses(t *testing.T) {
	groups := make([]string, 2001)
	for i := range groups {
		groups[i] = fmt.Sprintf("g%d.example.com/v1/things", i)
	}
	endless := &handlerTripper{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[`)
		for range 50 << 10 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})}
	for name, c := range map[string]struct {
		rt   http.RoundTripper
		want string
	}{
		"50 MiB":           {endless, "larger than 8 MiB"},
		"HTML":             {served(map[string]string{"/apis": "<html>"}), "is the URL that of a Kubernetes API server?"},
		"another kind":     {served(map[string]string{"/apis": `{"kind":"PodList"}`}), `kind "PodList"`},
		"nothing":          {served(nil), "404"},
		"too many":         {served(map[string]string{"/apis": aggregatedDocument(groups...)}), "more than 2000 group versions"},
		"a path":           {served(map[string]string{"/apis": aggregatedDocument("..%2fapi/v1/things")}), "no DNS name"},
		"a strange one":    {served(map[string]string{"/apis": aggregatedDocument("a.example.com/../things")}), "no DNS label"},
		"a group twice":    {served(map[string]string{"/apis": aggregatedDocument("a.example.com/v1/things", "b.example.com/v1/things", "a.example.com/v1/things")}), "twice"},
		"core among /apis": {served(map[string]string{"/apis": aggregatedDocument("/v1/pods"), "/api": aggregatedDocument("/v1/pods")}), "twice"},
		"a redirect": {&handlerTripper{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
		})}, "redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := Fetch(t.Context(), c.rt, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want an error with %q", doc, err, c.want)
			}
		})
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(ctx, served(nil), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzFetch(f *testing.F) {
	f.Add(aggregatedDocument("a.example.com/v1/widgets"), aggregatedDocument("/v1/pods"), "{}")
	f.Add(`{"kind":"APIGroupList","groups":[{"name":"a","versions":[{"version":"v1"}]}]}`, `{"kind":"APIVersions","versions":["v1",""]}`, `{"kind":"APIResourceList","resources":[{"name":"a/b/c"},{"name":"/"}]}`)
	f.Add(`{"kind":"APIGroupDiscoveryList","items":[null,{"versions":[null]}]}`, "null", "[]")
	f.Fuzz(func(t *testing.T, apis, api, resources string) {
		rt := &handlerTripper{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/apis":
				io.WriteString(w, apis)
			case "/api":
				io.WriteString(w, api)
			default:
				io.WriteString(w, resources)
			}
		})}
		doc, err := Fetch(t.Context(), rt, nil)
		if err != nil {
			return
		}
		x := NewIndex()
		x.Set([]Member{{Name: "s", Named: []string{ownership.AnyGroup}, Document: doc}})
		for _, g := range doc.Groups {
			for _, path := range []string{"/apis", "/api", "/apis/" + g.Name} {
				w := httptest.NewRecorder()
				x.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			}
		}
	})
}
