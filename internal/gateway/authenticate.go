package gateway

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// authenticate puts the caller into the request's context. Whoever the gateway
// cannot verify is anonymous; what a caller may do without being known is
// decided further on. The request keeps its credentials, for backends in
// PassThrough mode to pass on.
func (s *Server) authenticate(next http.Handler) http.Handler {
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var caller user.Info = anonymous
		var unverified error
		if s.cfg.Authenticator != nil {
			// Authenticators take what they have verified off the request.
			copied := r.Clone(r.Context())
			answer, ok, err := s.cfg.Authenticator.AuthenticateRequest(copied)
			if ok {
				caller = answer.User
			}
			unverified = err
		}
		ctx := apirequest.WithUser(r.Context(), caller)
		ctx = withVerdict(ctx, verdict{verified: caller != anonymous, err: unverified})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
