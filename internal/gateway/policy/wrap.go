package policy

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Wrap holds the core server's policies over what next does. The request's
// context has to carry its RequestInfo, its user and, by WithServer, the server
// that next sends it to: one that says none goes on unheld. Next must send
// requests by net/http, with the context it gets or one made from it: a request
// that has seen no connection when next returns is taken never to have been sent.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !guarded(info) {
			next.ServeHTTP(w, r)
			return
		}
		server, ok := r.Context().Value(serverKey{}).(Server)
		if !ok || server.Guard == (Rules{}) {
			next.ServeHTTP(w, r)
			return
		}
		a := ask{
			Namespace: info.Namespace,
			Server:    server,
			Resource:  resourceName(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}),
			Version:   info.APIVersion,
			By:        g.identity,
			Time:      g.timeFor(r.URL.Query()),
		}
		switch {
		case info.Verb == "create":
			g.create(w, r, next, info, a)
		case info.Verb == "update", info.Verb == "patch" && isApply(r):
			g.upsert(w, r, next, info, a)
		case info.Verb == "delete", info.Verb == "deletecollection":
			sw := &statusWriter{ResponseWriter: w}
			defer func() {
				if sw.status < 300 {
					g.recountSoon(a)
				}
			}()
			next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// giveBackTime is how long an answer waits at most for its place to be given back.
const giveBackTime = 2 * time.Second

// guarded says whether a request is about whole objects in a namespace.
func guarded(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.Namespace != "" && info.Subresource == "" &&
		!(info.APIGroup == "" && info.Resource == "namespaces")
}

// isApply says whether a patch is a server-side apply, which may create.
func isApply(r *http.Request) bool {
	switch mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType {
	case "application/apply-patch+yaml", "application/apply-patch+cbor":
		return true
	default:
		return false
	}
}

// isDryRun says whether a request changes nothing. A value that Kubernetes does
// not know is left to the server to refuse, and held like any other create.
func isDryRun(query url.Values) bool {
	values := query["dryRun"]
	for _, v := range values {
		if v != "All" {
			return false
		}
	}
	return len(values) > 0
}

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

// create lets a request through that creates an object.
func (g *Guard) create(w http.ResponseWriter, r *http.Request, next http.Handler, info *request.RequestInfo, a ask) {
	if err := g.admitUser(r.Context(), info, a); err != nil {
		g.answers.write(err, w, r)
		return
	}
	if a.Server.Guard.Quota {
		if err := g.holdLimits(r, info, a); err != nil {
			g.answers.write(err, w, r)
			return
		}
	}
	if isDryRun(r.URL.Query()) {
		if err := g.clerk.rehearse(r.Context(), a); err != nil {
			g.answers.write(statusOfError(err, a), w, r)
			return
		}
		next.ServeHTTP(w, r)
		return
	}
	t, err := g.clerk.reserve(r.Context(), a)
	if err != nil {
		g.refused(err, a)
		g.answers.write(statusOfError(err, a), w, r)
		return
	}
	if t == nil { // nothing is limited
		next.ServeHTTP(w, r)
		return
	}
	g.forward(w, r, next, a, t)
}

// forward sends a request that has been let in, and writes down what became of
// it. A crash in here leaves the flight to lapse.
func (g *Guard) forward(w http.ResponseWriter, r *http.Request, next http.Handler, a ask, t *ticket) {
	left := time.Until(t.Deadline)
	if left < time.Second {
		t.returned()
		g.answers.write(apierrors.NewTimeoutError(fmt.Sprintf("reserving a %s took too long; nothing was created at server %s; try again", a.Resource, a.Server.Name), 1), w, r)
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), t.Deadline)
	defer cancel()
	ctx, seen := follow(ctx)
	sent := r.WithContext(ctx)
	sent.URL = withTimeout(r.URL, left)

	sw := &statusWriter{ResponseWriter: w}
	defer func() { // also when next panics, as a proxy does to cut a connection
		switch outcomeOf(sw.status, seen.neverSent()) {
		case landed:
			t.landed()
			if sw.status != http.StatusCreated {
				g.recountSoon(a) // a 200 or 202 need not have created anything
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
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), sent)
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

// upsert lets a request through that creates its object if it is not there.
// What is there already is changed without being counted again.
func (g *Guard) upsert(w http.ResponseWriter, r *http.Request, next http.Handler, info *request.RequestInfo, a ask) {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	there, err := g.remote.exists(r.Context(), a.Server.Name, gvr, a.Namespace, info.Name)
	if err != nil {
		g.log.Debug("whether an object exists cannot be seen: it is taken not to", "server", a.Server.Name, "err", err)
	}
	if err != nil || !there {
		g.create(w, r, next, info, a)
		return
	}
	sw := &statusWriter{ResponseWriter: w}
	defer func() {
		if sw.status != http.StatusCreated || isDryRun(r.URL.Query()) {
			return
		}
		// It was deleted just before. Its place in the quota is still its own,
		// unless a list came in between; then used may pass the limit by it.
		if p, err := g.clerk.place(context.WithoutCancel(r.Context()), a, false); err == nil {
			g.clerk.arrived(p, a.Resource)
		}
	}()
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(sw), r)
}

// admitUser asks the core server whether the user may create this.
func (g *Guard) admitUser(ctx context.Context, info *request.RequestInfo, a ask) error {
	if !a.Server.Guard.Authorization {
		return nil
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("nobody has said who asks")
	}
	return g.authorize(ctx, u, authorizer.AttributesRecord{
		Verb: "create", Namespace: info.Namespace, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Resource: info.Resource, Name: info.Name, Path: info.Path,
	})
}

func (g *Guard) refused(err error, a ask) {
	var over *exceeded
	if errors.As(err, &over) || errors.Is(err, errNoNamespace) || errors.Is(err, errTerminating) {
		return // everyday refusals are the caller's to read
	}
	g.log.Warn("a create was refused: it could not be reserved", "server", a.Server.Name, "namespace", a.Namespace, "resource", a.Resource, "err", err)
}
