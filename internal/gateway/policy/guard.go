package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/core"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/limitrange"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/upkeep"
)

// The defaults of Config's fields.
const (
	// DefaultNamespace is where ledgers are kept on the core server.
	DefaultNamespace = "xb-gateway"
	// DefaultRequestTimeout is how long a guarded create may take at most.
	DefaultRequestTimeout = 60 * time.Second
	// DefaultGrace is how long after its deadline a create may still make its object.
	DefaultGrace = 60 * time.Second
	// DefaultResync is how often everything is counted.
	DefaultResync = 5 * time.Minute
	// DefaultCacheTTL is how long the core server's answer on a user is remembered.
	DefaultCacheTTL = 10 * time.Second
)

// Config configures a Guard.
type Config struct {
	// Core is a client of the core server, as the gateway itself: docs/policies.md
	// has the ClusterRole that it needs. It should not limit requests a second (QPS
	// -1), because every guarded create waits for it. Required.
	Core kubernetes.Interface
	// Servers has the registered servers. Required.
	Servers servers.Registry
	// Log is required.
	Log *slog.Logger
	// Identity names this gateway for people who read a ledger, by the host's name
	// for example.
	Identity string
	// Namespace is where ledgers are kept on the core server. It is made if it is
	// not there. All gateways over the same servers must use the same one. Whoever may
	// write ConfigMaps in it can pass every quota.
	Namespace string
	// RequestTimeout is how long a guarded create may take. The server is told.
	RequestTimeout time.Duration
	// Grace is how long after its deadline a create may still make its object, at a
	// server that has not noticed that nobody waits for the answer.
	Grace time.Duration
	// Resync is how often everything is counted.
	Resync time.Duration
	// CacheTTL is how long the answer to a SubjectAccessReview is remembered.
	CacheTTL time.Duration
}

// Guard enforces the core server's policies on requests to guarded servers. It can serve
// before Run is called. While the core server does not answer, it refuses the requests that
// depend on it.
type Guard struct {
	servers        servers.Registry
	log            *slog.Logger
	identity       string
	requestTimeout time.Duration
	resync         time.Duration

	core       *core.Server
	reserver   *quota.Reserver
	inventory  *servers.Inventory
	limits     *limitrange.Ranges
	authorizer authorizer.Authorizer
	upkeep     *upkeep.Upkeep
	answers    *answers
	bodies     canonical.Bodies
}

// New makes a Guard. It starts nothing and asks nobody.
func New(cfg Config) (*Guard, error) {
	if cfg.Core == nil || cfg.Servers == nil || cfg.Log == nil {
		return nil, errors.New("a guard needs a core server, the servers and a log")
	}
	setDefault(&cfg.Namespace, DefaultNamespace)
	setDefault(&cfg.RequestTimeout, DefaultRequestTimeout)
	setDefault(&cfg.Grace, DefaultGrace)
	setDefault(&cfg.Resync, DefaultResync)
	setDefault(&cfg.CacheTTL, DefaultCacheTTL)
	if cfg.RequestTimeout < 2*time.Second || cfg.Grace < 0 {
		return nil, fmt.Errorf("a guarded create may take %v, and %v more at the server; want at least 2s and 0s", cfg.RequestTimeout, cfg.Grace)
	}
	auth, err := newAuthorizer(cfg.Core, cfg.CacheTTL)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask the core server about users: %w", err)
	}
	g := &Guard{
		servers: cfg.Servers, log: cfg.Log, identity: cfg.Identity, requestTimeout: cfg.RequestTimeout, resync: cfg.Resync,
		core: core.New(cfg.Core, cfg.Namespace), inventory: servers.NewInventory(cfg.Servers),
		limits: limitrange.New(cfg.Core), authorizer: auth, answers: newAnswers(),
	}
	ledgers := ledger.NewSet(g.core.Ledgers, ledger.RandomPause, func(at ledger.Key) { g.upkeep.Queued(at) })
	keeper := &namespaces.Keeper{Core: g.core.Namespaces, Inventory: g.inventory, Ledgers: ledgers, Pause: ledger.RandomPause}
	counter := quota.NewCounter(g.inventory, ledgers)
	g.reserver = &quota.Reserver{
		Namespaces: keeper, Ledgers: ledgers, Counter: counter, Limits: g.core.Quotas, Pause: ledger.RandomPause, Grace: cfg.Grace,
	}
	g.upkeep = upkeep.New(upkeep.Config{
		Servers: cfg.Servers, Namespaces: keeper, Counter: counter, Ledgers: ledgers, Quotas: g.core.Quotas, Log: cfg.Log,
	})
	return g, g.core.Tell(g.upkeep)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Run watches the core server and keeps the invariants of this package; see package upkeep.
// Any number of gateways may run at once. Run returns when ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	g.upkeep.Run(ctx, g.core, g.resync)
	return nil
}
