package quota

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed of the simulation only, and show what happens")
	simSeeds = flag.Int("sim.seeds", 150, "how many seeds of the simulation to run")
)

// pinned are seeds that once showed a fault.
var pinned = []uint64{}

// TestSimulation runs gateways against a core server and servers that fail,
// fail but apply, apply late, and crash between any two calls, and looks at the
// invariants of policy/doc.go after each.
func TestSimulation(t *testing.T) {
	seeds := slices.Clone(pinned)
	for s := range uint64(*simSeeds) {
		seeds = append(seeds, s+1)
	}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one order, whatever the machine
	var sum tally
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.run(800)
			w.drain()
			sum.add(w.tally)
		})
		if t.Failed() {
			t.Fatalf("replay with: go test ./internal/gateway/policy/quota -run TestSimulation -sim.seed=%d", seed)
		}
	}
	t.Logf("%d seeds: %+v", len(seeds), sum)
	if *simSeed == 0 {
		sum.check(t)
	}
}

// TestSimulationReplays holds the simulation to what makes it useful: a seed
// does the same every time.
func TestSimulationReplays(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has goroutines run in an order that chance decides")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := range uint64(10) {
		var first []string
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed+1000)
				w.run(300)
				w.drain()
				if first == nil {
					first = w.trace
				} else if !slices.Equal(first, w.trace) {
					t.Errorf("seed %d went two ways", seed+1000)
				}
			})
		}
	}
}

// tally shows that the simulation gets everywhere.
type tally struct {
	Created, Refused, Denied, Unknown, Late, Crashed, Expired, Emptied, Released int
}

func (s *tally) add(o tally) {
	s.Created += o.Created
	s.Refused += o.Refused
	s.Denied += o.Denied
	s.Unknown += o.Unknown
	s.Late += o.Late
	s.Crashed += o.Crashed
	s.Expired += o.Expired
	s.Emptied += o.Emptied
	s.Released += o.Released
}

func (s *tally) check(t *testing.T) {
	if min(s.Created, s.Refused, s.Denied, s.Unknown, s.Late, s.Crashed, s.Expired, s.Emptied, s.Released) == 0 {
		t.Errorf("the simulation does not get everywhere: %+v", *s)
	}
}

const (
	simGrace = 30 * time.Second
	simTime  = 20 * time.Second
	simHard  = 4
)

// Each server serves one resource.
var simServers = map[string]string{"widgets.a": "A", "gadgets.b": "B"}

// parked is a call that waits for the driver to say what becomes of it.
type parked struct {
	gw      *simGateway
	key     string // tells calls apart, the same in every run
	what    string
	effect  func() error // what the other side does
	faulty  bool         // may fail
	until   time.Time    // when it cannot land any more; zero if the version guards it
	pending func(n int)  // told when it may land, +1, and no more, -1
	answer  chan error
}

// flyingKey names what a request that was sent may create.
type flyingKey struct{ ns, uid, server, resource string }

type simGateway struct {
	id int
	*Reserver
	ctx    context.Context
	stop   context.CancelFunc
	dead   bool
	asks   int
	active map[string]int // calls made by each actor, for keys
}

type world struct {
	t     *testing.T
	rng   *rand.Rand
	trace []string
	tally tally

	mu         sync.Mutex
	ledgers    map[ledger.Key][2]string // text, version
	versions   int
	namespaces map[string]namespaces.Namespace
	cached     map[string]namespaces.Namespace // what gateways last heard
	objects    map[string]int                  // server|namespace|resource
	calls      []*parked
	late       []*parked
	flying     map[flyingKey]int
	down       map[string]bool
	kind       bool // no more faults
	faults     int  // one call in so many has a chance of each fault

	gateways []*simGateway
	next     int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)),
		ledgers: map[ledger.Key][2]string{}, namespaces: map[string]namespaces.Namespace{}, cached: map[string]namespaces.Namespace{},
		objects: map[string]int{}, flying: map[flyingKey]int{}, down: map[string]bool{},
	}
	w.faults = pick(w.rng, []int{14, 40, 200})
	for range 2 {
		w.gateways = append(w.gateways, w.gateway())
	}
	t.Cleanup(func() {
		for _, g := range w.gateways {
			w.crash(g)
		}
	})
	w.makeNamespace("x")
	w.makeNamespace("y")
	return w
}

func (w *world) gateway() *simGateway {
	w.next++
	g := &simGateway{id: w.next, active: map[string]int{}}
	g.ctx, g.stop = context.WithCancel(context.Background())
	p := &port{w: w, gw: g}
	ledgers := ledger.NewSet(p, p.pause, func(ledger.Key) {})
	g.Reserver = &Reserver{
		Namespaces: &namespaces.Keeper{Core: simNamespaces{p}, Inventory: p, Ledgers: ledgers, Pause: p.pause},
		Ledgers:    ledgers, Counter: NewCounter(p, ledgers), Limits: p, Pause: p.pause, Grace: simGrace,
	}
	return g
}

func (w *world) makeNamespace(name string) {
	w.versions++
	w.namespaces[name] = namespaces.Namespace{UID: fmt.Sprintf("uid%d", w.versions), Finalizers: []string{"kubernetes"}, Version: fmt.Sprint(w.versions)}
}

// port is a gateway's way to everything outside.
type port struct {
	w  *world
	gw *simGateway
}

type actorKey struct{}

// call parks until the driver says how it ends.
func (p *port) call(ctx context.Context, what string, faulty bool, until time.Time, pending func(int), effect func() error) error {
	w := p.w
	w.mu.Lock()
	if p.gw.dead {
		w.mu.Unlock()
		runtime.Goexit()
	}
	actor, _ := ctx.Value(actorKey{}).(string)
	p.gw.active[actor]++
	c := &parked{
		gw: p.gw, key: fmt.Sprintf("%03d/%s/%06d", p.gw.id, actor, p.gw.active[actor]), what: what,
		effect: effect, faulty: faulty, until: until, pending: pending, answer: make(chan error, 1),
	}
	if pending != nil {
		pending(1)
	}
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	err := <-c.answer
	if errors.Is(err, errCrashed) {
		runtime.Goexit()
	}
	return err
}

var (
	errCrashed = errors.New("crashed")
	errLost    = errors.New("no answer")
)

func (p *port) pause(ctx context.Context, _ time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	_ = p.call(ctx, "pause", false, time.Time{}, nil, func() error { return nil })
	return ctx.Err() == nil
}

func (p *port) Read(ctx context.Context, at ledger.Key) (text, version string, err error) {
	err = p.call(ctx, "read ledger "+at.Namespace, true, time.Time{}, nil, func() error {
		l, ok := p.w.ledgers[at]
		if !ok {
			return ledger.ErrNotFound
		}
		text, version = l[0], l[1]
		return nil
	})
	return text, version, err
}

func (p *port) Write(ctx context.Context, at ledger.Key, text, version string) (next string, err error) {
	err = p.call(ctx, "write ledger "+at.Namespace, true, time.Time{}, nil, func() error {
		if p.w.ledgers[at][1] != version {
			return ledger.ErrConflict
		}
		p.w.versions++
		p.w.ledgers[at] = [2]string{text, fmt.Sprint(p.w.versions)}
		next = fmt.Sprint(p.w.versions)
		return nil
	})
	return next, err
}

func (p *port) Remove(ctx context.Context, at ledger.Key, version string) error {
	return p.call(ctx, "remove ledger "+at.Namespace, true, time.Time{}, nil, func() error {
		if p.w.ledgers[at][1] != version {
			return ledger.ErrConflict
		}
		delete(p.w.ledgers, at)
		return nil
	})
}

func (p *port) Limit(context.Context, string, string) (Limit, error) {
	return Limit{Hard: simHard, Quota: "q"}, nil
}

func (p *port) Count(ctx context.Context, server, resource, _, ns string) (n int64, err error) {
	err = p.call(ctx, "count "+server+" "+ns, true, time.Time{}, nil, func() error {
		if p.w.down[server] {
			return errLost
		}
		n = int64(p.w.objects[server+"|"+ns+"|"+resource])
		return nil
	})
	return n, err
}

func (p *port) Holds(ctx context.Context, server, ns string, known map[string]string) (holds bool, err error) {
	err = p.call(ctx, "holds "+server+" "+ns, true, time.Time{}, nil, func() error {
		if p.w.down[server] {
			return errLost
		}
		for r, s := range simServers {
			if known[r] == "" {
				continue // a server whose discovery shows nothing
			}
			holds = holds || s == server && p.w.objects[server+"|"+ns+"|"+r] > 0
		}
		return nil
	})
	return holds, err
}

func (p *port) Empty(ctx context.Context, server, ns string, known map[string]string) (bool, error) {
	err := p.call(ctx, "delete "+server+" "+ns, true, time.Time{}, nil, func() error {
		if p.w.down[server] {
			return errLost
		}
		for r, s := range simServers {
			if s == server && known[r] != "" {
				p.w.objects[server+"|"+ns+"|"+r] = 0
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	holds, err := p.Holds(ctx, server, ns, known)
	return !holds, err
}

type simNamespaces struct{ *port }

func (p simNamespaces) Cached(name string) (namespaces.Namespace, bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	ns, ok := p.w.cached[name]
	return ns, ok
}

func (p simNamespaces) Get(ctx context.Context, name string) (ns namespaces.Namespace, err error) {
	err = p.call(ctx, "get namespace "+name, true, time.Time{}, nil, func() error {
		var ok bool
		if ns, ok = p.w.namespaces[name]; !ok {
			return ledger.ErrNotFound
		}
		return nil
	})
	return ns, err
}

func (p simNamespaces) Finalize(ctx context.Context, name string, ns namespaces.Namespace, finalizers []string) error {
	return p.call(ctx, fmt.Sprintf("finalize %s %v", name, finalizers), true, time.Time{}, nil, func() error {
		now, ok := p.w.namespaces[name]
		if !ok || now.Version != ns.Version {
			return ledger.ErrConflict
		}
		p.w.versions++
		now.Finalizers, now.Version = finalizers, fmt.Sprint(p.w.versions)
		p.w.namespaces[name] = now
		if len(finalizers) == 0 && now.Terminating {
			delete(p.w.namespaces, name)
			p.w.tally.Emptied++
		}
		return nil
	})
}

// act runs f as an actor of the gateway.
func (w *world) act(g *simGateway, name string, f func(ctx context.Context)) {
	g.asks++
	ctx := context.WithValue(g.ctx, actorKey{}, fmt.Sprintf("%s-%04d", name, g.asks))
	go f(ctx)
}

// create is one request through a gateway, as Wrap handles it.
func (w *world) create(g *simGateway, ns, resource string) {
	server, user := simServers[resource], pick(w.rng, []string{"ann", "bob", ""})
	w.act(g, "create", func(ctx context.Context) {
		t, err := g.Reserve(ctx, Request{
			Namespace: ns, Resource: resource, Version: "v1", Timeout: simTime,
			Server: server, Guard: v1alpha1.Guard{Namespaces: true, Quota: true}, User: user,
		})
		if err != nil {
			w.count(&w.tally.Refused)
			return
		}
		if !time.Now().Before(t.Deadline) {
			t.Failed()
			return
		}
		key := flyingKey{ns, t.handle.Key().UID, server, resource}
		err = (&port{w, g}).call(ctx, "create at "+server+" in "+ns, true, t.Deadline.Add(simGrace), func(n int) { w.flying[key] += n }, func() error {
			if w.down[server] || w.rng.IntN(6) == 0 {
				return errDenied
			}
			w.objects[server+"|"+ns+"|"+resource]++
			w.tally.Created++
			return nil
		})
		switch {
		case err == nil:
			t.Landed()
		case errors.Is(err, errDenied):
			w.count(&w.tally.Denied)
			t.Failed()
		default:
			w.count(&w.tally.Unknown)
		}
		_ = t.Flush(ctx)
	})
}

var errDenied = errors.New("denied")

func (w *world) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// tend is what Run does for one namespace.
func (w *world) tend(g *simGateway, p ledger.Key, ns namespaces.Namespace) {
	w.act(g, "tend", func(ctx context.Context) {
		before, _, err := g.Ledgers.At(p).Read(ctx)
		if err == nil && len(g.Ledgers.Expired(p, before)) > 0 {
			w.count(&w.tally.Expired)
		}
		for _, server := range []string{"A", "B"} {
			_ = g.Counter.Expire(ctx, p, server, func(f ledger.Create) bool { return f.Server == server })
		}
		if ns.UID != p.UID {
			_, _ = g.Namespaces.Discard(ctx, p, func(string) bool { return true })
		}
	})
	for resource, server := range sorted(simServers) {
		switch {
		case ns.UID != p.UID:
		case ns.Terminating && ns.Has(server):
			w.act(g, "drain", func(ctx context.Context) { _, _ = g.Namespaces.Drain(ctx, p, server) })
		case !ns.Terminating:
			w.act(g, "recount", func(ctx context.Context) { _ = g.Counter.Recount(ctx, p, server, resource, "", nil) })
			w.act(g, "release", func(ctx context.Context) {
				if g.Namespaces.Release(ctx, p, server) == nil {
					w.count(&w.tally.Released)
				}
			})
		}
	}
}

func sorted(m map[string]string) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		keys := []string{}
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func (w *world) crash(g *simGateway) {
	w.mu.Lock()
	g.dead = true
	calls := w.calls
	w.calls = nil
	for _, c := range calls {
		if c.gw != g {
			w.calls = append(w.calls, c)
			continue
		}
		// What was sent may arrive, now, later or never.
		switch w.rng.IntN(3) {
		case 0:
			_ = c.effect()
			c.land()
		case 1:
			w.late = append(w.late, c)
		default:
			c.land()
		}
		c.answer <- errCrashed
	}
	w.mu.Unlock()
	g.stop()
	synctest.Wait()
}

// land says that the call can have no effect from now on.
func (c *parked) land() {
	if c.pending != nil {
		c.pending(-1)
	}
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
	if *simSeed != 0 {
		w.t.Logf(format, args...)
	}
}

func (w *world) run(steps int) {
	for range steps {
		synctest.Wait()
		w.step()
		synctest.Wait()
		w.check()
		if w.t.Failed() {
			return
		}
	}
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func (w *world) step() {
	g := pick(w.rng, w.gateways)
	switch n := w.rng.IntN(100); {
	case n < 80 && len(w.calls) > 0:
		w.resolve()
	case n < 86:
		ns, resource := pick(w.rng, []string{"x", "x", "y"}), pick(w.rng, []string{"widgets.a", "widgets.a", "gadgets.b"})
		w.note("gateway %d: create %s in %s", g.id, resource, ns)
		w.create(g, ns, resource)
	case n < 88:
		w.tendAll(g)
	case n < 91:
		w.remove()
	case n < 92:
		w.namespaceStep(pick(w.rng, []string{"x", "y"}))
	case n < 94:
		w.note("everybody hears of namespaces")
		for _, name := range []string{"x", "y"} {
			delete(w.cached, name)
			if ns, ok := w.namespaces[name]; ok {
				w.cached[name] = ns
			}
		}
	case n < 95:
		i := w.rng.IntN(len(w.gateways))
		w.note("gateway %d crashes", w.gateways[i].id)
		w.tally.Crashed++
		w.crash(w.gateways[i])
		w.gateways[i] = w.gateway()
	case n < 96:
		s := pick(w.rng, []string{"A", "B"})
		w.down[s] = !w.down[s]
		w.note("server %s down: %v", s, w.down[s])
	case n < 98 && len(w.late) > 0:
		i := w.rng.IntN(len(w.late))
		c := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.note("late: %s %s", c.key, c.what)
		w.tally.Late++
		_ = c.effect()
		c.land()
	default:
		w.advance(time.Duration(1+w.rng.IntN(20)) * time.Second)
	}
}

// advance lets time pass. What has to land by then lands now, or never.
func (w *world) advance(d time.Duration) {
	w.note("%v pass", d)
	now := time.Now().Add(d)
	w.late = slices.DeleteFunc(w.late, func(c *parked) bool {
		if c.until.IsZero() || now.Before(c.until) {
			return false
		}
		if w.rng.IntN(2) == 0 {
			w.note("late: %s %s", c.key, c.what)
			_ = c.effect()
		}
		c.land()
		return true
	})
	// A request that is still parked ends no later than its server carries it out.
	w.mu.Lock()
	calls := w.calls
	w.calls = nil
	for _, c := range calls {
		if !c.until.IsZero() && !now.Before(c.until) {
			w.note("in time: %s %s", c.key, c.what)
			err := c.effect()
			c.land()
			c.answer <- err
			continue
		}
		w.calls = append(w.calls, c)
	}
	w.mu.Unlock()
	time.Sleep(d)
}

func (w *world) tendAll(g *simGateway) {
	w.note("gateway %d tends", g.id)
	keys := []ledger.Key{}
	for p := range w.ledgers {
		keys = append(keys, p)
	}
	for name, ns := range w.namespaces {
		if !slices.Contains(keys, ledger.Key{Namespace: name, UID: ns.UID}) {
			keys = append(keys, ledger.Key{Namespace: name, UID: ns.UID})
		}
	}
	slices.SortFunc(keys, func(a, b ledger.Key) int { return cmp.Compare(a.Namespace+a.UID, b.Namespace+b.UID) })
	for _, p := range keys {
		w.tend(g, p, w.namespaces[p.Namespace])
		synctest.Wait()
	}
}

func (w *world) remove() {
	var some []string
	for k, n := range w.objects {
		if n > 0 {
			some = append(some, k)
		}
	}
	if len(some) > 0 {
		slices.Sort(some)
		k := pick(w.rng, some)
		w.note("delete an object of %s", k)
		w.objects[k]--
	}
}

func (w *world) namespaceStep(name string) {
	ns, ok := w.namespaces[name]
	switch {
	case !ok:
		w.note("make namespace %s", name)
		w.makeNamespace(name)
	case !ns.Terminating:
		w.note("delete namespace %s", name)
		w.versions++
		ns.Terminating, ns.Version = true, fmt.Sprint(w.versions)
		w.namespaces[name] = ns
	default:
		w.kubernetes(name)
	}
}

// kubernetes is the core server's own namespace controller.
func (w *world) kubernetes(name string) {
	ns, ok := w.namespaces[name]
	if !ok || !ns.Terminating {
		return
	}
	w.note("the core server lets go of namespace %s", name)
	w.versions++
	ns.Finalizers = slices.DeleteFunc(slices.Clone(ns.Finalizers), func(f string) bool { return f == "kubernetes" })
	ns.Version = fmt.Sprint(w.versions)
	w.namespaces[name] = ns
	if len(ns.Finalizers) == 0 {
		delete(w.namespaces, name)
		w.tally.Emptied++
	}
}

// resolve ends one parked call.
func (w *world) resolve() {
	slices.SortFunc(w.calls, func(a, b *parked) int { return cmp.Compare(a.key, b.key) })
	i := w.rng.IntN(len(w.calls))
	c := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	how := 0
	if c.faulty && !w.kind {
		how = w.rng.IntN(w.faults)
	}
	w.mu.Lock()
	var err error
	switch how {
	case 1: // not applied
		err = errLost
		c.land()
	case 2: // applied, but the answer is lost
		_ = c.effect()
		c.land()
		err = errLost
	case 3: // applied later
		w.late = append(w.late, c)
		err = errLost
	default:
		err = c.effect()
		c.land()
	}
	w.mu.Unlock()
	w.note("%s %s: %d %v", c.key, c.what, how, err)
	c.answer <- err
}

// check holds the world to the invariants.
func (w *world) check() {
	for p, text := range w.ledgers {
		l, err := ledger.Parse(text[0])
		if err != nil {
			w.t.Errorf("ledger of %v: %v", p, err)
			continue
		}
		if ns, ok := w.namespaces[p.Namespace]; !ok || ns.UID != p.UID {
			continue
		}
		for resource, server := range simServers {
			there := int64(w.objects[server+"|"+p.Namespace+"|"+resource] + w.flying[flyingKey{p.Namespace, p.UID, server, resource}])
			c := l.Counts[resource]
			if there > simHard {
				w.t.Errorf("%d %s in %s, of which %d may be", there, resource, p.Namespace, simHard)
			}
			if c.Counted && !l.Draining && there > c.Used {
				w.t.Errorf("%d %s in %s, and %d used: %s", there, resource, p.Namespace, c.Used, text[0])
			}
			if c.Used > simHard {
				w.t.Errorf("%d %s used in %s, of which %d may be: %s", c.Used, resource, p.Namespace, simHard, text[0])
			}
		}
	}
	for k, n := range w.objects {
		parts := strings.Split(k, "|")
		if n > 0 && !slices.Contains(w.namespaces[parts[1]].Finalizers, namespaces.Finalizer(parts[0])) {
			w.t.Errorf("%d objects %s, and no finalizer for them", n, k)
		}
	}
	for k, n := range w.flying {
		if ns := w.namespaces[k.ns]; n > 0 && (ns.UID != k.uid || !slices.Contains(ns.Finalizers, namespaces.Finalizer(k.server))) {
			w.t.Errorf("a create of %v is under way, and no finalizer is there for it", k)
		}
	}
}

// drain stops all faults and lets everything come to rest: every reservation
// must have been given back or counted, and every namespace that was deleted
// must be gone.
func (w *world) drain() {
	w.kind, w.down = true, map[string]bool{}
	for round := range 12 {
		for i, g := range w.gateways {
			if round == 0 {
				w.crash(g)
				w.gateways[i] = w.gateway()
			}
		}
		w.advance(simTime + simGrace + time.Second)
		w.cached = map[string]namespaces.Namespace{}
		for n, ns := range w.namespaces {
			w.cached[n] = ns
		}
		w.kubernetes("x")
		w.kubernetes("y")
		for _, g := range w.gateways {
			w.tendAll(g)
			for range 5000 {
				synctest.Wait()
				if len(w.calls) == 0 {
					break
				}
				w.resolve()
			}
		}
		synctest.Wait()
		w.check()
		if w.t.Failed() {
			return
		}
	}
	if len(w.calls) > 0 {
		w.t.Errorf("%d calls never end", len(w.calls))
	}
	w.rest()
}

func (w *world) rest() {
	for name, ns := range w.namespaces {
		if ns.Terminating {
			w.t.Errorf("namespace %s does not go: %v", name, ns.Finalizers)
		}
	}
	for p, text := range w.ledgers {
		l, _ := ledger.Parse(text[0])
		if w.namespaces[p.Namespace].UID != p.UID {
			w.t.Errorf("the ledger of %v is left behind", p)
			continue
		}
		if len(l.Pending) > 0 {
			w.t.Errorf("pending creates are left in %v: %s", p, text[0])
		}
		for resource, server := range simServers {
			if c, n := l.Counts[resource], w.objects[server+"|"+p.Namespace+"|"+resource]; c.Counted && c.Used != int64(n) {
				w.t.Errorf("%s in %s: %d used, %d there", resource, p.Namespace, c.Used, n)
			}
		}
	}
}
