// Package traffic bounds and records the requests that pass a gateway: it holds
// them to the limits of their caller and of the server they go to, and tells
// metrics, the access log and traces of them. It never looks into a body, never
// forwards a request, and never decides where one goes.
package traffic

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

// Options configure a Control. With the zero value the limits are the default
// ones, and nothing is recorded.
type Options struct {
	Limits Limits
	// Access is the access log: one line for each request, when it ends. nil for none.
	Access *slog.Logger
	// Metrics is where the metrics are registered; nil for nowhere.
	Metrics prometheus.Registerer
	// Namespace begins the metrics' names; empty stands for xbernetes_gateway.
	Namespace string
	// Tracer makes a span for each request that is sampled; nil for none.
	Tracer trace.TracerProvider
}

// Control holds the requests of one gateway to its limits, and records them. All
// methods may be called from many goroutines.
type Control struct {
	opts      Options
	metrics   *metrics
	users     *users
	responder *backend.Responder

	mu      sync.Mutex
	targets map[string]*target // by the server's name; guarded by mu
}

// New makes a Control. It fails if its metrics are registered already.
func New(opts Options) (*Control, error) {
	limits, err := opts.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	opts.Limits = limits
	c := &Control{opts: opts, metrics: newMetrics(cmp.Or(opts.Namespace, "xbernetes_gateway")), users: newUsers(limits), responder: backend.NewResponder(), targets: map[string]*target{}}
	if opts.Metrics != nil {
		for _, m := range c.metrics.all() {
			if err := opts.Metrics.Register(m); err != nil {
				return nil, fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	return c, nil
}

// Callers applies the limits of the caller, and records each request when it
// ends. The request must have a Call, and its context the user (request.UserFrom).
func (c *Control) Callers(next http.Handler) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		note, k := noteOf(r), kindOf(r)
		rec := &recorder{ResponseWriter: w}
		done := false
		defer func() { c.finish(r, rec, note, k, start, done) }()
		switch {
		case isHealth(r):
			next.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
		case !c.users.enter(note.Caller, k, start):
			c.reject(rec, r, note, byUser, "the caller has too many requests under way, or sends them too fast")
		default:
			defer c.users.leave(note.Caller, k)
			next.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
		}
		done = true
	})
	if c.opts.Tracer == nil {
		return h
	}
	return filters.WithTracing(h, c.opts.Tracer)
}

// Limit applies the limits of one server to the requests that next sends there.
// The name becomes a label of metrics, and so do the endpoints; Close takes the
// labels off again.
func (c *Control) Limit(name string, next http.Handler, endpoints ...string) *Limited {
	return &Limited{control: c, target: c.open(name, endpoints), next: next, endpoints: endpoints}
}

// Limited is the way to one server, within that server's limits. See Control.Limit.
type Limited struct {
	control   *Control
	target    *target
	next      http.Handler
	endpoints []string
	once      sync.Once
}

// ServeHTTP lets a request through to next if the server's limits have room for it.
func (s *Limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	note := noteOf(r)
	note.Server = s.target.name
	k := kindOf(r)
	places := s.target.places[class{k, note.Privileged}]
	if !places.Enter(note.Caller) {
		s.control.reject(w, r, note, byServer, fmt.Sprintf("has too many %s under way through this gateway, in all or of this caller", k.plural()))
		return
	}
	defer places.Leave(note.Caller)
	s.next.ServeHTTP(w, r)
}

// Close must be called when the server is gone, or another Limited of its name
// takes over. The metrics of a name, or of an endpoint, end when the last Limited
// that has it is closed. Requests under way go on.
func (s *Limited) Close() { s.once.Do(func() { s.control.close(s.target, s.endpoints) }) }

// UnderWay is how many requests and streams are under way to all servers.
func (c *Control) UnderWay() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0.0
	for _, t := range c.targets {
		n += t.underWay(short) + t.underWay(stream)
	}
	return int(n)
}

// kind says whether a request ends by itself.
type kind string

const (
	short  kind = "request" // it ends with its answer
	stream kind = "stream"  // a watch, an upgrade or a log ends when somebody ends it
)

func (k kind) plural() string {
	if k == stream {
		return "watches and streams"
	}
	return "requests"
}

func kindOf(r *http.Request) kind {
	if backend.LongRunning(call.Of(r).Info) || backend.Upgrades(r) {
		return stream
	}
	return short
}

// isHealth says whether a request is a health check of the gateway itself. The
// gateway answers those at once, so no limit applies to them.
func isHealth(r *http.Request) bool {
	return slices.Contains([]string{"/healthz", "/livez", "/readyz"}, r.URL.Path)
}

// noteOf returns what the request's Call says of traffic. The first handler of this
// package that a request meets sets who calls, before anything is impersonated.
func noteOf(r *http.Request) *call.Traffic {
	note := &call.Of(r).Traffic
	if note.Caller == "" {
		u, ok := request.UserFrom(r.Context())
		note.Caller, note.Privileged = callerOf(r), ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
	}
	return note
}

// callerOf names the caller whose limits a request counts against: the user, or
// the address if the gateway knows no user.
func callerOf(r *http.Request) string {
	if u, ok := request.UserFrom(r.Context()); ok && u.GetName() != "" && u.GetName() != user.Anonymous && !slices.Contains(u.GetGroups(), user.AllUnauthenticated) {
		return "user " + u.GetName()
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address " + host
}

// reject answers with 429, because the limit named by says so.
func (c *Control) reject(w http.ResponseWriter, r *http.Request, note *call.Traffic, by, why string) {
	note.RejectedBy = by
	status := backend.NewStatus(note.Server, http.StatusTooManyRequests, backend.Refused, why+": try again in a second")
	if note.Server == "" {
		status.ErrStatus.Message = why + ": try again in a second"
		status.ErrStatus.Details.Group, status.ErrStatus.Details.Kind = "", ""
	}
	status.ErrStatus.Details.RetryAfterSeconds = 1
	c.responder.Respond(w, r, status)
}

// finish records a request that has ended; whole is false if its answer broke off.
func (c *Control) finish(r *http.Request, rec *recorder, note *call.Traffic, k kind, start time.Time, whole bool) {
	took := time.Since(start)
	c.count(r, rec, note, k, took)
	if c.opts.Access == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", clip(r.URL.Path)), slog.String("server", note.Server),
		slog.Int("code", rec.status()), slog.Int64("bytes", rec.bytes), slog.Duration("took", took),
		slog.String("remote", r.RemoteAddr), slog.String("agent", clip(r.UserAgent())),
	}
	if u, ok := request.UserFrom(r.Context()); ok {
		attrs = append(attrs, slog.String("user", clip(u.GetName())))
	}
	attrs = append(attrs, slog.String("verb", call.Of(r).Info.Verb))
	if note.RejectedBy != "" {
		attrs = append(attrs, slog.String("limit", note.RejectedBy))
	}
	if !whole {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if span := trace.SpanContextFromContext(r.Context()); span.HasTraceID() {
		attrs = append(attrs, slog.String("trace", span.TraceID().String()))
	}
	c.opts.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// clip shortens a caller's text to the length that a log line may have.
func clip(s string) string {
	const most = 512
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
