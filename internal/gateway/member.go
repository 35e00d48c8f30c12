package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
)

const (
	// fetchTimeout is how long a server may take to answer with all its discovery.
	fetchTimeout = 20 * time.Second
	// retryPause is the first pause after discovery could not be fetched; it doubles up
	// to the interval between two fetches.
	retryPause = 500 * time.Millisecond
	// connectPauseMost is the longest pause between two attempts to build a connection.
	connectPauseMost = 2 * time.Second
)

// connection is how the gateway reaches a server.
type connection struct {
	backend *backend.Backend
	handler http.Handler // forwards a caller's request, within the server's limits
	close   func()
	renew   func(context.Context) error // keeps the credentials fresh until ctx ends; nil: they never change
}

// member is one registered server, and what is known of it. Only its run asks the server.
// Others read the result, and kick makes run ask at once.
type member struct {
	// server is the server's object. Only the registry's goroutine uses it, and
	// replaces it if a newer one has the same connection.
	server *v1alpha1.RemoteAPIServer
	name   string
	stop   context.CancelFunc         // ends run
	ring   func()                     // tells the registry that something has changed
	kicks  chan struct{}              // a value makes run fetch discovery now; holds one
	conn   atomic.Pointer[connection] // nil until the first connection is built
	gone   context.Context            // ends when the server is no longer registered
	leave  context.CancelFunc         // ends gone

	mu    sync.Mutex
	found found // guarded by mu
}

// shared are the settings and functions of all members.
type shared struct {
	log     *slog.Logger
	connect func(*v1alpha1.RemoteAPIServer) (*connection, error)
	every   time.Duration // between two fetches of a server's discovery
	wantsV2 func() bool   // says whether somebody has asked for OpenAPI v2
	turn    chan struct{} // holds a value while a member checks conformance, which one does at a time
}

// found is what the gateway has found out about a server.
type found struct {
	tried    bool                       // the gateway has tried to fetch discovery, with success or not
	document *discovery.Document        // its discovery; nil until a fetch succeeds
	openAPI  *discovery.OpenAPIDocument // nil until it is fetched
	invalid  error                      // why no connection can be built; nil if one can
	err      error                      // why the last fetch failed; nil if it succeeded

	openAPIv2 bool     // the server was asked for OpenAPI v2
	checked   *checked // the result of its conformance check; nil until it is checked
}

// same says whether f and g say the same.
func (f found) same(g found) bool {
	return f.tried == g.tried && f.openAPIv2 == g.openAPIv2 && f.checked == g.checked && f.document == g.document && f.openAPI == g.openAPI && text(f.invalid) == text(g.invalid) && text(f.err) == text(g.err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func newMember(s *v1alpha1.RemoteAPIServer, ring func()) *member {
	m := &member{server: s, name: s.Name, ring: ring, kicks: make(chan struct{}, 1)}
	m.gone, m.leave = context.WithCancel(context.Background())
	return m
}

// known returns what is known of the server now.
func (m *member) known() found {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.found
}

// note changes what is known, and rings if the result differs.
func (m *member) note(change func(*found)) {
	m.mu.Lock()
	before := m.found
	change(&m.found)
	news := !before.same(m.found)
	m.mu.Unlock()
	if news {
		m.ring()
	}
}

// kick makes run fetch the server's discovery now. It never blocks.
func (m *member) kick() {
	select {
	case m.kicks <- struct{}{}:
	default:
	}
}

// run builds a connection to the server, trying until it can, and then follows the
// server's discovery, checks the server and keeps its credentials fresh, until ctx ends.
func (m *member) run(ctx context.Context, server *v1alpha1.RemoteAPIServer, h shared) {
	log := h.log.With("server", server.Name)
	conn, err := h.connect(server)
	waits := doubling(connectPauseMost/8, connectPauseMost)
	for said := ""; err != nil; conn, err = h.connect(server) {
		if said != err.Error() {
			log.Warn("server cannot be registered", "error", err)
			said = err.Error()
		}
		m.note(func(f *found) { f.invalid, f.tried = err, true })
		if !pause(ctx, waits.Step(), nil) {
			return
		}
	}
	defer conn.close()
	m.conn.Store(conn)
	m.note(func(f *found) { f.invalid, f.tried = nil, false })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return conn.backend.Run(ctx) })
	g.Go(func() error { m.watchOver(ctx, server.Spec.OpenAPIPath, log, h); return nil })
	g.Go(func() error { m.validate(ctx, server, log, h.turn); return nil })
	if conn.renew != nil {
		g.Go(func() error { return conn.renew(ctx) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		log.Error("server is no longer followed", "error", err)
	}
}

// watchOver fetches the server's discovery and OpenAPI again and again until ctx ends.
func (m *member) watchOver(ctx context.Context, openAPIPath string, log *slog.Logger, h shared) {
	retries, said := doubling(retryPause, h.every), ""
	for {
		err := m.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		next := h.every
		if now := text(err); now != said {
			if said = now; now != "" {
				log.Warn("discovery failed; what was known of it stays", "error", err)
			} else {
				log.Info("discovery answers again")
			}
		}
		if err != nil {
			next = retries.Step()
		} else {
			retries = doubling(retryPause, h.every)
			if err := m.fetchOpenAPI(ctx, openAPIPath, h.wantsV2()); err != nil && ctx.Err() == nil {
				log.Debug("OpenAPI not fetched; what was known of it stays", "error", err)
			}
		}
		if !pause(ctx, next, m.kicks) {
			return
		}
	}
}

// fetch fetches the server's discovery once, and notes what it finds.
func (m *member) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	document, err := discovery.Fetch(ctx, m.conn.Load().backend.Own(), m.known().document)
	if name := fmt.Sprintf("%q", m.name); err != nil && !strings.Contains(err.Error(), name) {
		err = fmt.Errorf("server %s: %w", name, err)
	}
	m.note(func(f *found) {
		f.err, f.tried = err, true
		if err == nil {
			f.document = document
		}
	})
	return err
}

// fetchOpenAPI fetches the server's OpenAPI once, v2 only if v2 is set.
func (m *member) fetchOpenAPI(ctx context.Context, path string, v2 bool) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	doc, err := discovery.FetchOpenAPI(ctx, m.conn.Load().backend.Own(), path, v2, m.known().openAPI)
	m.note(func(f *found) {
		f.openAPI = doc
		f.openAPIv2 = f.openAPIv2 || v2
	})
	return err
}

// doubling returns waits that begin at first and double up to most; pause spreads them.
func doubling(first, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Cap: most, Steps: math.MaxInt}
}

// pause waits for about d, or until kick. It returns false if ctx ended.
func pause(ctx context.Context, d time.Duration, kick <-chan struct{}) bool {
	timer := time.NewTimer(d*7/8 + rand.N(d/4+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-kick:
		return ctx.Err() == nil
	}
	return true
}

// renewInterval is how often the gateway's own credentials are read again.
const renewInterval = 2 * time.Second

// connector returns a function that builds connections to servers, with the
// gateway's credentials from the source.
func connector(src source.Source, limits *traffic.Control, opts backend.Options) func(*v1alpha1.RemoteAPIServer) (*connection, error) {
	return func(s *v1alpha1.RemoteAPIServer) (*connection, error) {
		last, err := src.Credentials(s)
		if err != nil {
			return nil, err
		}
		secret, err := backend.NewSecret(last.CertPEM, last.KeyPEM, last.Token)
		if err != nil {
			return nil, err
		}
		held := backend.Hold(secret)
		b, err := backend.New(s.Name, s.Spec, held, opts)
		if err != nil {
			return nil, err
		}
		limited := limits.Limit(s.Name, b, b.Endpoints()...)
		conn := &connection{backend: b, handler: limited, close: limited.Close}
		if s.Spec.Identity.Credentials != nil {
			conn.renew = func(ctx context.Context) error { renew(ctx, src, s, held, last, opts.Log); return nil }
		}
		return conn, nil
	}
}

// renew reads a server's credentials from the source again and again until ctx ends. If
// they differ from last, it sets them in held.
func renew(ctx context.Context, src source.Source, s *v1alpha1.RemoteAPIServer, held *backend.Held, last source.Credentials, log *slog.Logger) {
	failed := ""
	for pause(ctx, renewInterval, nil) {
		next, err := src.Credentials(s)
		if err == nil && !next.Equal(last) {
			var secret backend.Secret
			if secret, err = backend.NewSecret(next.CertPEM, next.KeyPEM, next.Token); err == nil {
				held.Set(secret)
				last = next
				log.Info("credentials renewed", "server", s.Name)
			}
		}
		if now := text(err); now != failed {
			if failed = now; now != "" {
				log.Warn("credentials cannot be renewed; the old ones stay", "server", s.Name, "error", err)
			}
		}
	}
}
