package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/policy"
)

// verdict is what the gateway knows of a caller beside who it is.
type verdict struct {
	verified bool
	err      error // why the credentials that came were not verified
}

type verdictKey struct{}

func withVerdict(ctx context.Context, v verdict) context.Context {
	return context.WithValue(ctx, verdictKey{}, v)
}

func verdictOf(ctx context.Context) verdict {
	v, _ := ctx.Value(verdictKey{}).(verdict)
	return v
}

// router sends a request to the server that holds its group, and answers
// itself what is about all of them.
type router struct {
	registry  *registry
	index     *discovery.Index
	discovery http.Handler
	closed    bool // callers must be known to see discovery and servers
	problem   func() string

	authorizer   authorizer.UnconditionalAuthorizer // nil: who is known may read all
	metrics      http.Handler
	reservations http.Handler // nil: no policies
}

func newRouter(s *Server) *router {
	return &router{
		registry: s.registry, index: s.index, discovery: s.index.Handler(),
		closed: s.cfg.Authenticator != nil, problem: s.cfg.Source.Problem,
		authorizer: s.cfg.Authorizer, metrics: s.metrics,
	}
}

// admit lets requests on to next that have a path, and a caller who is known
// where that is needed. Whether the gateway is well everybody may ask.
func (t *router) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		switch {
		case !strings.HasPrefix(path, "/"), strings.Contains(path, "//"),
			slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }):
			refuse(w, r, http.StatusBadRequest, "the path has an empty segment, . or .. in it: write it without")
		case path == "/healthz", path == "/livez":
			fmt.Fprint(w, "ok")
		case path == "/readyz":
			t.readyz(w)
		case t.known(w, r):
			next.ServeHTTP(w, r)
		}
	})
}

func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	segments := strings.Split(strings.Trim(path, "/"), "/")
	_, ofObject := objectGroup(segments)
	switch {
	case path == "/servers" || strings.HasPrefix(path, "/servers/") || path == "/metrics":
		t.inside(w, r)
	case len(segments) == 3 && segments[0] == "apis", len(segments) == 2 && segments[0] == "api":
		t.resources(w, r)
	case t.reserves(path):
		t.reservations.ServeHTTP(w, r)
	case ofObject:
		t.send(w, r, holderOf(r))
	case strings.HasPrefix(path, openAPIv3Prefix):
		t.openAPIv3(w, r)
	case path == "/openapi/v2":
		t.openAPIv2(w, r)
	case slices.Contains(coreOnly, path):
		t.send(w, r, serverOf(r))
	default:
		if path == "/apis" || path == "/api" {
			t.registry.kickAll() // whoever asks once more gets what is new by then
		}
		t.discovery.ServeHTTP(w, r)
	}
}

// known lets a request go on whose caller is who it needs to be: for what
// needs the gateway's word, somebody; for a server that sees the caller's own
// credentials, anybody.
func (t *router) known(w http.ResponseWriter, r *http.Request) bool {
	v := verdictOf(r.Context())
	if v.verified || !t.closed {
		return true
	}
	if e := holderOf(r); e != nil && e.server.Spec.IdentityMode() == v1alpha1.PassThrough {
		return true
	}
	switch {
	case v.err == nil:
		refuse(w, r, http.StatusUnauthorized, "the gateway does not know you: send a client certificate or a bearer token that it can verify")
	case unreachable(v.err):
		// Not the caller's fault: 401 would have clients throw good credentials away.
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("your credentials could not be verified, as the cluster that says whose they are does not answer: %v", v.err))
	default:
		refuse(w, r, http.StatusUnauthorized, fmt.Sprintf("your credentials could not be verified: %v", v.err))
	}
	return false
}

// unreachable says whether an authenticator has failed for want of an answer.
func unreachable(err error) bool {
	if all := utilerrors.Aggregate(nil); errors.As(err, &all) {
		return slices.ContainsFunc(all.Errors(), unreachable)
	}
	var failed *url.Error
	return errors.As(err, &failed) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

type holderKey struct{}

// located is where a request goes.
type located struct {
	server *entry
	object bool // it is about objects, or what is below them
}

// locate decides once where a request goes, so that who guards it and who sends
// it mean the same server, though servers come and go meanwhile.
func (t *router) locate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := t.find(r.URL.Path); to.server != nil {
			r = r.WithContext(policy.WithServer(context.WithValue(r.Context(), holderKey{}, to), guardedServer(to.server)))
		}
		next.ServeHTTP(w, r)
	})
}

// find is the server that a path is of: of its objects, its resources, its
// OpenAPI; none, if the gateway itself answers.
func (t *router) find(path string) located {
	if t.reserves(path) {
		return located{}
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if group, ok := objectGroup(segments); ok {
		return located{t.registry.holder(group), true}
	}
	switch {
	case len(segments) == 3 && segments[0] == "apis":
		return located{server: t.registry.holder(segments[1])}
	case len(segments) == 2 && segments[0] == "api", slices.Contains(coreOnly, path):
		return located{server: t.registry.holder("")}
	case strings.HasPrefix(path, openAPIv3Prefix):
		table := t.registry.table.Load()
		if name, ok := discovery.PathOwner(strings.TrimPrefix(path, openAPIv3Prefix), table.owned.Holder); ok {
			return located{server: table.servers[name]}
		}
	}
	return located{}
}

// serverOf is the server that a request goes to, or nil.
func serverOf(r *http.Request) *entry {
	to, _ := r.Context().Value(holderKey{}).(located)
	return to.server
}

// holderOf is the server that a request about objects goes to, or nil.
func holderOf(r *http.Request) *entry {
	to, _ := r.Context().Value(holderKey{}).(located)
	if !to.object {
		return nil
	}
	return to.server
}

// objectGroup is the group of the objects that a path is about, if it is about
// objects: /api/v1/RESOURCE or /apis/GROUP/VERSION/RESOURCE, and what is below.
func objectGroup(segments []string) (group string, ok bool) {
	switch {
	case segments[0] == "apis" && len(segments) > 3:
		return segments[1], true
	case segments[0] == "api" && len(segments) > 2:
		return "", true
	}
	return "", false
}

// reservationsPrefix is where servers that clients reach directly reserve.
const reservationsPrefix = "/apis/" + v1alpha1.GroupName + "/v1alpha1/namespaces/"

// reserves says whether a path is one of reservations, which the gateway itself
// serves.
func (t *router) reserves(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return t.reservations != nil && len(segments) > 5 && strings.HasPrefix(path, reservationsPrefix) && segments[5] == "reservations"
}

// inside serves what is about the gateway itself, to those who may see it.
func (t *router) inside(w http.ResponseWriter, r *http.Request) {
	if !t.mayRead(w, r) {
		return
	}
	rest := strings.TrimPrefix(r.URL.Path, "/servers/")
	name, what, _ := strings.Cut(rest, "/")
	switch e := t.registry.table.Load().servers[name]; {
	case r.URL.Path == "/metrics":
		t.metrics.ServeHTTP(w, r)
	case r.URL.Path == "/servers":
		t.servers(w)
	case e != nil && what == "":
		writeJSON(w, describe(e))
	case e != nil && what == "conformance":
		if c := e.member.look().checked; c != nil && c.report != nil {
			writeJSON(w, c.report)
			return
		}
		refuse(w, r, http.StatusNotFound, fmt.Sprintf("server %q has not been checked yet; its condition Conformant says why", name))
	default:
		discovery.NotFound(w, r)
	}
}

// mayRead asks whether the caller may read a path of the gateway's own, as
// Kubernetes asks for paths outside its API.
func (t *router) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if t.authorizer == nil {
		return true
	}
	caller, _ := apirequest.UserFrom(r.Context())
	decision, why, err := t.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{User: caller, Verb: "get", Path: r.URL.Path})
	switch {
	case err != nil:
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("whether you may read %s could not be found out: %v", r.URL.Path, err))
	case decision != authorizer.DecisionAllow:
		refuse(w, r, http.StatusForbidden, fmt.Sprintf("user %q may not get %s: %s", caller.GetName(), r.URL.Path, cmp.Or(why, "no rule allows it")))
	}
	return err == nil && decision == authorizer.DecisionAllow
}

// resources answers with the resources of a group version. The server's own
// answer is the best; where it cannot be had, what is known will do.
func (t *router) resources(w http.ResponseWriter, r *http.Request) {
	e := serverOf(r)
	if e == nil {
		t.registry.kickAll()
	} else if way := e.member.way.Load(); e.withheld ||
		e.server.Spec.IdentityMode() != v1alpha1.PassThrough && way != nil && way.backend.Health().Available {
		t.forward(w, r, e)
		return
	}
	t.discovery.ServeHTTP(w, r)
}

// send forwards a request to the server that holds its group, if one does.
func (t *router) send(w http.ResponseWriter, r *http.Request, e *entry) {
	if e == nil {
		if !t.registry.settled.Load() {
			refuse(w, r, http.StatusServiceUnavailable, "the gateway is still asking its servers what they serve: try again")
			return
		}
		t.registry.kickAll()
		discovery.NotFound(w, r)
		return
	}
	t.forward(w, r, e)
}

func (t *router) forward(w http.ResponseWriter, r *http.Request, e *entry) {
	if e.withheld {
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("server %q gets no requests: this gateway takes conformant servers only, "+
			"and it is not known to be one; its condition Conformant says why", e.server.Name))
		return
	}
	way := e.member.way.Load()
	if way == nil {
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("server %q cannot be reached: %v", e.server.Name, e.member.look().invalid))
		return
	}
	if endless(r) {
		// What comes from a server that was taken out must not be believed any more.
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(e.member.gone, end)()
		r = r.WithContext(ctx)
	}
	way.handler.ServeHTTP(w, r)
	if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && changesDiscovery(info) {
		for _, d := range changeTimes {
			time.AfterFunc(d, e.member.kick)
		}
	}
}

// endless says that a request is a watch or a stream, which ends when somebody
// ends it.
func endless(r *http.Request) bool {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	return ok && info.Verb == "watch" || r.Header.Get("Upgrade") != ""
}

// changesDiscovery says whether a request may have made a server serve other
// resources than before.
func changesDiscovery(info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.Resource != "customresourcedefinitions" && info.Resource != "apiservices" {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// changeTimes are when to look at a server's discovery after such a request:
// servers take a while to serve what they were told to.
var changeTimes = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// coreOnly are paths outside the API that clients ask of a cluster, which the
// core server answers: the keys of service account tokens.
var coreOnly = []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}

// openAPIv3Prefix is where the documents of OpenAPI v3 are.
const openAPIv3Prefix = "/openapi/v3/"

// openAPIv3 forwards to the server that a document is of. The hash in the URL is
// left out: where it has just changed, the server would redirect.
func (t *router) openAPIv3(w http.ResponseWriter, r *http.Request) {
	e := serverOf(r)
	if e == nil {
		discovery.NotFound(w, r)
		return
	}
	out := r.Clone(r.Context())
	out.URL = &url.URL{Path: strings.TrimSuffix(cmp.Or(e.server.Spec.OpenAPIPath, "/openapi"), "/") + "/v3/" + strings.TrimPrefix(r.URL.Path, openAPIv3Prefix)}
	t.forward(w, out, e)
}

// openAPIv2 answers with the servers' OpenAPI v2, and asks them for it first
// where nobody has wanted it before.
func (t *router) openAPIv2(w http.ResponseWriter, r *http.Request) {
	if t.index.WantOpenAPIV2() {
		for _, e := range t.registry.table.Load().servers {
			e.member.kick()
		}
	}
	timeout := time.NewTimer(firstV2Time)
	defer timeout.Stop()
	for tick := time.NewTicker(50 * time.Millisecond); !t.registry.hasOpenAPIv2(); {
		select {
		case <-tick.C:
			continue
		case <-timeout.C:
		case <-r.Context().Done():
		}
		break
	}
	t.discovery.ServeHTTP(w, r)
}

// firstV2Time is how long the first who ask for OpenAPI v2 wait for servers that
// have not told theirs.
const firstV2Time = 3 * time.Second

func (t *router) readyz(w http.ResponseWriter) {
	if !t.registry.settled.Load() {
		http.Error(w, "the gateway does not know its servers yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, "ok")
}

// described is a server as /servers tells of it.
type described struct {
	Name     string                         `json:"name"`
	URLs     []string                       `json:"urls"`
	Identity v1alpha1.IdentityMode          `json:"identity"`
	Guard    v1alpha1.Guard                 `json:"guard"`
	Status   v1alpha1.RemoteAPIServerStatus `json:"status"`
}

func describe(e *entry) described {
	return described{e.server.Name, e.server.Spec.BaseURLs(), e.server.Spec.IdentityMode(), e.server.Spec.Guard, e.status}
}

// servers tells the state of each server.
func (t *router) servers(w http.ResponseWriter) {
	out := struct {
		Problem string      `json:"sourceProblem,omitempty"`
		Servers []described `json:"servers"`
	}{Problem: t.problem(), Servers: []described{}}
	for _, e := range t.registry.table.Load().servers {
		out.Servers = append(out.Servers, describe(e))
	}
	slices.SortFunc(out.Servers, func(a, b described) int { return cmp.Compare(a.Name, b.Name) })
	writeJSON(w, out)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // who asked is gone
}

// refuse answers with a Kubernetes Status.
func refuse(w http.ResponseWriter, r *http.Request, code int, message string) {
	status := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Message: message, Reason: reasons[code],
	}}
	discovery.WriteStatus(w, r, status)
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
}
