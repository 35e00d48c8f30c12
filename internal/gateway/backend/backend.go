// Package backend is one registered API server: the checks of its endpoints, the
// connections to it, and how a request reaches it as the caller.
// It never decides which server a request belongs to, and never follows a
// server anywhere else.
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

// Options are what all backends of a gateway share. The zero value is useful.
type Options struct {
	// Log tells of endpoints that come and go; nil for nowhere.
	Log *slog.Logger
	// Tracer makes spans of requests to the server, and tells the server of
	// them; nil for none.
	Tracer trace.TracerProvider
	// Observe is told what happens, from many goroutines; it must not block. nil
	// for nobody.
	Observe func(Event)
	// Dial makes connections; by default a net.Dialer with DialTimeout. Proxies
	// of the environment are not used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	DialTimeout     time.Duration // for TCP, and again for TLS; 5 s
	ResponseTimeout time.Duration // until an answer begins, watches and streams apart; 65 s, past kube-apiserver's own 60 s
	IdleTimeout     time.Duration // for an answer that stops half-way, watches and streams apart; 30 s
	MaxTries        int           // endpoints to try for one request; 3
	MaxOwnBody      int64         // bytes of an answer to the gateway itself, watches apart; 64 MiB
	MaxOwnDecoded   int64         // bytes of such an answer, or of one event of a watch, once decoded; 128 MiB

	CheckInterval time.Duration // between health checks of an endpoint that is well; 10 s
	RetryInterval time.Duration // and of one that is not; 1 s
	CheckTimeout  time.Duration // for one health check; 3 s
	CheckFailures int           // checks in a row that fail before a healthy endpoint is held to be down; 2

	EjectAfter int           // callers' requests that fail in a row before an endpoint is set aside; 5
	EjectFor   time.Duration // the first time; it doubles, up to 5 min; 10 s

	clock func() time.Time // for tests
}

func (o Options) withDefaults() Options {
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.ResponseTimeout = cmp.Or(o.ResponseTimeout, 65*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 30*time.Second)
	o.MaxTries = cmp.Or(o.MaxTries, 3)
	o.MaxOwnBody = cmp.Or(o.MaxOwnBody, 64<<20)
	o.MaxOwnDecoded = cmp.Or(o.MaxOwnDecoded, 128<<20)
	o.CheckInterval = cmp.Or(o.CheckInterval, 10*time.Second)
	o.RetryInterval = cmp.Or(o.RetryInterval, time.Second)
	o.CheckTimeout = cmp.Or(o.CheckTimeout, 3*time.Second)
	o.CheckFailures = cmp.Or(o.CheckFailures, 2)
	o.EjectAfter = cmp.Or(o.EjectAfter, 5)
	o.EjectFor = cmp.Or(o.EjectFor, 10*time.Second)
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

// EventKind is what an Event tells of.
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
	Endpoint string          // host and port; empty where none was chosen
	Reason   Reason          // of what failed
	State    endpoints.State // of Checked
}

// Backend is one API server. All methods may be called from many goroutines.
type Backend struct {
	name        string
	mode        v1alpha1.IdentityMode
	opts        Options
	log         *slog.Logger
	credentials Credentials
	endpoints   *endpoints.Set
	connections *connections
	responder   *Responder

	// What comes without a length is flushed to the caller at once. Idle watches
	// hold on to their buffers, so those of streams are small.
	requestBuffers, streamBuffers *buffers
	proxyLog                      *log.Logger // of the reverse proxy
}

// New makes the backend of a server. It connects to nothing. Without creds the
// gateway itself is anonymous there.
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
	b.endpoints = endpoints.New(bases, endpoints.Ejection{After: opts.EjectAfter, First: opts.EjectFor, Most: 5 * time.Minute})
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

// Name is the server's name, as registered.
func (b *Backend) Name() string { return b.name }

// Health is what is known of the server now.
func (b *Backend) Health() endpoints.Health { return b.endpoints.Health(b.opts.now()) }

// Endpoints are its endpoints, as Events name them.
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
