package gateway

import (
	"fmt"
	"net/http"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
)

// impersonate makes policies see the user whom the server will see. A server in
// PassThrough mode judges by itself whether a caller may be somebody else; the
// policies of one that is guarded cannot know.
func (s *Server) impersonate(next http.Handler) http.Handler {
	as := next
	if s.cfg.Authorizer != nil {
		as = backend.Impersonate(next, s.cfg.Authorizer)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := holderOf(r)
		switch {
		case e == nil || !backend.Impersonates(r.Header):
			next.ServeHTTP(w, r)
		case e.server.Spec.IdentityMode() != v1alpha1.PassThrough:
			as.ServeHTTP(w, r)
		case e.server.Spec.Guard != v1alpha1.Guard{}:
			refuse(w, r, http.StatusForbidden, fmt.Sprintf("server %q is guarded, and takes the caller's own credentials: nobody can be impersonated there through the gateway (--as)", e.server.Name))
		default:
			next.ServeHTTP(w, r)
		}
	})
}
