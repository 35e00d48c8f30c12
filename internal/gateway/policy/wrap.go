package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

// Wrap enforces the core server's policies on requests to next. A request must have a user
// (request.UserFrom) and a Call. If the Call names no server, the request goes on unchanged.
// Otherwise next gets the canonical form of the request, which is the form that was judged.
// next must send requests by net/http, with its request's context or one made from it: if
// that context has seen no connection when next returns, the request was never sent.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call.Of(r)
		if c.Server == nil || c.Server.Spec.Guard == (v1alpha1.Guard{}) {
			next.ServeHTTP(w, r)
			return
		}
		server := servers.Server{Name: c.Server.Name, Guard: c.Server.Spec.Guard}
		q, err := canonical.Read(r, c.Info, func(gvr schema.GroupVersionResource) (canonical.Kind, error) { return g.servers.Kind(server.Name, gvr) })
		if err != nil {
			g.answers.write(err, w, r)
			return
		}
		u, ok := request.UserFrom(r.Context())
		if !ok {
			u = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		}
		p := &passage{guard: g, server: server, request: q, user: u, next: next}
		if err := p.authorize(r.Context(), q.Info.Verb); err != nil {
			g.answers.write(err, w, r)
			return
		}
		p.serve(w, r)
	})
}

// passage is one request on its way to a guarded server.
type passage struct {
	guard   *Guard
	server  servers.Server
	request *canonical.Request
	user    user.Info
	next    http.Handler
}

// serve lets through a request that the user may make.
func (p *passage) serve(w http.ResponseWriter, r *http.Request) {
	q := p.request
	if q.Writes() {
		p.write(w, r)
		return
	}
	sw := &statusWriter{ResponseWriter: w}
	switch q.Info.Verb {
	case "delete", "deletecollection", "create": // a create of a subresource may do anything: evict, copy
		defer func() {
			if p.counts() && sw.status < 300 {
				p.recountSoon()
			}
		}()
	}
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), q.Sent(r.Context()))
}

// recountSoon has the objects counted that the request may have deleted or created.
func (p *passage) recountSoon() {
	p.guard.upkeep.RecountSoon(p.server.Name, p.request.Info.Namespace)
}

// counts says whether a create of the request's resource needs a reservation.
func (p *passage) counts() bool {
	return p.request.Kind.Namespaced && (p.server.Guard.Namespaces || p.server.Guard.Quota)
}

// create returns what to reserve if the request creates its object.
func (p *passage) create(r *http.Request) quota.Request {
	gvr := p.request.Resource()
	return quota.Request{
		Namespace: p.request.Info.Namespace,
		Server:    p.server.Name,
		Guard:     p.server.Guard,
		Resource:  gvr.GroupResource().String(),
		Version:   gvr.Version,
		By:        p.guard.identity,
		User:      p.user.GetName(),
		Timeout:   p.guard.timeoutOf(r.URL.Query()),
	}
}

// write lets a request through that writes a whole object, which may create it.
func (p *passage) write(w http.ResponseWriter, r *http.Request) {
	q := p.request
	err := p.known()
	if err == nil {
		err = q.ReadObject(&p.guard.bodies, p.user.GetName())
		defer q.Close()
	}
	switch {
	case err != nil:
		p.guard.answers.write(err, w, r)
	case q.Info.Verb == "create":
		p.reserve(w, r)
	default:
		p.upsert(w, r)
	}
}

// known refuses callers whom the gateway does not know, because users share a quota's room.
func (p *passage) known() error {
	if name := p.user.GetName(); name != "" && name != user.Anonymous && !slices.Contains(p.user.GetGroups(), user.AllUnauthenticated) {
		return nil
	}
	return apierrors.NewUnauthorized(fmt.Sprintf("server %q is guarded, and the gateway does not know who you are: "+
		"to write objects there, send a client certificate or a bearer token that the gateway can verify", p.server.Name))
}

const (
	// giveBackTimeout is how long the answer of a create that has failed waits for
	// its reservation to end.
	giveBackTimeout = 2 * time.Second
	// reserveTimeout is how long reserving may take, on top of the time-out that the
	// client sets for the server.
	reserveTimeout = 5 * time.Second
)

// timeoutOf returns how long a create may take, including its reservation: the client's
// time-out, within the gateway's own limit.
func (g *Guard) timeoutOf(query url.Values) time.Duration {
	if d, err := time.ParseDuration(query.Get("timeout")); err == nil && d > 0 && d < g.requestTimeout {
		return min(d+reserveTimeout, g.requestTimeout)
	}
	return g.requestTimeout
}

// reserve lets a request through that creates an object. Dry runs need a
// reservation as well, because a server may not know dryRun.
func (p *passage) reserve(w http.ResponseWriter, r *http.Request) {
	g, a := p.guard, p.create(r)
	if !p.counts() {
		p.next.ServeHTTP(w, p.request.Sent(r.Context()))
		return
	}
	if a.Guard.Quota {
		if err := g.checkLimits(r.Context(), p.request, a); err != nil {
			g.answers.write(err, w, r)
			return
		}
	}
	held, err := g.reserver.Reserve(r.Context(), a)
	switch {
	case err != nil:
		g.logRefusal(err, a)
		g.answers.write(statusOfError(err, a), w, r)
	case held == nil: // nothing limits it
		p.next.ServeHTTP(w, p.request.Sent(r.Context()))
	default:
		p.send(w, r, a, held)
	}
}

// send sends a create that has a reservation, and records its outcome. It goes on
// if the caller hangs up, so that the outcome is known all the same. If the gateway
// crashes in here, the reservation is left to expire.
func (p *passage) send(w http.ResponseWriter, r *http.Request, a quota.Request, held *quota.Reservation) {
	g := p.guard
	left := time.Until(held.Deadline)
	if left < time.Second {
		held.Failed()
		g.answers.write(apierrors.NewTimeoutError(fmt.Sprintf("reserving a %s took too long; nothing was created at server %s; try again", a.Resource, a.Server), 1), w, r)
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), held.Deadline)
	defer cancel()
	ctx, seen := trace(ctx)
	sent := p.request.Sent(ctx)
	sent.URL = withTimeout(sent.URL, left)

	sw := &statusWriter{ResponseWriter: w}
	defer func() { // also if next panics, as a reverse proxy does to cut a connection
		switch outcomeOf(sw.status, seen.neverSent()) {
		case landed:
			held.Landed()
			if sw.status != http.StatusCreated || p.request.DryRun {
				p.recountSoon() // it may have created nothing
			}
		case failed:
			held.Failed()
			// The end is written before the caller gets the answer, so that the caller can
			// try again at once.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), giveBackTimeout)
			defer cancel()
			_ = held.Flush(ctx) // if it fails, the next write records the outcome
		case unknown:
			g.log.Info("the outcome of a create is unknown: it counts until that is found out",
				"server", a.Server, "namespace", a.Namespace, "resource", a.Resource, "status", sw.status, "reservation", held.ID)
		}
	}()
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), sent)
}

// withTimeout returns u with a timeout of left for the server, so that a request
// whose answer is lost does not create its object after its reservation has expired.
func withTimeout(u *url.URL, left time.Duration) *url.URL {
	if d, err := time.ParseDuration(u.Query().Get("timeout")); err == nil && d > 0 && d <= left {
		return u
	}
	next, timeout := *u, strconv.Itoa(int(left/time.Second))+"s"
	switch q := next.Query(); {
	case q.Has("timeout"):
		q.Set("timeout", timeout)
		next.RawQuery = q.Encode()
	case next.RawQuery == "":
		next.RawQuery = "timeout=" + timeout
	default: // the rest of the query stays as it was written
		next.RawQuery += "&timeout=" + timeout
	}
	return &next
}

// upsert lets a request through that a server may treat as a create, if the object
// is not there. If the object is there, the request is not counted.
func (p *passage) upsert(w http.ResponseWriter, r *http.Request) {
	q, a := p.request, p.create(r)
	forbidden := p.authorize(r.Context(), "create")
	if forbidden == nil && !p.counts() {
		p.next.ServeHTTP(w, q.Sent(r.Context()))
		return
	}
	there, err := p.guard.inventory.Exists(r.Context(), a.Server, q.Resource(), q.Info.Namespace, q.Info.Name)
	patches := q.Info.Verb == "patch" && !q.Applies()
	switch {
	case err != nil && (patches || forbidden != nil):
		p.guard.answers.write(apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot see whether %s %q is there, at server %s: %v; nothing was changed; try again",
			a.Resource, q.Info.Name, a.Server, err)), w, r)
	case there:
		p.change(w, r, a)
	case patches: // Kubernetes answers so; another server might create the object
		p.guard.answers.write(apierrors.NewNotFound(q.Resource().GroupResource(), q.Info.Name), w, r)
	case forbidden != nil:
		p.guard.answers.write(forbidden, w, r)
	default: // also if err says that the object cannot be seen
		p.reserve(w, r)
	}
}

// change lets through a request about an object that exists.
func (p *passage) change(w http.ResponseWriter, r *http.Request, a quota.Request) {
	sw := &statusWriter{ResponseWriter: w}
	defer func() {
		if sw.status != http.StatusCreated || !p.counts() {
			return
		}
		// The object was deleted just before, and is made anew. It still counts in
		// the quota, unless a list came in between; then used may pass the limit by one.
		if err := p.guard.reserver.LandedUnreserved(context.WithoutCancel(r.Context()), a); err == nil {
			p.recountSoon()
		}
	}()
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), p.request.Sent(r.Context()))
}

// authorize asks the core server whether the user may use the verb on the request's object.
// The error is meant for the caller.
func (p *passage) authorize(ctx context.Context, verb string) error {
	if !p.server.Guard.Authorization {
		return nil
	}
	i := p.request.Info
	a := authorizer.AttributesRecord{User: p.user, Verb: verb, Path: i.Path, ResourceRequest: i.IsResourceRequest}
	if i.IsResourceRequest {
		a.Namespace, a.APIGroup, a.APIVersion, a.Resource, a.Subresource, a.Name = i.Namespace, i.APIGroup, i.APIVersion, i.Resource, i.Subresource, i.Name
	}
	if err := p.guard.authorize(ctx, a); err != nil {
		return err
	}
	if p.request.Upgrade && i.Subresource != "" && verb != "create" {
		return p.authorize(ctx, "create") // a stream into something that runs: reading it is not all it does
	}
	return nil
}

// logRefusal logs why a create was not let in, unless the reason is an everyday one
// that only concerns the caller.
func (g *Guard) logRefusal(err error, a quota.Request) {
	var over *quota.Exceeded
	if errors.As(err, &over) || errors.Is(err, namespaces.ErrMissing) || errors.Is(err, namespaces.ErrTerminating) {
		return
	}
	g.log.Warn("a create was refused: it could not be reserved", "server", a.Server, "namespace", a.Namespace, "resource", a.Resource, "err", err)
}
