package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

// authenticate puts the user into the request's context. A caller whom the gateway
// cannot verify is anonymous; later steps decide what an anonymous caller may do.
func (g *Gateway) authenticate(next http.Handler) http.Handler {
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call.Of(r)
		var caller user.Info = anonymous
		if g.cfg.Authenticator != nil {
			// Authenticators remove the credentials that they have verified from the
			// request, so they get a copy.
			verified, ok, err := g.cfg.Authenticator.AuthenticateRequest(r.Clone(r.Context()))
			if ok {
				caller, c.Verified = verified.User, true
			}
			c.Unverified = err
		}
		next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), caller)))
	})
}

// admit answers health checks, which everybody may make. It refuses requests whose path is
// not plain, and requests of callers that admits refuses.
func (g *Gateway) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		switch {
		case !strings.HasPrefix(path, "/"), strings.Contains(path, "//"),
			slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }):
			refuse(w, r, http.StatusBadRequest, "the path has an empty segment, . or .. in it: remove that")
		case path == "/healthz" || path == "/livez":
			fmt.Fprint(w, "ok")
		case path == "/readyz":
			if !g.registry.ready.Load() {
				http.Error(w, "the gateway does not know its servers yet", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, "ok")
		case g.admits(w, r):
			next.ServeHTTP(w, r)
		}
	})
}

// admits says whether the caller may make such a request, and answers the request if not.
// If the gateway can authenticate, it admits verified callers only. Requests to servers in
// PassThrough mode, which get the caller's own credentials, are admitted from anyone.
func (g *Gateway) admits(w http.ResponseWriter, r *http.Request) bool {
	c := call.Of(r)
	switch {
	case c.Verified, g.cfg.Authenticator == nil, c.OfObject && c.Server != nil && c.Server.Spec.IdentityMode() == v1alpha1.PassThrough:
		return true
	case c.Unverified == nil:
		refuse(w, r, http.StatusUnauthorized, "the gateway does not know you: send a client certificate or a bearer token that it can verify")
	case unreachable(c.Unverified):
		// With 401 clients would throw away credentials that may be good.
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("your credentials could not be verified, as the cluster that says whose they are does not answer: %v", c.Unverified))
	default:
		refuse(w, r, http.StatusUnauthorized, fmt.Sprintf("your credentials could not be verified: %v", c.Unverified))
	}
	return false
}

// unreachable says whether an authenticator failed because it got no answer.
func unreachable(err error) bool {
	if all := utilerrors.Aggregate(nil); errors.As(err, &all) {
		return slices.ContainsFunc(all.Errors(), unreachable)
	}
	var failed *url.Error
	return errors.As(err, &failed) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// impersonate decides as which user a request to a server is made, for the policies and
// for the server alike. In PassThrough mode the server decides whether a caller may
// impersonate somebody, so the policies cannot know the user. If such a server is guarded,
// impersonate refuses requests about objects that impersonate somebody.
func (g *Gateway) impersonate(next http.Handler) http.Handler {
	as := backend.Impersonate(next, g.cfg.Authorizer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call.Of(r)
		switch {
		case c.Server == nil || !backend.Impersonates(r.Header):
			next.ServeHTTP(w, r)
		case c.Server.Spec.IdentityMode() != v1alpha1.PassThrough:
			as.ServeHTTP(w, r)
		case c.OfObject && c.Server.Spec.Guard != v1alpha1.Guard{}:
			refuse(w, r, http.StatusForbidden, fmt.Sprintf("server %q is guarded, and takes the caller's own credentials: nobody can be impersonated there through the gateway (--as)", c.Server.Name))
		default:
			next.ServeHTTP(w, r)
		}
	})
}
