package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// TestARequestGoesWhereItWasGuardedFor: a request that policies let pass
// for one server is not sent to another.
func TestARequestGoesWhereItWasGuardedFor(t *testing.T) {
	r := newRegistry(slog.New(slog.DiscardHandler), discovery.NewIndex(), nil)
	r.ready.Store(true)
	member := func(name string) *entry {
		e := &entry{server: &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: name}}, member: newMember(&v1alpha1.RemoteAPIServer{}, func() {})}
		e.member.conn.Store(&connection{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(name)) })})
		return e
	}
	held := func(by *entry) *table {
		return &table{
			servers: map[string]*entry{by.server.Name: by},
			owned:   ownership.Assignment{Holder: map[string]string{"one.example.com": by.server.Name}},
		}
	}
	first, second := member("first"), member("second")
	for what, c := range map[string]struct {
		before *table
		want   string
		code   int
	}{
		"nobody held it":     {&table{}, "", http.StatusNotFound},
		"another held it":    {held(first), "first", http.StatusOK},
		"it stays with whom": {held(second), "second", http.StatusOK},
	} {
		t.Run(what, func(t *testing.T) {
			r.table.Store(c.before)
			h := begin((&router{registry: r}).route(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				r.table.Store(held(second)) // while a policy judges
				answer(w, req)
			})))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apis/one.example.com/v1/namespaces/x/things", nil))
			if body := w.Body.String(); w.Code != c.code || c.want != "" && body != c.want {
				t.Errorf("%d %s, want %d from %q", w.Code, body, c.code, c.want)
			}
		})
	}
}

// TestWhoseAPathIs: a server's policies hold for all paths that are sent to it, and
// not for those that the gateway itself answers.
func TestWhoseAPathIs(t *testing.T) {
	r := &registry{}
	core := &entry{server: &v1alpha1.RemoteAPIServer{}}
	one := &entry{server: &v1alpha1.RemoteAPIServer{}}
	r.table.Store(&table{
		servers: map[string]*entry{"core": core, "one": one},
		owned:   ownership.Assignment{Holder: map[string]string{"": "core", "one.example.com": "one", v1alpha1.GroupName: "core"}},
	})
	router := &router{registry: r, own: http.NotFoundHandler(), discovery: http.NotFoundHandler(), reservations: http.NotFoundHandler()}
	for path, want := range map[string]struct {
		server   *entry
		ofObject bool
	}{
		"/apis/one.example.com/v1/things":                       {one, true},
		"/apis/one.example.com/v1/namespaces/x/things/y/z":      {one, true},
		"/apis/one.example.com/v1/namespaces/x/things/":         {one, true},
		"/api/v1/namespaces":                                    {core, true},
		"/apis/one.example.com/v1":                              {one, false},
		"/api/v1":                                               {core, false},
		"/openapi/v3/apis/one.example.com/v1":                   {one, false},
		"/openid/v1/jwks":                                       {core, false},
		"/apis/two.example.com/v1/things":                       {nil, true},
		"/apis/one.example.com":                                 {},
		"/apis":                                                 {},
		"/openapi/v2":                                           {},
		"/servers/one":                                          {},
		"/APIS/one.example.com/v1/things":                       {},
		reservationsPrefix + "x/reservations":                   {},
		reservationsPrefix + "x/reservations/y/landed":          {},
		"/apis/" + v1alpha1.GroupName + "/v1alpha1/servers/one": {core, true},
	} {
		if got := router.find(path); got.server != want.server || got.ofObject != want.ofObject || got.answer == nil {
			t.Errorf("%s goes to %+v, want %+v", path, got, want)
		}
	}
}
