package roster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// followDelay is how long follow waits after a change, so that it handles several changes
// together.
const followDelay = 100 * time.Millisecond

// Peer reads what one other cluster publishes. It has its own goroutines, connections
// and waits, so that a slow peer delays no other.
type Peer struct {
	id          clusterset.ID
	own         clusterset.ID // the cluster that reads it
	origin      string        // where the peer was found, for people
	fingerprint string        // of its config
	namespace   string        // of its publications
	log         *slog.Logger

	services *access.Informer[*v1alpha1.PublishedService]
	slices   *access.Informer[*v1alpha1.PublishedSlice]
	leases   *access.Informer[*v1alpha1.ClusterLease]
	roll     roll          // the names of services
	nudged   chan struct{} // wakes follow
	// standingChanged is called by follow when the standing has changed.
	standingChanged func(before, now standing)

	faults    faults
	standings standings

	mu     sync.Mutex
	memory memory // guarded by mu
}

// newPeer makes the informers of a peer. Nothing is read before run.
func (r *Roster) newPeer(id clusterset.ID, found peers.Peer, a *access.API, m memory) (*Peer, error) {
	p := &Peer{
		id: id, own: r.Own, origin: found.Origin, fingerprint: found.Fingerprint, namespace: found.Namespace, memory: m,
		log: r.Log.With("peer", string(id)), nudged: make(chan struct{}, 1),
	}
	p.standingChanged = func(before, now standing) { r.standingChanged(p, before, now) }
	namespace, changed := found.Namespace, r.Events.Changed
	labels := v1alpha1.LabelCluster + "=" + string(id)
	var err error
	if p.services, err = access.NewInformer(a, &v1alpha1.PublishedService{}, access.InformerOptions[*v1alpha1.PublishedService]{
		Namespace: namespace, Labels: labels, Asked: p.asked("services"),
		Service: func(s *v1alpha1.PublishedService) []types.NamespacedName {
			return p.trusted(s.Spec.Cluster, s.Spec.Service)
		},
		Slim: func(s *v1alpha1.PublishedService) {
			s.Status, s.Labels, s.Annotations = v1alpha1.PublishedServiceStatus{}, nil, nil
		},
		Changed: func(s *v1alpha1.PublishedService, initial bool) {
			changed(access.ServiceOf(s.Spec.Service), id, initial)
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
	if p.slices, err = access.NewInformer(a, &v1alpha1.PublishedSlice{}, access.InformerOptions[*v1alpha1.PublishedSlice]{
		Namespace: namespace, Labels: labels, Asked: p.asked("slices"),
		Service: func(s *v1alpha1.PublishedSlice) []types.NamespacedName {
			return p.trusted(s.Spec.Cluster, s.Spec.Service)
		},
		Slim: func(s *v1alpha1.PublishedSlice) { s.Labels, s.Annotations = nil, nil },
		Changed: func(s *v1alpha1.PublishedSlice, initial bool) {
			changed(access.ServiceOf(s.Spec.Service), id, initial)
		},
	}); err != nil {
		return nil, err
	}
	p.leases, err = access.NewInformer(a, &v1alpha1.ClusterLease{}, access.InformerOptions[*v1alpha1.ClusterLease]{
		Namespace: namespace, Asked: p.asked("leases"),
		Changed: func(l *v1alpha1.ClusterLease, _ bool) { p.hear(l, time.Now()) },
	})
	return p, err
}

// trusted returns the Service that a publication is about; nil if the publication says that
// it is another cluster's.
func (p *Peer) trusted(cluster string, s v1alpha1.ServiceReference) []types.NamespacedName {
	if cluster != string(p.id) {
		return nil
	}
	return []types.NamespacedName{access.ServiceOf(s)}
}

// run reads the peer until ctx ends.
func (p *Peer) run(ctx context.Context) error {
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

// follow calls standingChanged when the standing changes, because of something read or by time alone.
func (p *Peer) follow(ctx context.Context) {
	for {
		now, until := p.standing(time.Now())
		for _, before := range p.standings.replace(now) {
			p.standingChanged(before, now)
		}
		wait := time.Minute
		if !until.IsZero() {
			wait = max(time.Until(until), followDelay)
		}
		if !now.synced {
			wait = min(wait, followDelay)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.nudged:
			timer.Stop()
			access.Pause(ctx, followDelay)
		case <-timer.C:
		}
	}
}

// decided notes the standing that a decision was made on. Even if the standing changes
// back before follow sees it, follow has those Services decided again.
func (p *Peer) decided(on standing) {
	if p.standings.decided(on) {
		p.nudge()
	}
}

func (p *Peer) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// hear notes a lease that was read, and whether it is a sign of life.
func (p *Peer) hear(l *v1alpha1.ClusterLease, now time.Time) {
	if l.Name != string(p.id) {
		if p.lease() == nil {
			p.fail("name", fmt.Sprintf("calls itself %s, not %s: name its kubeconfig %s", l.Name, p.id, l.Name))
		}
		return
	}
	p.mu.Lock()
	renewed := l.Spec.RenewTime.Time
	// The first lease that is read may be old; only a renewed one is a sign of life.
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

// asked returns a function that notes the outcome of requests for one kind of object.
func (p *Peer) asked(what string) func(error) {
	return func(err error) {
		if why := access.Explain(err, "peer "+string(p.id)); err == nil || why != "" {
			p.fail(what, why)
		}
	}
}

// fail notes why a part of the peer cannot be read; "" if it can. It logs only changes.
func (p *Peer) fail(part, why string) {
	switch fault, changed := p.faults.set(part, why); {
	case !changed:
	case fault != "":
		p.log.Warn("peer cannot be read; the others are not affected", "reason", fault, "origin", p.origin)
	default:
		p.log.Info("peer is read again", "origin", p.origin)
	}
}

// faulty reports whether a fault is known that keeps the peer from being read.
func (p *Peer) faulty() bool { return p.faults.first() != "" }

// lease returns the peer's lease; nil if none was read.
func (p *Peer) lease() *v1alpha1.ClusterLease { return p.leases.Get(p.namespace, string(p.id)) }

func (p *Peer) synced() bool {
	return p.services.Synced() && p.slices.Synced() && p.leases.Synced()
}

// peerState returns what the model needs to know of the peer as a whole.
func (p *Peer) peerState() clusterset.PeerState {
	p.mu.Lock()
	m := p.memory
	p.mu.Unlock()
	n, _ := p.roll.count("")
	return clusterset.PeerState{
		Lease: p.lease(), Heard: m.heard, Duration: m.duration,
		Synced: p.synced(), Services: n,
	}
}

// countedWithout returns the number of Services seen of the peer, for a Service that the
// informer lacks. It returns -1 while the roll still counts that Service: the number would
// then be one too many, and could confirm that nothing is missing.
func (p *Peer) countedWithout(key types.NamespacedName) int {
	n, has := p.roll.count(p.namespace + "/" + clusterset.PublicationName(key))
	if has {
		return -1
	}
	return n
}

// published returns what the peer publishes of a Service. If several objects claim to be
// its publication, the first by name counts.
func (p *Peer) published(key types.NamespacedName) clusterset.Published {
	var found clusterset.Published
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

// ID is the peer's name.
func (p *Peer) ID() clusterset.ID { return p.id }

// Lacks reports whether the peer publishes nothing of a Service.
func (p *Peer) Lacks(key types.NamespacedName) bool { return len(p.services.Of(key)) == 0 }

// Publishes reports whether the peer publishes a slice of that name for a Service.
func (p *Peer) Publishes(key types.NamespacedName, slice string) bool {
	return slices.ContainsFunc(p.published(key).All(), func(s *v1alpha1.PublishedSlice) bool { return s.Name == slice })
}

// standing returns the standing at now, and when it changes if nothing is heard until then.
func (p *Peer) standing(now time.Time) (standing, time.Time) {
	peerState := p.peerState()
	_, until := peerState.Health(now)
	return standingOf(peerState.Peer(p.own, now, clusterset.Published{})), until
}

// state returns the peer's state in the word that people see.
func (p *Peer) state(health clusterset.Health) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.state(health)
}

// status returns what the own lease says of the peer, for people and for the process
// that reads the peer next.
func (p *Peer) status(now time.Time) v1alpha1.PeerStatus {
	health, _ := p.peerState().Health(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := statusOf(p.id, p.memory, health)
	s.Message = p.faults.first()
	return s
}
