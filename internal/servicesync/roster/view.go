package roster

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// Each calls do for every Service that a peer publishes; for some, more than once.
func (r *Roster) Each(do func(types.NamespacedName)) {
	for _, p := range r.all() {
		p.services.Each(func(s *v1alpha1.PublishedService) { do(access.ServiceOf(s.Spec.Service)) })
	}
}

// AnyPublishes reports whether a peer that is read publishes a Service in a way that
// satisfies so.
func (r *Roster) AnyPublishes(k types.NamespacedName, so func(*v1alpha1.PublishedService) bool) bool {
	return slices.ContainsFunc(r.all(), func(p *reading) bool { return slices.ContainsFunc(p.services.Of(k), so) })
}

// Peers returns what every known peer says of a Service at now: of the peers that are
// read, that are remembered, and that are to be forgotten.
func (r *Roster) Peers(k types.NamespacedName, now time.Time) map[clusterset.ID]clusterset.Peer {
	all := make(map[clusterset.ID]clusterset.Peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.Forgotten {
		all[id] = clusterset.Peering{Heard: now, Forgotten: true}.Peer(r.Own, now, clusterset.Published{})
	}
	for id, m := range r.memory {
		peering := m.peering()
		peering.Forgotten = r.Forgotten[id]
		all[id] = peering.Peer(r.Own, now, clusterset.Published{})
	}
	for id, p := range r.reading {
		peering := p.peering()
		peering.Forgotten = r.Forgotten[id]
		published := clusterset.Published{}
		if peering.Synced {
			// It is read after the lease, so that it has all that the lease counts.
			published = p.published(k)
			if published.Service == nil {
				peering.Services = p.countedWithout(k)
			}
		}
		all[id] = peering.Peer(r.Own, now, published)
		p.decided(standingOf(all[id]))
	}
	return all
}

// NextTurn returns when the health of a remembered peer changes next by time alone; zero
// if never. A peer that is read tells by itself.
func (r *Roster) NextTurn(now time.Time) (next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.memory {
		if r.reading[id] != nil {
			continue
		}
		if _, until := m.peering().Health(now); next.IsZero() || !until.IsZero() && until.Before(next) {
			next = until
		}
	}
	return next
}

// Statuses returns what the own lease says of peers, sorted by name: of those that are
// read, of those that are remembered and not to be forgotten, and of what should name a
// peer and cannot be used.
func (r *Roster) Statuses(now time.Time) []v1alpha1.PeerStatus {
	all := make(map[string]v1alpha1.PeerStatus)
	r.mu.Lock()
	for id, m := range r.memory {
		if r.reading[id] == nil && !r.Forgotten[id] {
			health, _ := m.peering().Health(now)
			all[string(id)] = statusOf(id, m, health)
		}
	}
	for _, p := range r.faulty {
		status := all[p.Name]
		status.Cluster, status.Message = p.Name, p.Err.Error()
		all[p.Name] = status
	}
	r.mu.Unlock()
	for _, p := range r.all() {
		status := p.status(now)
		if known, ok := all[status.Cluster]; ok && status.Message == "" {
			status.Message = known.Message
		}
		all[status.Cluster] = status
	}
	var sorted []v1alpha1.PeerStatus
	for _, p := range all {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b v1alpha1.PeerStatus) int { return strings.Compare(a.Cluster, b.Cluster) })
	return sorted
}

// Leases returns the leases of the peers that are read, as far as there are any.
func (r *Roster) Leases() (all []*v1alpha1.ClusterLease) {
	for _, p := range r.all() {
		if lease := p.lease(); lease != nil {
			all = append(all, lease)
		}
	}
	return all
}

// Gauge is what is measured of a peer that is read.
type Gauge struct {
	Peer     string
	State    string    // one of States
	Heard    time.Time // zero: never
	Services int       // that the peer publishes, as seen here
}

// States are all states that a peer can be in.
var States = []string{unknown, string(clusterset.Live), string(clusterset.Stale), string(clusterset.Expired)}

// Gauges measures the peers that are read.
func (r *Roster) Gauges(now time.Time) (all []Gauge) {
	for _, p := range r.all() {
		peering := p.peering()
		health, _ := peering.Health(now)
		all = append(all, Gauge{string(p.id), p.state(health), peering.Heard, peering.Services})
	}
	return all
}
