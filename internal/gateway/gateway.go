package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/door/secure"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/policy"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
)

// Config configures a Gateway.
type Config struct {
	// Source says which servers are registered.
	Source source.Source
	// Listener is where to serve; the gateway closes it.
	Listener net.Listener
	// Cert is the gateway's serving certificate.
	Cert dynamiccertificates.CertKeyContentProvider
	// ClientCA is the authority of callers' client certificates; nil: the gateway asks
	// for none.
	ClientCA dynamiccertificates.CAContentProvider
	// Authenticator says who calls. nil: every caller is anonymous to the gateway. A
	// server in PassThrough mode gets the caller's own credentials and may know more.
	Authenticator authenticator.Request
	// Authorizer says who may read the gateway's own pages, and who may impersonate
	// whom at servers that do not decide that themselves. nil: every admitted caller may
	// read; nobody may impersonate.
	Authorizer authorizer.UnconditionalAuthorizer
	// Core is the core server. Its namespaces, authorization and quotas are enforced at
	// servers whose spec.guard asks for that. nil: such servers cannot be registered.
	Core *rest.Config
	// MaxConnections is how many connections all callers together may have open; one
	// address may have as many as are free. 0 stands for 10,000, and a negative
	// number for no limit.
	MaxConnections int
	// Limits bound how many requests callers and servers can have under way.
	Limits traffic.Limits
	// Access is the access log; nil for none.
	Access *slog.Logger
	// RequireConformant keeps servers that are not conformant out of discovery.
	RequireConformant bool
	// Backends are the options of all backends.
	Backends backend.Options
	// CacheFile holds the servers, and which of them holds which group, for a start
	// while the source cannot be read. "": no file.
	CacheFile string
	// Log is required.
	Log *slog.Logger
}

// Gateway is one front for the servers of a source.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	index    *discovery.Index
	registry *registry
	traffic  *traffic.Control
	guard    *policy.Guard // nil if there is no core server
	metrics  http.Handler
}

// New makes a gateway. It connects to nothing and serves nothing until Run.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, log: cfg.Log, index: discovery.NewIndex()}
	numbers := prometheus.NewRegistry()
	numbers.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g.metrics = promhttp.HandlerFor(numbers, promhttp.HandlerOpts{})
	var err error
	if g.traffic, err = traffic.New(traffic.Options{Limits: cfg.Limits, Access: cfg.Access, Metrics: numbers, Tracer: cfg.Backends.Tracer}); err != nil {
		return nil, err
	}
	opts := cfg.Backends
	opts.Log, opts.Observe = cfg.Log, g.traffic.Observe
	connect := connector(cfg.Source, g.traffic, opts)
	g.registry = newRegistry(cfg.Log, g.index, func(server *v1alpha1.RemoteAPIServer) (*connection, error) {
		if server.Spec.Guard != (v1alpha1.Guard{}) && cfg.Core == nil {
			return nil, errors.New("spec.guard asks for policies of the core server, and this gateway has none: start it with --core-kubeconfig")
		}
		return connect(server)
	})
	g.registry.requireConformant = cfg.RequireConformant
	g.registry.cache.file = cfg.CacheFile
	g.registry.tell = cfg.Source.SetStatus
	if cfg.Core != nil {
		core, err := kubernetes.NewForConfig(cfg.Core)
		if err != nil {
			return nil, fmt.Errorf("reach the core server: %w", err)
		}
		host, _ := os.Hostname()
		if g.guard, err = policy.New(policy.Config{Core: core, Servers: policyView{g.registry}, Log: cfg.Log, Identity: host}); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Run serves until ctx ends or a part of the gateway fails. It serves at once,
// whether or not any server answers. When ctx ends, it ends serving before the other
// parts, because requests under way need those.
func (g *Gateway) Run(ctx context.Context) error {
	if err := g.recall(); err != nil {
		return err
	}
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, below := errgroup.WithContext(below)
	parts.Go(func() error { return g.cfg.Source.Run(below, g.registry.set) })
	parts.Go(func() error { return g.registry.run(below) })
	if g.guard != nil {
		parts.Go(func() error { return g.guard.Run(below) })
	}
	parts.Go(func() error {
		defer stop()
		above, end := context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(below, end)()
		return g.serve(above)
	})
	return parts.Wait()
}

// recall reads the cache file of the gateway's last run.
func (g *Gateway) recall() error {
	if g.cfg.CacheFile == "" {
		return nil
	}
	memory, err := source.Recall(g.cfg.CacheFile)
	if err != nil {
		return err
	}
	g.index.Remember(memory.Held)
	if len(memory.Servers) > 0 {
		g.log.Info("servers known from before", "servers", len(memory.Servers), "file", g.cfg.CacheFile)
		g.registry.set(memory.Servers)
	}
	return nil
}

func (g *Gateway) serve(ctx context.Context) error {
	c := g.cfg
	return secure.Server{Listener: c.Listener, Cert: c.Cert, ClientCA: c.ClientCA, MaxConnections: c.MaxConnections, Log: c.Log}.Serve(ctx, g.handler())
}
