package servicesync

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// turnDelay is how long a change of what holds for a whole peer may wait, so
// that several are one.
const turnDelay = 100 * time.Millisecond

// peer reads what one other cluster publishes. It has goroutines, connections
// and patience of its own, so that nobody waits for it.
type peer struct {
	id          model.ClusterID
	own         model.ClusterID
	origin      string
	fingerprint string
	namespace   string // of its publications
	log         *slog.Logger

	services *access.View[*v1alpha1.PublishedService]
	slices   *access.View[*v1alpha1.PublishedSlice]
	leases   *access.View[*v1alpha1.ClusterLease]
	roll     roll // of services
	nudged   chan struct{}
	// turned is called, from run, when what holds for all of its Services changed.
	turned func(before, now standing)

	mu     sync.Mutex
	memory memory
	faults map[string]string // what keeps it from being read, for people, by what is read
	said   string            // of those, last
	last   standing          // that turned was told
	passed map[standing]bool // others that were decided on since: they held for less than turnDelay
}

// standing is what holds for all Services of a peer.
type standing struct {
	health    model.Health
	synced    bool
	confirmed bool
	reads     bool
}

// peerHooks are what a peer tells its site.
type peerHooks struct {
	changed func(key types.NamespacedName, id model.ClusterID, initial bool)
	turned  func(id model.ClusterID, before, now standing)
}

func newPeer(id, own model.ClusterID, origin, fingerprint, namespace string, a *access.API, m memory, hooks peerHooks, log *slog.Logger) (*peer, error) {
	p := &peer{
		id: id, own: own, origin: origin, fingerprint: fingerprint, namespace: namespace, memory: m,
		log: log.With("peer", string(id)), faults: make(map[string]string), passed: make(map[standing]bool), nudged: make(chan struct{}, 1),
		turned: func(before, now standing) { hooks.turned(id, before, now) },
	}
	labels := v1alpha1.LabelCluster + "=" + string(id)
	var err error
	if p.services, err = access.NewView(a, &v1alpha1.PublishedService{}, access.ViewOptions[*v1alpha1.PublishedService]{
		Namespace: namespace, Labels: labels, Asked: p.asked("services"),
		Service: func(s *v1alpha1.PublishedService) []types.NamespacedName {
			return p.trusted(s.Spec.Cluster, s.Spec.Service)
		},
		Slim: func(s *v1alpha1.PublishedService) {
			s.Status, s.Labels, s.Annotations = v1alpha1.PublishedServiceStatus{}, nil, nil
		},
		Changed: func(s *v1alpha1.PublishedService, initial bool) {
			hooks.changed(access.ServiceOf(s.Spec.Service), id, initial)
		},
	}); err != nil {
		return nil, err
	}
	if err := p.services.Follow(func(name string, there bool) {
		p.roll.set(name, there)
		p.nudge()
	}); err != nil {
		return nil, err
	}
	if p.slices, err = access.NewView(a, &v1alpha1.PublishedSlice{}, access.ViewOptions[*v1alpha1.PublishedSlice]{
		Namespace: namespace, Labels: labels, Asked: p.asked("slices"),
		Service: func(s *v1alpha1.PublishedSlice) []types.NamespacedName {
			return p.trusted(s.Spec.Cluster, s.Spec.Service)
		},
		Slim: func(s *v1alpha1.PublishedSlice) { s.Labels, s.Annotations = nil, nil },
		Changed: func(s *v1alpha1.PublishedSlice, initial bool) {
			hooks.changed(access.ServiceOf(s.Spec.Service), id, initial)
		},
	}); err != nil {
		return nil, err
	}
	p.leases, err = access.NewView(a, &v1alpha1.ClusterLease{}, access.ViewOptions[*v1alpha1.ClusterLease]{
		Namespace: namespace, Asked: p.asked("leases"),
		Changed: func(l *v1alpha1.ClusterLease, _ bool) { p.hear(l, time.Now()) },
	})
	return p, err
}

// trusted is the Service that a publication is about, if it is the peer's to
// speak of.
func (p *peer) trusted(cluster string, s v1alpha1.ServiceReference) []types.NamespacedName {
	if cluster != string(p.id) {
		return nil
	}
	return []types.NamespacedName{access.ServiceOf(s)}
}

// run reads the peer until ctx ends.
func (p *peer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, read := range []func(context.Context){p.services.Run, p.slices.Run, p.leases.Run} {
		g.Go(func() error {
			read(ctx)
			return nil
		})
	}
	g.Go(func() error {
		p.follow(ctx)
		return nil
	})
	return g.Wait()
}

// follow notices when what holds for the whole peer changes, be it by time alone.
func (p *peer) follow(ctx context.Context) {
	for {
		now, until := p.standing(time.Now())
		for _, before := range p.turn(now) {
			p.turned(before, now)
		}
		wait := time.Minute
		if !until.IsZero() {
			wait = max(time.Until(until), turnDelay)
		}
		if !now.synced {
			wait = min(wait, turnDelay)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.nudged:
			timer.Stop()
			access.Pause(ctx, turnDelay)
		case <-timer.C:
		}
	}
}

// turn says what else than now was the last to be told, or was decided on since.
func (p *peer) turn(now standing) []standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[p.last] = true
	delete(p.passed, now)
	before := slices.Collect(maps.Keys(p.passed))
	clear(p.passed)
	p.last = now
	return before
}

// decided takes note of what a decision took to hold. If it has passed before
// follow looked, what was decided on it is decided anew all the same.
func (p *peer) decided(on standing) {
	p.mu.Lock()
	odd := on != p.last && !p.passed[on]
	if odd {
		p.passed[on] = true
	}
	p.mu.Unlock()
	if odd {
		p.nudge()
	}
}

func (p *peer) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// hear takes note of a lease that was read.
func (p *peer) hear(l *v1alpha1.ClusterLease, now time.Time) {
	if l.Name != string(p.id) {
		if p.lease() == nil {
			p.fail("name", fmt.Sprintf("calls itself %s, not %s: name its kubeconfig %s", l.Name, p.id, l.Name))
		}
		return
	}
	p.mu.Lock()
	renewed := l.Spec.RenewTime.Time
	// What is read first may be old: it is a sign of life once it changes.
	if !p.memory.renewed.IsZero() && !renewed.Equal(p.memory.renewed) {
		p.memory.heard = now
	}
	p.memory.renewed, p.memory.read = renewed, true
	p.memory.duration = time.Duration(l.Spec.DurationSeconds) * time.Second
	p.mu.Unlock()
	p.fail("name", "")
	if l.Spec.FormatVersion > v1alpha1.FormatVersion {
		p.fail("format", fmt.Sprintf("publishes in format %d, and this xb reads up to %d: upgrade this one", l.Spec.FormatVersion, v1alpha1.FormatVersion))
	} else {
		p.fail("format", "")
	}
	p.nudge()
}

// asked takes note of how reading one kind of publication goes.
func (p *peer) asked(what string) func(error) {
	return func(err error) {
		if why := access.Explain(err, "peer "+string(p.id)); err == nil || why != "" {
			p.fail(what, why)
		}
	}
}

// mostSaid is how long a fault is that is logged and told in the lease.
const mostSaid = 500

// fail says what is wrong with a part of the peer, if it is news; "" is nothing.
func (p *peer) fail(part, why string) {
	if len(why) > mostSaid { // it may quote the peer
		why = strings.ToValidUTF8(why[:mostSaid], "") + "…"
	}
	p.mu.Lock()
	if why == "" {
		delete(p.faults, part)
	} else {
		p.faults[part] = why
	}
	now := p.fault()
	was := p.said
	p.said = now
	p.mu.Unlock()
	switch {
	case now == was:
	case now != "":
		p.log.Warn("peer cannot be read; the others are not affected", "reason", now, "origin", p.origin)
	default:
		p.log.Info("peer is read again", "origin", p.origin)
	}
}

// fault is one of the faults, always the same of the same. p.mu is held.
func (p *peer) fault() string {
	if len(p.faults) == 0 {
		return ""
	}
	return p.faults[slices.Min(slices.Collect(maps.Keys(p.faults)))]
}

// faulty reports whether something is known to keep the peer from being read.
func (p *peer) faulty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults) > 0
}

// lease is the peer's; nil: none was read.
func (p *peer) lease() *v1alpha1.ClusterLease { return p.leases.Get(p.namespace, string(p.id)) }

func (p *peer) synced() bool {
	return p.services.Synced() && p.slices.Synced() && p.leases.Synced()
}

// peering is what the model wants to know of the peer as a whole.
func (p *peer) peering() model.Peering {
	p.mu.Lock()
	m := p.memory
	p.mu.Unlock()
	n, _ := p.roll.count("")
	return model.Peering{
		Lease: p.lease(), Heard: m.heard, Duration: m.duration,
		Synced: p.synced(), Services: n,
	}
}

// countedWithout is how many Services are seen of the peer, for one that the
// view lacks; -1 as long as that one is counted all the same.
func (p *peer) countedWithout(key types.NamespacedName) int {
	n, has := p.roll.count(p.namespace + "/" + model.PublicationName(key))
	if has {
		return -1
	}
	return n
}

// published is what the peer publishes of a Service.
func (p *peer) published(key types.NamespacedName) model.Published {
	var found model.Published
	if all := p.services.Of(key); len(all) > 0 {
		found.Service = all[0]
		for _, other := range all[1:] {
			if other.Name < found.Service.Name {
				found.Service = other
			}
		}
	}
	found.Slices = p.slices.Of(key)
	return found
}

// publishes reports whether the peer has a slice of that name of a Service.
func (p *peer) publishes(key types.NamespacedName, slice string) bool {
	return slices.ContainsFunc(p.published(key).All(), func(s *v1alpha1.PublishedSlice) bool { return s.Name == slice })
}

// standing also says until when it holds if nothing is heard.
func (p *peer) standing(now time.Time) (standing, time.Time) {
	peering := p.peering()
	_, until := peering.Health(now)
	return standingOf(peering.Peer(p.own, now, model.Published{})), until
}

func standingOf(p model.Peer) standing {
	return standing{p.Health, p.Synced, p.Confirmed, p.Reads}
}

// state is what people are told of it.
func (p *peer) state(health model.Health) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.state(health)
}

// status is what people, and this cluster's next process, should know of it.
func (p *peer) status(now time.Time) v1alpha1.PeerStatus {
	health, _ := p.peering().Health(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := statusOf(p.id, p.memory, health)
	s.Message = p.fault()
	return s
}
