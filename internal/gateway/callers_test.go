package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// mayBeBob lets alice be bob, and nobody else anybody.
type mayBeBob struct{}

func (mayBeBob) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "impersonate" && a.GetName() == "bob" && a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

func TestPoliciesSeeWhomTheServerSees(t *testing.T) {
	server := func(name string, mode v1alpha1.IdentityMode, guard bool) *entry {
		s := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.Identity.Mode, s.Spec.Guard.Authorization = mode, guard
		return &entry{server: s}
	}
	r := &registry{}
	r.table.Store(&table{
		servers: map[string]*entry{
			"told":    server("told", v1alpha1.Impersonate, true),
			"judges":  server("judges", v1alpha1.PassThrough, false),
			"guarded": server("guarded", v1alpha1.PassThrough, true),
		},
		owned: ownership.Assignment{Holder: map[string]string{"told": "told", "judges": "judges", "guarded": "guarded"}},
	})
	for _, c := range []struct {
		name, caller, group, as string
		code                    int
		seen                    string
	}{
		{"nobody else", "alice", "told", "", 200, "alice"},
		{"allowed", "alice", "told", "bob", 200, "bob"},
		{"not this one", "alice", "told", "carol", 403, ""},
		{"not by this one", "mallory", "told", "bob", 403, ""},
		{"the server judges", "mallory", "judges", "bob", 200, "mallory"},
		{"nobody can tell", "alice", "guarded", "bob", 403, ""},
		{"nobody else there", "alice", "guarded", "", 200, "alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := ""
			h := begin((&router{registry: r}).route((&Gateway{cfg: Config{Authorizer: mayBeBob{}}}).impersonate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				u, _ := apirequest.UserFrom(r.Context())
				seen = u.GetName()
			}))))
			req := httptest.NewRequest(http.MethodPost, "/apis/"+c.group+"/v1/namespaces/x/things", nil)
			if c.as != "" {
				req.Header.Set("Impersonate-User", c.as)
			}
			req = req.WithContext(apirequest.WithUser(req.Context(), &user.DefaultInfo{Name: c.caller}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if w.Code != c.code || seen != c.seen {
				t.Errorf("%d, policies see %q; want %d, %q (%s)", w.Code, seen, c.code, c.seen, w.Body)
			}
		})
	}
}
