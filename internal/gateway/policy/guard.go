package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// What Config's zero values stand for.
const (
	// DefaultNamespace is where ledgers are kept on the core server.
	DefaultNamespace = "xb-gateway"
	// DefaultRequestTime is how long a guarded create may take at most.
	DefaultRequestTime = 60 * time.Second
	// DefaultSettle is how long after that it may still land.
	DefaultSettle = 60 * time.Second
	// DefaultResync is how often what exists is counted anew.
	DefaultResync = 5 * time.Minute
	// DefaultCacheTime is how long the core server's word on a user is kept.
	DefaultCacheTime = 10 * time.Second
)

// Config is what a Guard needs.
type Config struct {
	// Core is the core server, as the gateway itself: docs/policies.md has the
	// ClusterRole that it needs. It should have no limit of its own on requests a
	// second (QPS -1), for every guarded create waits for it. Required.
	Core kubernetes.Interface
	// Servers are those behind the gateway. Required.
	Servers Servers
	// Log is told what people should know. Required.
	Log *slog.Logger
	// Identity is who reserves, for people who read a ledger; the host's name is
	// a good one.
	Identity string
	// Namespace of the core server is where ledgers are kept; it is made if
	// needed. All gateways over the same servers have to agree on it. Whoever may
	// write ConfigMaps in it can pass every quota.
	Namespace string
	// RequestTime is how long a guarded create may take; it is told to the server.
	RequestTime time.Duration
	// Settle is how long after its deadline a create may still be carried out by
	// a server that nobody listens to any more.
	Settle time.Duration
	// Resync is how often what exists is counted anew.
	Resync time.Duration
	// CacheTime is how long the answer to a SubjectAccessReview is remembered.
	CacheTime time.Duration
}

// Guard holds the policies. It serves before Run is called, and while the core
// server is away it refuses what it cannot hold.
type Guard struct {
	servers     Servers
	log         *slog.Logger
	identity    string
	requestTime time.Duration
	resync      time.Duration

	clerk      *clerk
	remote     *remote
	quotas     *coreQuotas
	limits     *limitRanges
	authorizer authorizer.Authorizer
	answers    *answers
	factory    informers.SharedInformerFactory // namespaces and quotas
	ledgers    informers.SharedInformerFactory // the ConfigMaps
	lanes      *lanes
	bodies     canonical.Bodies

	mu  sync.Mutex
	due map[task]bool // what is to be counted anew, whether it seems to need it or not
}

// New prepares a Guard. It starts nothing and asks nobody.
func New(cfg Config) (*Guard, error) {
	if cfg.Core == nil || cfg.Servers == nil || cfg.Log == nil {
		return nil, errors.New("a guard needs a core server, the servers and a log")
	}
	setDefault(&cfg.Namespace, DefaultNamespace)
	setDefault(&cfg.RequestTime, DefaultRequestTime)
	setDefault(&cfg.Settle, DefaultSettle)
	setDefault(&cfg.Resync, DefaultResync)
	setDefault(&cfg.CacheTime, DefaultCacheTime)
	if cfg.RequestTime < 2*time.Second || cfg.Settle < 0 {
		return nil, fmt.Errorf("a guarded create may take %v and settles within %v; want at least 2s and 0s", cfg.RequestTime, cfg.Settle)
	}
	auth, err := newAuthorizer(cfg.Core, cfg.CacheTime)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask the core server about users: %w", err)
	}
	g := &Guard{
		servers: cfg.Servers, log: cfg.Log, identity: cfg.Identity,
		requestTime: cfg.RequestTime, resync: cfg.Resync,
		remote: newRemote(cfg.Servers), authorizer: auth, answers: newAnswers(),
		due: map[task]bool{}, limits: newLimitRanges(cfg.Core),
	}
	g.factory = informers.NewSharedInformerFactory(cfg.Core, 0)
	g.ledgers = informers.NewSharedInformerFactoryWithOptions(cfg.Core, 0, informers.WithNamespace(cfg.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = ledgerLabel }))
	g.lanes = newLanes(g.tend, g.untended)
	g.quotas = &coreQuotas{client: cfg.Core, lister: quotaLister(g.factory)}
	g.clerk = newClerk(
		&configMaps{client: cfg.Core, namespace: cfg.Namespace},
		&coreNamespaces{client: cfg.Core, lister: namespaceLister(g.factory)},
		g.remote, g.quotas)
	g.clerk.settle, g.clerk.tender = cfg.Settle, g.tender
	g.clerk.dirty = func(p place) { g.lanes.after(task{place: p, lane: laneWrite}, writeDelay) }
	return g, g.listen()
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func namespaceLister(f informers.SharedInformerFactory) func(string) (*corev1.Namespace, bool) {
	informer, lister := f.Core().V1().Namespaces().Informer(), f.Core().V1().Namespaces().Lister()
	return func(name string) (*corev1.Namespace, bool) {
		ns, err := lister.Get(name)
		return ns, err == nil && informer.HasSynced()
	}
}

func quotaLister(f informers.SharedInformerFactory) func(string) ([]*corev1.ResourceQuota, bool) {
	informer, lister := f.Core().V1().ResourceQuotas().Informer(), f.Core().V1().ResourceQuotas().Lister()
	return func(namespace string) ([]*corev1.ResourceQuota, bool) {
		all, err := lister.ResourceQuotas(namespace).List(labels.Everything())
		return all, err == nil && informer.HasSynced()
	}
}

// listen has every change on the core server looked at.
func (g *Guard) listen() error {
	_, err1 := g.factory.Core().V1().Namespaces().Informer().AddEventHandler(on(g.sawNamespace))
	_, err2 := g.factory.Core().V1().ResourceQuotas().Informer().AddEventHandler(on(g.sawQuota))
	_, err3 := g.ledgers.Core().V1().ConfigMaps().Informer().AddEventHandler(on(g.sawLedger))
	return errors.Join(err1, err2, err3)
}

// on calls f with every object that came, changed or went.
func on[T any](f func(T)) cache.ResourceEventHandler {
	call := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if t, ok := o.(T); ok {
			f(t)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, o any) { call(o) }, DeleteFunc: call}
}

func (g *Guard) sawNamespace(ns *corev1.Namespace) {
	p := place{ns.Name, string(ns.UID)}
	g.lanes.after(task{place: p}, 0)
	if all, ok := g.quotas.lister(ns.Name); ok {
		g.countNew(p, all)
	}
	for _, server := range g.serversOf(namespaceOf(ns)) {
		g.lanes.after(task{place: p, lane: server}, 0)
	}
}

func (g *Guard) sawQuota(q *corev1.ResourceQuota) {
	ns, ok := g.clerk.namespaces.cached(q.Namespace)
	if !ok {
		return // its namespace's own event finds it
	}
	g.lanes.after(task{place: place{q.Namespace, ns.UID}}, showDelay)
	g.countNew(place{q.Namespace, ns.UID}, []*corev1.ResourceQuota{q})
}

// countNew has what quotas limit counted, where the quotas do not show it yet.
func (g *Guard) countNew(p place, all []*corev1.ResourceQuota) {
	for _, q := range all {
		for r := range limited([]*corev1.ResourceQuota{q}) {
			if _, shown := q.Status.Used[corev1.ResourceName(countPrefix+r)]; shown {
				continue
			}
			if s, ok := g.servers.For(groupResource(r).Group); ok && s.Guard.Quota {
				g.lanes.after(task{place: p, lane: s.Name}, 0)
			}
		}
	}
}

func (g *Guard) sawLedger(cm *corev1.ConfigMap) {
	if p, ok := placeOf(cm.Name); ok {
		g.lanes.after(task{place: p}, showDelay)
	}
}

// serversOf are the servers whose finalizer is on a namespace, among those that
// are registered.
func (g *Guard) serversOf(ns namespace) []string {
	on := map[string]bool{}
	for _, f := range ns.Finalizers {
		on[f] = true
	}
	var found []string
	for _, name := range g.servers.Names() {
		if on[FinalizerFor(name)] {
			found = append(found, name)
		}
	}
	return found
}

// recountSoon has a resource counted anew, for something may have gone.
func (g *Guard) recountSoon(a ask) {
	ns, ok := g.clerk.namespaces.cached(a.Namespace)
	if !ok {
		return // before Run, or no such namespace
	}
	t := task{place: place{a.Namespace, ns.UID}, lane: a.Server.Name}
	g.mu.Lock()
	g.due[t] = true
	g.mu.Unlock()
	g.lanes.after(t, recountDelay)
}

// take says whether a task was due, and makes it not.
func (g *Guard) take(t task) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := g.due[t]
	delete(g.due, t)
	return due
}

// Run watches the core server and keeps what is held true: it settles flights
// of which nobody hears any more, counts what exists, shows it in the quotas,
// and empties namespaces that are being deleted. Any number of gateways may do
// so at once. It returns when ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	defer g.ledgers.Shutdown()
	defer g.factory.Shutdown()
	g.lanes.run(ctx, func() {
		g.factory.Start(ctx.Done())
		g.ledgers.Start(ctx.Done())
		tick := time.NewTicker(g.resync)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				g.lookAtAll()
			}
		}
	})
	return nil
}

// lookAtAll has every ledger and every namespace looked at, and everything
// counted anew.
func (g *Guard) lookAtAll() {
	names := g.servers.Names()
	g.lanes.prune(func(lane string) bool { return slices.Contains(names, lane) })
	for _, o := range g.ledgers.Core().V1().ConfigMaps().Informer().GetStore().List() {
		cm, ok := o.(*corev1.ConfigMap)
		if !ok {
			continue
		}
		p, ok := placeOf(cm.Name)
		if !ok {
			continue
		}
		g.lanes.after(task{place: p}, 0)
		l, err := parseLedger(cm.Data[ledgerKey])
		if err != nil {
			continue
		}
		g.mu.Lock()
		for _, server := range l.servers() {
			g.due[task{place: p, lane: server}] = true
		}
		g.mu.Unlock()
		for _, server := range l.servers() {
			g.lanes.after(task{place: p, lane: server}, 0)
		}
	}
	for _, o := range g.factory.Core().V1().Namespaces().Informer().GetStore().List() {
		if ns, ok := o.(*corev1.Namespace); ok && len(g.serversOf(namespaceOf(ns))) > 0 {
			g.sawNamespace(ns)
		}
	}
	for _, o := range g.factory.Core().V1().ResourceQuotas().Informer().GetStore().List() {
		if q, ok := o.(*corev1.ResourceQuota); ok {
			g.sawQuota(q) // a server may have come since the quota did
		}
	}
}
