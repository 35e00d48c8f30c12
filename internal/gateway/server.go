package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/door"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/policy"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
)

// Config is what a gateway is made of.
type Config struct {
	// Source says which servers there are.
	Source source.Source
	// Listener is where to serve; the gateway closes it.
	Listener net.Listener
	// Cert is what to serve with.
	Cert dynamiccertificates.CertKeyContentProvider
	// ClientCA is whose client certificates are asked for; nil for nobody's.
	ClientCA dynamiccertificates.CAContentProvider
	// Authenticator says who calls. Without it everybody is anonymous, and only
	// servers in PassThrough mode, which see the caller's credentials
	// themselves, know more.
	Authenticator authenticator.Request
	// Authorizer says who may read what is about the gateway itself, and who may
	// impersonate whom where the server does not decide it. Without it, everybody
	// who is known, and nobody.
	Authorizer authorizer.UnconditionalAuthorizer
	// Core is the server whose namespaces, authorization and quotas are held over
	// servers that ask for it in their guard; nil: such servers are refused.
	Core *rest.Config
	// MaxConnections is how many connections callers may have open, in all; an
	// address may have as many as are free. 0 is 10,000, and negative no limit.
	MaxConnections int
	// Limits bound what callers and servers can make the gateway hold.
	Limits traffic.Limits
	// Access is the access log; nil for none.
	Access *slog.Logger
	// RequireConformant keeps out of discovery what is not conformant.
	RequireConformant bool
	// Backend is what all backends share.
	Backend backend.Options
	// CacheFile is where the gateway keeps what it needs to start with when the
	// source is away: servers, and who holds which group. Empty for nowhere.
	CacheFile string
	// Log tells what happens.
	Log *slog.Logger
}

// Server is a gateway.
type Server struct {
	cfg      Config
	log      *slog.Logger
	index    *discovery.Index
	registry *registry
	traffic  *traffic.Control
	guard    *policy.Guard // nil: no policies
	metrics  http.Handler
	ready    chan struct{}
}

// New makes a gateway. It connects to nothing and serves nothing until Run.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Log, index: discovery.NewIndex(), ready: make(chan struct{})}
	numbers := prometheus.NewRegistry()
	numbers.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = promhttp.HandlerFor(numbers, promhttp.HandlerOpts{})
	var err error
	if s.traffic, err = traffic.New(traffic.Options{Limits: cfg.Limits, Access: cfg.Access, Metrics: numbers, Tracer: cfg.Backend.Tracer}); err != nil {
		return nil, err
	}
	opts := cfg.Backend
	opts.Log, opts.Observe, opts.Authorizer = cfg.Log, s.traffic.Observe, cfg.Authorizer
	build := connections(cfg.Source, s.traffic, opts)
	s.registry = newRegistry(cfg.Log, s.index, func(server *v1alpha1.RemoteAPIServer) (*connection, error) {
		if server.Spec.Guard != (v1alpha1.Guard{}) && cfg.Core == nil {
			return nil, errors.New("spec.guard asks for policies of the core server, and this gateway has none: start it with --core-kubeconfig")
		}
		return build(server)
	})
	s.registry.requireConformant = cfg.RequireConformant
	s.registry.cacheFile = cfg.CacheFile
	s.registry.tell = cfg.Source.SetStatus
	if cfg.Core != nil {
		core, err := kubernetes.NewForConfig(cfg.Core)
		if err != nil {
			return nil, fmt.Errorf("reach the core server: %w", err)
		}
		host, _ := os.Hostname()
		if s.guard, err = policy.New(policy.Config{Core: core, Servers: guarded{s.registry}, Log: cfg.Log, Identity: host}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shutdownTime is how long requests have to end once the gateway is told to.
const shutdownTime = 5 * time.Second

// Run serves until ctx ends or a part fails. It serves from the first moment,
// whether or not any server answers. Serving ends first: what is under way needs
// the rest.
func (s *Server) Run(ctx context.Context) error {
	if err := s.recall(); err != nil {
		return err
	}
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, below := errgroup.WithContext(below)
	g.Go(func() error { return s.cfg.Source.Run(below, s.registry.set) })
	g.Go(func() error { return s.registry.run(below) })
	if s.guard != nil {
		g.Go(func() error { return s.guard.Run(below) })
	}
	g.Go(func() error {
		defer stop()
		above, end := context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(below, end)()
		return s.serve(above)
	})
	return g.Wait()
}

// recall begins with what was known when the gateway last ran.
func (s *Server) recall() error {
	if s.cfg.CacheFile == "" {
		return nil
	}
	memory, err := source.Recall(s.cfg.CacheFile)
	if err != nil {
		return err
	}
	s.index.Remember(memory.Held)
	if len(memory.Servers) > 0 {
		s.log.Info("servers known from before", "servers", len(memory.Servers), "file", s.cfg.CacheFile)
		s.registry.set(memory.Servers)
	}
	return nil
}

func (s *Server) serve(ctx context.Context) error {
	listener := door.Limit(s.cfg.Listener, cmp.Or(s.cfg.MaxConnections, 10_000), s.log)
	secure := &genericserver.SecureServingInfo{Listener: listener, Cert: s.cfg.Cert, ClientCA: s.cfg.ClientCA, HTTP2MaxStreamsPerConnection: 1000}
	stopped, done, err := secure.Serve(s.handler(), shutdownTime, ctx.Done())
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	close(s.ready)
	<-done
	<-stopped
	if ctx.Err() == nil {
		return errors.New("serve: the listener was closed")
	}
	return nil
}

// handler is the way of a request, outermost first.
func (s *Server) handler() http.Handler {
	router := newRouter(s)
	var h http.Handler = router
	if s.guard != nil {
		router.reservations = s.guard.Reservations()
		h = s.impersonate(s.guard.Wrap(h))
	}
	h = router.admit(h)
	h = s.traffic.Callers(h)
	h = s.authenticate(h)
	h = backend.KeepCredentials(h)
	h = router.locate(h)
	h = describeRequest(h)
	h = s.survive(h)
	return door.Pace(h, door.Pacing{})
}

// describeRequest puts what the path says into the request's context, as
// Kubernetes reads it.
func describeRequest(next http.Handler) http.Handler {
	resolver := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			refuse(w, r, http.StatusBadRequest, fmt.Sprintf("the request cannot be understood: %v", err))
			return
		}
		next.ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(r.Context(), info)))
	})
}

// survive answers 500 where a handler panics, and lets an aborted answer be one.
func (s *Server) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				s.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p))
				refuse(w, r, http.StatusInternalServerError, "the gateway failed on this request; its log says more")
			}
		}()
		next.ServeHTTP(w, r)
	})
}
