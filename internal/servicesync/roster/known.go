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

// AnyPublishes reports whether a peer that is read has a publication of a Service for which
// so is true.
func (r *Roster) AnyPublishes(k types.NamespacedName, so func(*v1alpha1.PublishedService) bool) bool {
	return slices.ContainsFunc(r.all(), func(p *reading) bool { return slices.ContainsFunc(p.services.Of(k), so) })
}

// Peers returns every known peer as it stands to a Service at now: the peers that are read,
// those that are remembered, and those that are to be forgotten.
func (r *Roster) Peers(k types.NamespacedName, now time.Time) map[clusterset.ID]clusterset.Peer {
	all := make(map[clusterset.ID]clusterset.Peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.Forgotten {
		all[id] = clusterset.PeerState{Heard: now, Forgotten: true}.Peer(r.Own, now, clusterset.Published{})
	}
	for id, m := range r.memory {
		peerState := m.peerState()
		peerState.Forgotten = r.Forgotten[id]
		all[id] = peerState.Peer(r.Own, now, clusterset.Published{})
	}
	for id, p := range r.reading {
		peerState := p.peerState()
		peerState.Forgotten = r.Forgotten[id]
		published := clusterset.Published{}
		if peerState.Synced {
			// The publication is read after the lease, so that all publications are
			// here that the lease counts.
			published = p.published(k)
			if published.Service == nil {
				peerState.Services = p.countedWithout(k)
			}
		}
		all[id] = peerState.Peer(r.Own, now, published)
		p.decided(standingOf(all[id]))
	}
	return all
}

// NextHealthChange returns when the health of a remembered peer changes next by time alone;
// zero: never. A peer that is read reports its changes itself.
func (r *Roster) NextHealthChange(now time.Time) (next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.memory {
		if r.reading[id] != nil {
			continue
		}
		if _, until := m.peerState().Health(now); next.IsZero() || !until.IsZero() && until.Before(next) {
			next = until
		}
	}
	return next
}

// Statuses returns the status of each peer for the own lease, sorted by name: of the peers
// that are read, of those that are remembered and not to be forgotten, and of entries that
// cannot be used.
func (r *Roster) Statuses(now time.Time) []v1alpha1.PeerStatus {
	all := make(map[string]v1alpha1.PeerStatus)
	r.mu.Lock()
	for id, m := range r.memory {
		if r.reading[id] == nil && !r.Forgotten[id] {
			health, _ := m.peerState().Health(now)
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

// Gauge holds the metrics of a peer that is read.
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
		peerState := p.peerState()
		health, _ := peerState.Health(now)
		all = append(all, Gauge{string(p.id), p.state(health), peerState.Heard, peerState.Services})
	}
	return all
}
