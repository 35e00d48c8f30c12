package facade

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/door"
	"github.com/xbernetes/xbernetes/internal/door/secure"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
	"github.com/xbernetes/xbernetes/internal/region/facade/objects"
)

// Config configures a Facade.
type Config struct {
	// Regions are the regions to serve. Credentials in it are not used.
	Regions client.Config
	// Listener is where to serve; the facade closes it.
	Listener net.Listener
	// Cert is the serving certificate.
	Cert dynamiccertificates.CertKeyContentProvider
	// MaxConnections is how many connections all callers together may have open; one
	// address may have as many as are free. 0 stands for 10,000, and a negative number for
	// no limit.
	MaxConnections int
	// Limits bound how many requests one address and one region can have under way.
	Limits traffic.Limits
	// Access is the access log; nil for none.
	Access *slog.Logger
	// Metrics takes the metrics of requests; nil for none. Their label server is a region.
	Metrics prometheus.Registerer
	// Log is required.
	Log *slog.Logger
}

// Facade is one address for all regions.
type Facade struct {
	cfg     Config
	regions *client.Regions    // asked with the token of each caller
	ways    map[string]*way    // to each region, by its name; never changed
	traffic *traffic.Control   // bounds what callers and regions have under way
	objects http.Handler       // serves region.xbernetes.io
	answers *backend.Responder // writes Statuses
}

// way is the way of requests to one region.
type way struct {
	backend *backend.Backend
	limited *traffic.Limited
}

// New makes a facade. It connects to nothing and serves nothing until Run.
func New(cfg Config) (*Facade, error) {
	plain, had := cfg.Regions.Anonymous()
	if len(had) > 0 {
		cfg.Log.Warn("the file of regions leads to credentials, which are not used: each caller brings a token", "of", had)
	}
	f := &Facade{cfg: cfg, ways: map[string]*way{}, answers: backend.NewResponder()}
	var err error
	if f.regions, err = client.Open(plain, nil); err != nil {
		return nil, err
	}
	if f.objects, err = objects.New(f.regions); err != nil {
		return nil, err
	}
	if f.traffic, err = traffic.New(traffic.Options{Limits: cfg.Limits, Access: cfg.Access, Metrics: cfg.Metrics, Namespace: "xb_region_facade"}); err != nil {
		return nil, err
	}
	opts := backend.Options{Log: cfg.Log, Observe: f.traffic.Observe}
	for name, region := range plain.Regions {
		b, err := reach(name, region, opts)
		if err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		f.ways[name] = &way{b, f.traffic.Limit(name, b, b.Endpoints()...)}
	}
	if plain.Central != nil { // nothing is forwarded there, but the library sends it tokens
		if _, err := reach("the central store", plain.Central, opts); err != nil {
			return nil, fmt.Errorf("the central store: %w", err)
		}
	}
	return f, nil
}

// Run serves until ctx ends, whether or not any region answers.
func (f *Facade) Run(ctx context.Context) error {
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, below := errgroup.WithContext(below)
	for _, w := range f.ways {
		parts.Go(func() error { return w.backend.Run(below) })
	}
	parts.Go(func() error {
		defer stop()
		return f.serve(ctx)
	})
	return parts.Wait()
}

func (f *Facade) serve(ctx context.Context) error {
	c := f.cfg
	return secure.Server{Listener: c.Listener, Cert: c.Cert, MaxConnections: c.MaxConnections, Log: c.Log}.Serve(ctx, f.handler())
}

// handler is the way of a request, from top to bottom.
func (f *Facade) handler() http.Handler {
	h := f.traffic.Callers(http.HandlerFunc(f.answer)) // the limits of the caller's address; the access log
	h = f.begin(h)                                     // where the request leads, and what it is there
	h = f.survive(h)                                   // answers 500 if a later step panics
	return door.Pace(h, door.Pacing{})                 // ends a request whose caller is too slow
}

func (f *Facade) survive(next http.Handler) http.Handler {
	return door.Survive(next, f.cfg.Log, func(w http.ResponseWriter, r *http.Request) {
		f.refuse(w, r, http.StatusInternalServerError, "the facade failed on this request; its log says more")
	})
}
