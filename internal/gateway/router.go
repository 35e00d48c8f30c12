package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
)

// router finds by a request's path the server that it goes to, and the handler that answers
// it.
type router struct {
	registry     *registry
	index        *discovery.Index
	discovery    http.Handler // answers from the index
	own          http.Handler // answers paths about the gateway itself
	reservations http.Handler // nil if there are no policies
}

func newRouter(g *Gateway) *router {
	t := &router{
		registry: g.registry, index: g.index, discovery: g.index.Handler(),
		own: &ownPaths{registry: g.registry, problem: g.cfg.Source.Problem, authorizer: g.cfg.Authorizer, metrics: g.metrics},
	}
	if g.guard != nil {
		t.reservations = g.guard.Reservations()
	}
	return t
}

// route sets the Server and the Answer of the request's Call. It decides only once: see
// call.Call.
func (t *router) route(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, to := call.Of(r), t.find(r.URL.Path)
		if to.server != nil {
			c.Server = to.server.server
		}
		c.OfObject, c.Answer = to.ofObject, to.answer
		next.ServeHTTP(w, r)
	})
}

// destination is where a request goes.
type destination struct {
	server   *entry // nil: no server has the path, or the gateway itself answers
	ofObject bool   // the path is about objects or their subresources
	answer   http.HandlerFunc
}

// coreOnly are the paths outside the API that the core server answers. Clients read the
// keys of service account tokens there.
var coreOnly = []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}

// find returns where requests for a path go.
func (t *router) find(path string) destination {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	group, ofObject := objectGroup(segments)
	switch {
	case path == "/metrics", path == "/servers", strings.HasPrefix(path, "/servers/"):
		return destination{answer: t.own.ServeHTTP}
	case t.reserves(path, segments):
		return destination{answer: t.reservations.ServeHTTP}
	case ofObject:
		return to(t.registry.holder(group), true, t.send)
	case len(segments) == 3 && segments[0] == "apis":
		return to(t.registry.holder(segments[1]), false, t.resources)
	case len(segments) == 2 && segments[0] == "api":
		return to(t.registry.holder(""), false, t.resources)
	case slices.Contains(coreOnly, path):
		return to(t.registry.holder(""), false, t.send)
	case strings.HasPrefix(path, openAPIv3Prefix):
		return to(t.documentOwner(path), false, t.openAPIv3)
	case path == "/openapi/v2":
		return destination{answer: t.openAPIv2}
	case path == "/apis", path == "/api":
		return destination{answer: t.groups}
	}
	return destination{answer: t.discovery.ServeHTTP}
}

func to(server *entry, ofObject bool, answer func(http.ResponseWriter, *http.Request, *entry)) destination {
	return destination{server, ofObject, func(w http.ResponseWriter, r *http.Request) { answer(w, r, server) }}
}

// objectGroup returns the group of a path of objects: /api/v1/RESOURCE,
// /apis/GROUP/VERSION/RESOURCE, or a path below. ok is false for other paths.
func objectGroup(segments []string) (group string, ok bool) {
	switch {
	case segments[0] == "apis" && len(segments) > 3:
		return segments[1], true
	case segments[0] == "api" && len(segments) > 2:
		return "", true
	}
	return "", false
}

// reservationsPrefix begins the paths of reservations. Servers that clients reach directly
// create reservations.
const reservationsPrefix = "/apis/" + v1alpha1.GroupName + "/v1alpha1/namespaces/"

// reserves says whether a path is one of reservations that the gateway serves.
func (t *router) reserves(path string, segments []string) bool {
	return t.reservations != nil && len(segments) > 5 && strings.HasPrefix(path, reservationsPrefix) && segments[5] == "reservations"
}

// groups answers with the groups and versions of all servers. It also has the servers asked
// again, so that the caller's next request shows new groups.
func (t *router) groups(w http.ResponseWriter, r *http.Request) {
	t.registry.askAgain()
	t.discovery.ServeHTTP(w, r)
}

// resources answers with the resources of a group version: with the server's own answer if
// it can be had, otherwise with the last known discovery.
func (t *router) resources(w http.ResponseWriter, r *http.Request, e *entry) {
	if e == nil {
		t.registry.askAgain()
	} else if conn := e.member.conn.Load(); e.withheld ||
		e.server.Spec.IdentityMode() != v1alpha1.PassThrough && conn != nil && conn.backend.Health().Available {
		t.forward(w, r, e)
		return
	}
	t.discovery.ServeHTTP(w, r)
}

// send forwards a request to e, and answers itself if no server has the path.
func (t *router) send(w http.ResponseWriter, r *http.Request, e *entry) {
	switch {
	case e != nil:
		t.forward(w, r, e)
	case !t.registry.ready.Load():
		refuse(w, r, http.StatusServiceUnavailable, "the gateway is still asking its servers what they serve: try again")
	default:
		t.registry.askAgain()
		discovery.NotFound(w, r)
	}
}

// forward forwards a request to e, if e gets requests and can be reached.
func (t *router) forward(w http.ResponseWriter, r *http.Request, e *entry) {
	if e.withheld {
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("server %q gets no requests: this gateway takes conformant servers only, "+
			"and it is not known to be one; its condition Conformant says why", e.server.Name))
		return
	}
	conn := e.member.conn.Load()
	if conn == nil {
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("server %q cannot be reached: %v", e.server.Name, e.member.known().invalid))
		return
	}
	if endless(r) {
		// The request ends if the server is removed, because its events can no longer be
		// trusted.
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(e.member.gone, end)()
		r = r.WithContext(ctx)
	}
	conn.handler.ServeHTTP(w, r)
	if changesDiscovery(call.Of(r).Info) {
		for _, d := range fetchesAfterChange {
			time.AfterFunc(d, e.member.kick)
		}
	}
}

// endless says whether a request is a watch or a stream, which lasts until one side ends
// it.
func endless(r *http.Request) bool {
	return call.Of(r).Info.Verb == "watch" || r.Header.Get("Upgrade") != ""
}

// changesDiscovery says whether a server may serve other resources after a request.
func changesDiscovery(info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.Resource != "customresourcedefinitions" && info.Resource != "apiservices" {
		return false
	}
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, info.Verb)
}

// fetchesAfterChange says when to fetch a server's discovery after such a request. A server
// takes a while until it serves the changed resources.
var fetchesAfterChange = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}
