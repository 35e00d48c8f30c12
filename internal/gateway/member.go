package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
)

const (
	// fetchTime is how long a server may take to tell its discovery.
	fetchTime = 20 * time.Second
	// retryTime is the first pause after a failure; it doubles up to the
	// interval between looks.
	retryTime = 500 * time.Millisecond
	// invalidTime is the longest pause between two attempts to make a way to a server.
	invalidTime = 2 * time.Second
)

// connection is a way to a server, with what keeps its credentials fresh.
type connection struct {
	backend *backend.Backend
	handler http.Handler // forwards a caller's request
	close   func()
	renew   func(context.Context) error // nil: nothing to renew
}

// member is one server, and what is known of it.
type member struct {
	server *v1alpha1.RemoteAPIServer // the registry's own, which may replace it by one that is reached alike
	name   string
	stop   context.CancelFunc
	ring   func()
	kicks  chan struct{} // asks for a look now; holds one
	way    atomic.Pointer[connection]
	gone   context.Context // ends, by leave, once the server is registered no more
	leave  context.CancelFunc

	mu    sync.Mutex
	found found
}

// household is what all members share.
type household struct {
	log     *slog.Logger
	build   func(*v1alpha1.RemoteAPIServer) (*connection, error)
	every   time.Duration // between two looks at a server's discovery
	wantsV2 func() bool   // somebody has asked for OpenAPI v2
	turn    chan struct{} // whose turn it is to be checked; holds one
}

// found is what the last looks at a server brought.
type found struct {
	tried    bool // looked at least once
	document *discovery.Document
	openAPI  *discovery.OpenAPIDocument
	invalid  error // there is no way to the server
	err      error // the last look failed

	openAPIv2 bool     // asked for OpenAPI v2 once
	checked   *checked // nil: not yet
}

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

func (m *member) look() found {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.found
}

// note changes what is known, and rings if that is news.
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

// kick asks for a look at the server's discovery soon.
func (m *member) kick() {
	select {
	case m.kicks <- struct{}{}:
	default:
	}
}

// run keeps the server looked at until ctx ends.
func (m *member) run(ctx context.Context, server *v1alpha1.RemoteAPIServer, h household) {
	log := h.log.With("server", server.Name)
	way, err := h.build(server)
	wait := invalidTime / 16
	for said := ""; err != nil; way, err = h.build(server) {
		if said != err.Error() {
			log.Warn("server cannot be registered", "error", err)
			said = err.Error()
		}
		m.note(func(f *found) { f.invalid, f.tried = err, true })
		if wait = min(2*wait, invalidTime); !pause(ctx, wait, nil) {
			return
		}
	}
	defer way.close()
	m.way.Store(way)
	m.note(func(f *found) { f.invalid, f.tried = nil, false })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return way.backend.Run(ctx) })
	g.Go(func() error { m.watchOver(ctx, server.Spec.OpenAPIPath, log, h); return nil })
	g.Go(func() error { m.validate(ctx, server, log, h.turn); return nil })
	if way.renew != nil {
		g.Go(func() error { return way.renew(ctx) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		log.Error("server is no longer followed", "error", err)
	}
}

// watchOver asks for the server's discovery again and again.
func (m *member) watchOver(ctx context.Context, openAPIPath string, log *slog.Logger, h household) {
	retry, said := retryTime, ""
	for {
		err := m.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := h.every
		if now := text(err); now != said {
			if said = now; now != "" {
				log.Warn("discovery failed; what was known of it stays", "error", err)
			} else {
				log.Info("discovery answers again")
			}
		}
		if err != nil {
			wait, retry = retry, min(2*retry, h.every)
		} else {
			retry = retryTime
			if err := m.fetchOpenAPI(ctx, openAPIPath, h.wantsV2()); err != nil && ctx.Err() == nil {
				log.Debug("OpenAPI not fetched; what was known of it stays", "error", err)
			}
		}
		if !pause(ctx, wait, m.kicks) {
			return
		}
	}
}

func (m *member) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	document, err := discovery.Fetch(ctx, m.way.Load().backend.Own(), m.look().document)
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

func (m *member) fetchOpenAPI(ctx context.Context, path string, v2 bool) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	doc, err := discovery.FetchOpenAPI(ctx, m.way.Load().backend.Own(), path, v2, m.look().openAPI)
	m.note(func(f *found) {
		f.openAPI = doc
		f.openAPIv2 = f.openAPIv2 || v2
	})
	return err
}

// pause waits for about d, or for a kick; it says whether to go on.
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

// renewTime is how often the gateway's own credentials are read again.
const renewTime = 2 * time.Second

// connections make ways to servers, with the credentials that the source has
// for them now and those that it will have.
func connections(src source.Source, limits *traffic.Control, opts backend.Options) func(*v1alpha1.RemoteAPIServer) (*connection, error) {
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
		way := &connection{backend: b, handler: limited, close: limited.Close}
		if s.Spec.Identity.Credentials == nil {
			return way, nil
		}
		way.renew = func(ctx context.Context) error {
			log := opts.Log.With("server", s.Name)
			failed := ""
			for pause(ctx, renewTime, nil) {
				next, err := src.Credentials(s)
				if err == nil && !next.Equal(last) {
					if secret, err = backend.NewSecret(next.CertPEM, next.KeyPEM, next.Token); err == nil {
						held.Set(secret)
						last = next
						log.Info("credentials renewed")
					}
				}
				if now := text(err); now != failed {
					if failed = now; now != "" {
						log.Warn("credentials cannot be renewed; the old ones stay", "error", err)
					}
				}
			}
			return nil
		}
		return way, nil
	}
}
