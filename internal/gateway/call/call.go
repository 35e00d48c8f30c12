// Package call is what the gateway knows of one request: a single value, under a
// single key of the request's context, which each handler reads and adds to. It
// never decides anything.
//
// The user and the RequestInfo are not in it. They stay under Kubernetes' own keys
// (request.UserFrom, request.RequestInfoFrom), where Kubernetes' filters look for
// them, and where its impersonation filter replaces the user.
package call

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Call is one request on its way. The handlers of a request run one after the
// other, so that no lock is needed. Each field says which handler sets it; the
// field does not change after that.
type Call struct {
	// Credentials are the caller's own, as they came in. Start sets them.
	Credentials Credentials

	// Server is the server that the request goes to; nil if the gateway itself
	// answers. Routing sets it, OfObject and Answer from the path, and only once:
	// the policies judge for the server that the request is then sent to, though
	// servers come and go meanwhile.
	Server *v1alpha1.RemoteAPIServer
	// OfObject says that the request is about objects, or what is below them.
	OfObject bool
	// Answer answers the request once every other handler has let it pass.
	Answer http.HandlerFunc

	// Verified says that the gateway knows the caller, and Unverified why the
	// credentials that came could not be verified, if any came. Authentication sets
	// them.
	Verified   bool
	Unverified error

	// Traffic is what limits and records need. Package traffic sets it.
	Traffic Traffic
}

// Traffic is whose limits a request counts against, and what is recorded of it.
type Traffic struct {
	Caller     string // who calls, also if they impersonate somebody; "" until it is known
	Privileged bool   // the caller is of system:masters
	Server     string // the server that got the request, or whose limit refused it; "": none
	RejectedBy string // whose limit refused the request; "": none
}

type key struct{}

// Start gives each request its Call. It comes before all handlers that change a
// request.
func Start(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, r = Begin(r)
		next.ServeHTTP(w, r)
	})
}

// Begin returns the Call of a request, and the request with that Call in its
// context. It starts a Call if the request has none.
func Begin(r *http.Request) (*Call, *http.Request) {
	if c := Of(r); c != nil {
		return c, r
	}
	c := &Call{Credentials: credentialsOf(r)}
	return c, r.WithContext(context.WithValue(r.Context(), key{}, c))
}

// Of returns the Call of a request; nil if it has none.
func Of(r *http.Request) *Call {
	c, _ := r.Context().Value(key{}).(*Call)
	return c
}

// Credentials are what a caller identifies itself with. Authenticators take them
// off the request; servers in PassThrough mode still get them.
type Credentials struct {
	Authorization []string
	Protocols     []string // Sec-WebSocket-Protocol, which may carry a token
	Certificate   bool     // the caller presented a client certificate
}

// BearerProtocol begins a WebSocket subprotocol that is a bearer token.
const BearerProtocol = "base64url.bearer.authorization.k8s.io."

func credentialsOf(r *http.Request) Credentials {
	return Credentials{
		Authorization: slices.Clone(r.Header["Authorization"]),
		Protocols:     slices.Clone(r.Header["Sec-Websocket-Protocol"]),
		Certificate:   r.TLS != nil && len(r.TLS.PeerCertificates) > 0,
	}
}

// HasToken says whether a token came with the request.
func (c Credentials) HasToken() bool {
	return len(c.Authorization) > 0 || slices.ContainsFunc(c.Protocols, func(p string) bool { return strings.Contains(p, BearerProtocol) })
}
