// Package call holds what the gateway knows of one request: a single value, under a single
// key of the request's context, which each handler reads and adds to. It never decides
// anything.
//
// The user is not in it. The user stays under Kubernetes' own key (request.UserFrom),
// where Kubernetes' filters look, and where its impersonation filter replaces the user.
package call

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Call is one request on its way. The handlers of a request run one after the
// other, so that no lock is needed. Each field says which handler sets it; the
// field does not change after that.
type Call struct {
	// Credentials are the caller's, as they came in. Begin sets them.
	Credentials Credentials
	// Info is Kubernetes' reading of method and URL. Begin sets it, also under
	// Kubernetes' own key (request.RequestInfoFrom). No handler changes the method, and
	// only Answer may change the meaning of the URL.
	Info *request.RequestInfo

	// Server is the server that holds the path's group; nil if no server does, or if
	// the gateway itself answers. Routing sets Server, OfObject and Answer from the path,
	// and only once: servers may come and go meanwhile, but the request is sent to the
	// server for which the policies judged it.
	Server *v1alpha1.RemoteAPIServer
	// OfObject says that the request is about objects or their subresources.
	OfObject bool
	// Answer answers the request once every other handler has let it pass.
	Answer http.HandlerFunc

	// Verified says that the gateway knows the caller. Unverified says why it could not
	// verify the caller's credentials; nil if there were none. Authentication sets both.
	Verified   bool
	Unverified error

	// Traffic is what limits and records need. Package traffic sets it.
	Traffic Traffic
}

// Traffic says whose limits a request counts against, and what is recorded of it.
type Traffic struct {
	Caller     string // the caller, even if the request impersonates somebody; "" until it is known
	Privileged bool   // the caller is in system:masters
	Server     string // the server that got the request, or whose limit refused it; "": none
	RejectedBy string // the kind of limit that refused the request; "": none
}

type key struct{}

// Begin returns the request with its Call in its context. Call it once, before every
// handler that reads the Call or changes the request. It fails if Kubernetes could not
// read the URL.
func Begin(r *http.Request) (*http.Request, error) {
	info, err := ReadURL(r)
	if err != nil {
		return nil, err
	}
	c := &Call{Credentials: credentialsOf(r), Info: info}
	ctx := context.WithValue(r.Context(), key{}, c)
	return r.WithContext(request.WithRequestInfo(ctx, info)), nil
}

// Of returns the Call of a request. It panics if the request has not begun.
func Of(r *http.Request) *Call {
	c, ok := r.Context().Value(key{}).(*Call)
	if !ok {
		panic("a request came to a handler before call.Begin")
	}
	return c
}

var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ReadURL reads a request's method and URL as kube-apiserver does.
func ReadURL(r *http.Request) (*request.RequestInfo, error) { return paths.NewRequestInfo(r) }

// Credentials identify a caller. Authenticators remove them from the request; servers in
// PassThrough mode still get them.
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
