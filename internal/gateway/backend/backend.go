// Package backend forwards requests to one registered API server, as the caller: it keeps
// the connections, and checks the server's endpoints. It never decides which server a
// request goes to, and never follows a redirect.
package backend

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// Options are the same for all backends of a gateway. The zero value is useful.
type Options struct {
	// Log gets changes of endpoints' states; nil: no log.
	Log *slog.Logger
	// Tracer makes spans of requests to the server, and passes them to the server; nil:
	// no spans.
	Tracer trace.TracerProvider
	// Observe is called with each event, from many goroutines; it must not block. nil:
	// nobody observes.
	Observe func(Event)
	// Dial makes connections; by default a net.Dialer with DialTimeout. Proxies that the
	// environment names are not used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	DialTimeout     time.Duration // for TCP, and again for TLS; 5 s
	ResponseTimeout time.Duration // until an answer begins, except for watches and streams; 65 s, past kube-apiserver's own 60 s
	IdleTimeout     time.Duration // for an answer that stops half-way, except for watches and streams; 30 s
	MaxTries        int           // endpoints to try for one request; 3
	MaxOwnBody      int64         // bytes of an answer to the gateway itself, except for watches; 64 MiB
	MaxOwnDecoded   int64         // bytes of such an answer, or of one event of a watch, once decoded; 128 MiB

	Checks   Checks
	Ejection Ejection

	clock func() time.Time // for tests
}

// Checks say how the health of endpoints is checked. Each has a default.
type Checks struct {
	Interval time.Duration // between checks of a healthy endpoint; 10 s
	Retry    time.Duration // between checks of any other endpoint; 1 s
	Timeout  time.Duration // for one check; 3 s
	Failures int           // checks in a row that fail before a healthy endpoint is held to be down; 2
}

// Ejection says when an endpoint is set aside because of callers' requests. Each field has
// a default.
type Ejection struct {
	After int           // requests that fail in a row; 5
	For   time.Duration // how long the first ejection lasts; 10 s. Each further one lasts twice as long, up to 5 min
}

func (o Options) withDefaults() Options {
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.ResponseTimeout = cmp.Or(o.ResponseTimeout, 65*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 30*time.Second)
	o.MaxTries = cmp.Or(o.MaxTries, 3)
	o.MaxOwnBody = cmp.Or(o.MaxOwnBody, 64<<20)
	o.MaxOwnDecoded = cmp.Or(o.MaxOwnDecoded, 128<<20)
	o.Checks.Interval = cmp.Or(o.Checks.Interval, 10*time.Second)
	o.Checks.Retry = cmp.Or(o.Checks.Retry, time.Second)
	o.Checks.Timeout = cmp.Or(o.Checks.Timeout, 3*time.Second)
	o.Checks.Failures = cmp.Or(o.Checks.Failures, 2)
	o.Ejection.After = cmp.Or(o.Ejection.After, 5)
	o.Ejection.For = cmp.Or(o.Ejection.For, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: o.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return o
}

func (o Options) now() time.Time {
	if o.clock != nil {
		return o.clock()
	}
	return time.Now()
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Failed  EventKind = "Failed"  // a request ended without the server's answer
	Retried EventKind = "Retried" // a request goes to another endpoint
	Ejected EventKind = "Ejected" // an endpoint is set aside
	Checked EventKind = "Checked" // a health check has ended
)

// Event is something that happened between the gateway and a server.
type Event struct {
	Kind     EventKind
	Server   string
	Endpoint string          // host and port; empty if no endpoint was chosen
	Reason   Reason          // of the failure
	State    endpoints.State // of Checked
}

// Backend forwards requests to one API server. Its methods are safe for concurrent use.
type Backend struct {
	name        string
	mode        v1alpha1.IdentityMode
	opts        Options
	log         *slog.Logger
	credentials Credentials
	endpoints   *endpoints.Set
	connections *connections
	responder   *Responder

	// The reverse proxy copies bodies with these. Idle watches keep their buffers, so
	// the buffers of streams are small.
	requestBuffers, streamBuffers *buffers
	proxyLog                      *log.Logger // of the reverse proxy
}

// New makes the backend of a server. It does not connect. If creds is nil, the gateway
// itself is anonymous at the server.
func New(name string, spec v1alpha1.RemoteAPIServerSpec, creds Credentials, opts Options) (*Backend, error) {
	if creds == nil {
		creds = &Held{}
	}
	opts = opts.withDefaults()
	b := &Backend{
		name: name, mode: spec.IdentityMode(), opts: opts, log: opts.Log.With("server", name),
		credentials: creds, responder: NewResponder(),
		requestBuffers: &buffers{size: 32 << 10}, streamBuffers: &buffers{size: 8 << 10},
	}
	b.proxyLog = slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)
	bases, err := baseURLs(spec, b.mode)
	if err != nil {
		return nil, fmt.Errorf("register server %q: %w", name, err)
	}
	if err := checkMode(b.mode, creds.Current()); err != nil {
		return nil, fmt.Errorf("register server %q: %w", name, err)
	}
	if b.connections, err = newConnections(spec, opts); err != nil {
		return nil, fmt.Errorf("register server %q: %w", name, err)
	}
	b.endpoints = endpoints.New(bases, endpoints.Ejection{After: opts.Ejection.After, First: opts.Ejection.For, Most: 5 * time.Minute})
	return b, nil
}

func baseURLs(spec v1alpha1.RemoteAPIServerSpec, mode v1alpha1.IdentityMode) ([]*url.URL, error) {
	var bases []*url.URL
	for _, raw := range spec.BaseURLs() {
		u, err := parseBase(raw)
		if err != nil {
			return nil, err
		}
		if u.Scheme == "http" && mode == v1alpha1.FrontProxy {
			return nil, fmt.Errorf("base URL %q: identity.mode FrontProxy needs https, as the server must see the gateway's certificate", raw)
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			return nil, fmt.Errorf("base URL %q: credentials would cross the network in clear; use https (http is for loopback only)", raw)
		}
		bases = append(bases, u)
	}
	if len(bases) == 0 {
		return nil, fmt.Errorf("no base URL is given: set url, endpoints, or both")
	}
	return bases, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func checkMode(mode v1alpha1.IdentityMode, s Secret) error {
	switch mode {
	case v1alpha1.PassThrough:
	case v1alpha1.Impersonate:
		if s.empty() {
			return fmt.Errorf("identity.mode Impersonate, the default, needs credentials that may impersonate: set identity.credentials, or choose another identity.mode")
		}
	case v1alpha1.FrontProxy:
		if s.certificate == nil {
			return fmt.Errorf("identity.mode FrontProxy needs a client certificate that the server's --requestheader-client-ca-file covers: set identity.credentials")
		}
	default:
		return fmt.Errorf("identity.mode is %q; want PassThrough, Impersonate or FrontProxy", mode)
	}
	return nil
}

// Name returns the name that the server is registered by.
func (b *Backend) Name() string { return b.name }

// Health returns the health of the server's endpoints.
func (b *Backend) Health() endpoints.Health { return b.endpoints.Health(b.opts.now()) }

// Endpoints returns the server's endpoints, as Events name them.
func (b *Backend) Endpoints() []string {
	var names []string
	for _, ep := range b.endpoints.All {
		names = append(names, ep.Base.Host)
	}
	return names
}

func (b *Backend) observe(e Event) {
	if b.opts.Observe != nil {
		e.Server = b.name
		b.opts.Observe(e)
	}
}
