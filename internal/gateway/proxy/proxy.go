// Package proxy is what a request passes on its way to any server: limits by
// user and by server, metrics, an access log and traces. It never looks into a
// body, and never decides where a request goes.
package proxy

import (
	"context"
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
)

// Options are what a Proxy is made of. The zero value is useful: default
// limits, and nothing told to anybody.
type Options struct {
	Limits Limits
	// Access is the access log, a line a request at its end; nil for none.
	Access *slog.Logger
	// Metrics is where the metrics go; nil for nowhere.
	Metrics prometheus.Registerer
	// Tracer makes a span of each request that is sampled; nil for none.
	Tracer trace.TracerProvider
}

// Proxy is the middleware of a gateway. All methods may be called from many
// goroutines.
type Proxy struct {
	opts      Options
	metrics   *metrics
	users     *users
	responder *backend.Responder

	mu    sync.Mutex
	lanes map[string]*lane // by the server's name; guarded by mu
}

// New makes a Proxy. It fails if its metrics are registered already.
func New(opts Options) (*Proxy, error) {
	limits, err := opts.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	opts.Limits = limits
	p := &Proxy{opts: opts, metrics: newMetrics(), users: newUsers(limits), responder: backend.NewResponder(), lanes: map[string]*lane{}}
	if opts.Metrics != nil {
		for _, c := range p.metrics.all() {
			if err := opts.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	return p, nil
}

// passage is what is noted of a request on its way.
type passage struct {
	caller     string // whose limits it counts against: who called, whoever is impersonated
	privileged bool   // of system:masters

	server   string // who it went to; empty: the gateway itself answers
	lane     *lane
	rejected string // by which limit
}

type passageKey struct{}

// Front is what a request meets first, once it is known who calls
// (request.UserFrom) and what the path says (request.RequestInfoFrom): the span,
// the access log, the limits of the caller.
func (p *Proxy) Front(next http.Handler) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		note := passageOf(r)
		k := kindOf(r)
		rec := &recorder{ResponseWriter: w}
		r = r.WithContext(context.WithValue(r.Context(), passageKey{}, note))
		done := false
		defer func() { p.finish(r, rec, note, k, start, done) }()
		switch {
		case isHealth(r):
			next.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
		case !p.users.enter(note.caller, k, start):
			p.reject(rec, r, note, byUser, "the caller has too many requests under way, or sends them too fast")
		default:
			defer p.users.leave(note.caller, k)
			next.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
		}
		done = true
	})
	if p.opts.Tracer == nil {
		return h
	}
	return filters.WithTracing(h, p.opts.Tracer)
}

// Server is what a request to one server passes: that server's limits and
// metrics. The name becomes a label, and the endpoints do that events are of;
// Close takes them off again.
func (p *Proxy) Server(name string, next http.Handler, endpoints ...string) *Server {
	return &Server{proxy: p, lane: p.open(name, endpoints), next: next, endpoints: endpoints}
}

// Server is a handler for one server. See Proxy.Server.
type Server struct {
	proxy     *Proxy
	lane      *lane
	next      http.Handler
	endpoints []string
	once      sync.Once
}

// ServeHTTP forwards a request if the server's limits have room for it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	note, ok := r.Context().Value(passageKey{}).(*passage)
	if !ok {
		// Not behind Front: the limits hold even so.
		note = passageOf(r)
	}
	note.server, note.lane = s.lane.name, s.lane
	k := kindOf(r)
	places := s.lane.places[place{k, note.privileged}]
	if !places.Enter(note.caller) {
		s.proxy.reject(w, r, note, byServer, fmt.Sprintf("has too many %s under way through this gateway, in all or of this caller", k.plural()))
		return
	}
	defer places.Leave(note.caller)
	s.next.ServeHTTP(w, r)
}

// Close says that the server is gone, or served by another handler of its
// name. When the last handler of a name, or with an endpoint, is closed, the
// metrics of that end. Requests under way go on.
func (s *Server) Close() { s.once.Do(func() { s.proxy.close(s.lane, s.endpoints) }) }

// UnderWay is how many requests and streams are under way to all servers.
func (p *Proxy) UnderWay() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0.0
	for _, l := range p.lanes {
		n += l.underWay(short) + l.underWay(stream)
	}
	return int(n)
}

// kind is whether a request has an end of its own.
type kind string

const (
	short  kind = "request"
	stream kind = "stream" // a watch, an upgrade, a log
)

func (k kind) plural() string {
	if k == stream {
		return "watches and streams"
	}
	return "requests"
}

func kindOf(r *http.Request) kind {
	if info, ok := request.RequestInfoFrom(r.Context()); ok && backend.LongRunning(info) || backend.Upgrades(r) {
		return stream
	}
	return short
}

// isHealth says whether a request is a health check of the gateway itself, which
// is answered at once.
func isHealth(r *http.Request) bool {
	return slices.Contains([]string{"/healthz", "/livez", "/readyz"}, r.URL.Path)
}

func passageOf(r *http.Request) *passage {
	u, ok := request.UserFrom(r.Context())
	return &passage{caller: callerOf(r), privileged: ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)}
}

// callerOf is whose limits a request counts against: a user, or an address
// where the gateway knows no user.
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

// reject answers that there is no room.
func (p *Proxy) reject(w http.ResponseWriter, r *http.Request, note *passage, by, why string) {
	note.rejected = by
	status := backend.NewStatus(note.server, http.StatusTooManyRequests, backend.Refused, why+": try again in a second")
	if note.server == "" {
		status.ErrStatus.Message = why + ": try again in a second"
		status.ErrStatus.Details.Group, status.ErrStatus.Details.Kind = "", ""
	}
	status.ErrStatus.Details.RetryAfterSeconds = 1
	p.responder.Respond(w, r, status)
}

// finish tells of a request that has ended; whole says that its answer has.
func (p *Proxy) finish(r *http.Request, rec *recorder, note *passage, k kind, start time.Time, whole bool) {
	took := time.Since(start)
	p.metrics.request(r, rec, note, k, took)
	if p.opts.Access == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", clip(r.URL.Path)), slog.String("server", note.server),
		slog.Int("code", rec.status()), slog.Int64("bytes", rec.bytes), slog.Duration("took", took),
		slog.String("remote", r.RemoteAddr), slog.String("agent", clip(r.UserAgent())),
	}
	if u, ok := request.UserFrom(r.Context()); ok {
		attrs = append(attrs, slog.String("user", clip(u.GetName())))
	}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		attrs = append(attrs, slog.String("verb", info.Verb))
	}
	if note.rejected != "" {
		attrs = append(attrs, slog.String("limit", note.rejected))
	}
	if !whole {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if span := trace.SpanContextFromContext(r.Context()); span.HasTraceID() {
		attrs = append(attrs, slog.String("trace", span.TraceID().String()))
	}
	p.opts.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// clip keeps what callers write short enough for a log.
func clip(s string) string {
	const most = 512
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
