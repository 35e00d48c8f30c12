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
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// Wrap holds the core server's policies over what next does. The request's
// context has to carry its user and, by WithServer, the server that next sends it
// to: one that says none goes on unheld. What next gets is the canonical form of
// the request, and no other was judged. Next must send requests by net/http, with
// the context it gets or one made from it: a request that has seen no connection
// when next returns is taken never to have been sent.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, ok := r.Context().Value(serverKey{}).(Server)
		if !ok || server.Guard == (v1alpha1.Guard{}) {
			next.ServeHTTP(w, r)
			return
		}
		q, err := canonical.Read(r, func(gvr schema.GroupVersionResource) (canonical.Kind, error) { return g.servers.Kind(server.Name, gvr) })
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

// passage is one request on its way through the guard of a server.
type passage struct {
	guard   *Guard
	server  Server
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
	case "delete", "deletecollection", "create": // a create of a subresource may be anything: an eviction, a copy
		defer func() {
			if p.counts() && sw.status < 300 {
				p.guard.recountSoon(p.ask(r))
			}
		}()
	}
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), q.Sent(r.Context()))
}

// counts says whether a create of what the request is about is written down.
func (p *passage) counts() bool {
	return p.request.Kind.Namespaced && (p.server.Guard.Namespaces || p.server.Guard.Quota)
}

// ask is the create that the request may be.
func (p *passage) ask(r *http.Request) ask {
	gvr := p.request.Resource()
	return ask{
		Namespace: p.request.Info.Namespace,
		Server:    p.server,
		Resource:  resourceName(gvr.GroupResource()),
		Version:   gvr.Version,
		By:        p.guard.identity,
		User:      p.user.GetName(),
		Time:      p.guard.timeFor(r.URL.Query()),
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
		p.create(w, r)
	default:
		p.upsert(w, r)
	}
}

// known refuses callers of whom the gateway does not know who they are: places
// are shared out by user.
func (p *passage) known() error {
	if name := p.user.GetName(); name != "" && name != user.Anonymous && !slices.Contains(p.user.GetGroups(), user.AllUnauthenticated) {
		return nil
	}
	return apierrors.NewUnauthorized(fmt.Sprintf("server %q is guarded, and the gateway does not know who you are: "+
		"to write objects there, send a client certificate or a bearer token that the gateway can verify", p.server.Name))
}

// giveBackTime is how long an answer waits at most for its place to be given back.
const giveBackTime = 2 * time.Second

// reserveTime is how long reserving may take of a client's time-out, on top of
// what the client gives the server.
const reserveTime = 5 * time.Second

// timeFor is how long a create may take, with what reserving takes: what the
// client wants, within the gateway's own limit.
func (g *Guard) timeFor(query url.Values) time.Duration {
	if d, err := time.ParseDuration(query.Get("timeout")); err == nil && d > 0 && d < g.requestTime {
		return min(d+reserveTime, g.requestTime)
	}
	return g.requestTime
}

// create lets a request through that creates an object, a dry run too: a server
// may know nothing of dryRun.
func (p *passage) create(w http.ResponseWriter, r *http.Request) {
	g, a := p.guard, p.ask(r)
	if !p.counts() {
		p.next.ServeHTTP(w, p.request.Sent(r.Context()))
		return
	}
	if a.Server.Guard.Quota {
		if err := g.holdLimits(r.Context(), p.request, a); err != nil {
			g.answers.write(err, w, r)
			return
		}
	}
	t, err := g.clerk.reserve(r.Context(), a)
	switch {
	case err != nil:
		g.refused(err, a)
		g.answers.write(statusOfError(err, a), w, r)
	case t == nil: // nothing is limited
		p.next.ServeHTTP(w, p.request.Sent(r.Context()))
	default:
		p.forward(w, r, a, t)
	}
}

// forward sends a request that has been let in, and writes down what became of
// it. It goes on when the caller goes away: who hangs up has the outcome known
// all the same. A crash in here leaves the flight to lapse.
func (p *passage) forward(w http.ResponseWriter, r *http.Request, a ask, t *ticket) {
	g := p.guard
	left := time.Until(t.Deadline)
	if left < time.Second {
		t.returned()
		g.answers.write(apierrors.NewTimeoutError(fmt.Sprintf("reserving a %s took too long; nothing was created at server %s; try again", a.Resource, a.Server.Name), 1), w, r)
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), t.Deadline)
	defer cancel()
	ctx, seen := follow(ctx)
	sent := p.request.Sent(ctx)
	sent.URL = withTimeout(sent.URL, left)

	sw := &statusWriter{ResponseWriter: w}
	defer func() { // also when next panics, as a proxy does to cut a connection
		switch outcomeOf(sw.status, seen.neverSent()) {
		case landed:
			t.landed()
			if sw.status != http.StatusCreated || p.request.DryRun {
				g.recountSoon(a) // it need not have created anything
			}
		case returned:
			t.returned()
			// Written before the caller hears: who tries again finds the place free.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), giveBackTime)
			defer cancel()
			_ = t.book.settle(ctx) // else with the next write
		case unknown:
			g.log.Info("the outcome of a create is unknown: it counts until it is settled",
				"server", a.Server.Name, "namespace", a.Namespace, "resource", a.Resource, "status", sw.status, "flight", t.ID)
		}
	}()
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), sent)
}

// withTimeout tells the server when to give up, so that a request of which
// nobody hears again does not land after its flight has lapsed.
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
	default: // as it was written, to the letter
		next.RawQuery += "&timeout=" + timeout
	}
	return &next
}

// upsert lets a request through that a server may take as a create if its object
// is not there. What is there already is changed without being counted again.
func (p *passage) upsert(w http.ResponseWriter, r *http.Request) {
	q, a := p.request, p.ask(r)
	forbidden := p.authorize(r.Context(), "create")
	if forbidden == nil && !p.counts() {
		p.next.ServeHTTP(w, q.Sent(r.Context()))
		return
	}
	there, err := p.guard.remote.exists(r.Context(), a.Server.Name, q.Resource(), q.Info.Namespace, q.Info.Name)
	patches := q.Info.Verb == "patch" && !q.Applies()
	switch {
	case err != nil && (patches || forbidden != nil):
		p.guard.answers.write(apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot see whether %s %q is there, at server %s: %v; nothing was changed; try again",
			a.Resource, q.Info.Name, a.Server.Name, err)), w, r)
	case there:
		p.change(w, r, a)
	case patches: // as Kubernetes answers; another server might create it
		p.guard.answers.write(apierrors.NewNotFound(q.Resource().GroupResource(), q.Info.Name), w, r)
	case forbidden != nil:
		p.guard.answers.write(forbidden, w, r)
	default: // an object that cannot be seen is taken not to be there
		p.create(w, r)
	}
}

// change lets through a request about an object that is there.
func (p *passage) change(w http.ResponseWriter, r *http.Request, a ask) {
	sw := &statusWriter{ResponseWriter: w}
	defer func() {
		if sw.status != http.StatusCreated || !p.counts() {
			return
		}
		// It was deleted just before. Its place in the quota is still its own,
		// unless a list came in between; then used may pass the limit by it.
		if at, err := p.guard.clerk.place(context.WithoutCancel(r.Context()), a, false); err == nil {
			p.guard.clerk.arrived(at, a.Resource)
			p.guard.recountSoon(a)
		}
	}()
	p.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), p.request.Sent(r.Context()))
}

// authorize asks the core server whether the user may do with the request's
// object what the verb says. The error is one for the caller.
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

func (g *Guard) refused(err error, a ask) {
	var over *exceeded
	if errors.As(err, &over) || errors.Is(err, errNoNamespace) || errors.Is(err, errTerminating) {
		return // everyday refusals are the caller's to read
	}
	g.log.Warn("a create was refused: it could not be reserved", "server", a.Server.Name, "namespace", a.Namespace, "resource", a.Resource, "err", err)
}
