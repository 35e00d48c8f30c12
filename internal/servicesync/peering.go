package servicesync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// followPeers reads the peers that the source finds, each by itself, and stops
// reading those that it no longer does.
func (s *site) followPeers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.source.Run(ctx, func(found []peers.Peer) { s.setPeers(ctx, found) })
	})
	err := g.Wait()
	s.end(s.readings()...)
	return err
}

// endPatience is how long the end of a reading is waited for: a credential
// plugin that hangs cannot be told to end.
const endPatience = 2 * time.Second

// end stops readings and waits until they are over, or have been given up:
// what they still say then is of nobody who is read.
func (s *site) end(all ...*reading) {
	for _, r := range all {
		r.stop()
	}
	patience, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	for _, r := range all {
		select {
		case <-r.over:
			continue
		case <-patience.Done():
		}
		select {
		case <-r.over: // while others were waited for
		default:
			s.log.Warn("a peer's client does not end, and is left to itself; does a credential plugin hang?", "peer", r.id, "origin", r.origin)
		}
	}
}

// setPeers makes the peers that are read those that were found.
func (s *site) setPeers(ctx context.Context, found []peers.Peer) {
	wanted := make(map[model.ClusterID]peers.Peer)
	faulty := make(map[string]peers.Peer)
	for _, p := range found {
		id := model.ClusterID(p.Name)
		if id == s.model.Cluster {
			continue // one folder serves all clusters
		}
		if why := content.IsDNS1123Label(p.Name); len(why) > 0 && p.Config != nil {
			p.Err, p.Config = fmt.Errorf("%s gives the name %q, which no cluster has: %s; rename it", p.Origin, p.Name, why[0]), nil
		}
		if p.Err != nil {
			faulty[p.Origin] = p
			s.mu.Lock()
			was, known := s.faulty[p.Origin]
			s.mu.Unlock()
			if !known || was.Err.Error() != p.Err.Error() {
				s.log.Warn("what should name a peer cannot be used; the others are not affected", "peer", p.Name, "origin", p.Origin, "reason", p.Err)
			}
		}
		if p.Config != nil {
			wanted[id] = p
		}
	}
	for _, r := range s.readings() {
		if p, ok := wanted[r.id]; !ok || p.Fingerprint != r.fingerprint {
			s.stopPeer(r, !ok)
		}
	}
	s.mu.Lock()
	s.faulty = faulty
	s.mu.Unlock()
	for id, p := range wanted {
		s.mu.Lock()
		_, reads := s.peers[id]
		s.mu.Unlock()
		if !reads {
			s.startPeer(ctx, id, p)
		}
	}
	if !slices.ContainsFunc(found, func(p peers.Peer) bool { return p.Unread }) {
		s.mu.Lock()
		s.recalled = nil
		s.mu.Unlock()
	}
	s.namePeers()
	select {
	case <-s.named:
	default:
		close(s.named) // by the source's one goroutine
	}
}

// startPeer begins to read a peer; whatever that meets, nobody else waits for it.
func (s *site) startPeer(ctx context.Context, id model.ClusterID, p peers.Peer) {
	a, err := access.New(p.Config, s.pace, s.own.Config.UserAgent)
	if err != nil {
		s.log.Warn("peer cannot be read; the others are not affected", "peer", id, "origin", p.Origin, "reason", err)
		return
	}
	namespace := p.Namespace
	if namespace == "" {
		namespace = s.namespace
	}
	s.mu.Lock()
	m, known := s.remember[id]
	if !known {
		m = memory{heard: time.Now()}
	}
	s.mu.Unlock()
	reader, err := newPeer(id, s.model.Cluster, p.Origin, p.Fingerprint, namespace, a, m, peerHooks{s.peerChanged, s.peerTurned}, s.log)
	if err != nil {
		s.log.Warn("peer cannot be read; the others are not affected", "peer", id, "origin", p.Origin, "reason", err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	r := &reading{peer: reader, stop: stop, over: make(chan struct{})}
	s.mu.Lock()
	s.peers[id] = r
	s.mu.Unlock()
	s.log.Info("reading peer", "peer", id, "origin", p.Origin, "server", p.Config.Host, "namespace", namespace)
	go func() {
		defer close(r.over)
		_ = r.run(ctx) // it ends with ctx only, and then without an error
	}()
}

// stopPeer stops reading a peer. What came from it stays until the lease that
// it was last seen with runs out.
func (s *site) stopPeer(r *reading, gone bool) {
	s.end(r)
	r.mu.Lock()
	m := r.memory
	r.mu.Unlock()
	s.mu.Lock()
	delete(s.peers, r.id)
	s.remember[r.id] = m
	s.mu.Unlock()
	if gone {
		s.log.Info("peer is no longer read; what came from it stays until its lease runs out", "peer", r.id, "origin", r.origin)
		s.metrics.forget(string(s.model.Cluster), string(r.id))
	}
	s.eachKey(func(k types.NamespacedName) { s.add(k, true) })
}

// namePeers has the lease say whom this cluster reads, and whom it read last
// as long as it cannot tell.
func (s *site) namePeers() {
	s.mu.Lock()
	names := slices.Clone(s.recalled)
	s.mu.Unlock()
	for _, r := range s.readings() {
		names = append(names, string(r.id))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Peers = names })
}

// peerTurned has decided anew what depends on a peer as a whole.
func (s *site) peerTurned(id model.ClusterID, before, now standing) {
	s.mu.Lock()
	p := s.peers[id]
	s.mu.Unlock()
	if p == nil {
		return // it is no longer read
	}
	if now.health != before.health || now.synced != before.synced {
		s.log.Info("peer", "peer", id, "state", p.state(now.health), "synced", now.synced, "confirmed", now.confirmed)
	}
	before.confirmed = now.confirmed
	if before != now {
		s.eachKey(func(k types.NamespacedName) { s.add(k, true) })
		return
	}
	// What is confirmed now matters only to what is here and not there.
	lacks := func(k types.NamespacedName) bool { return len(p.services.Of(k)) == 0 }
	s.services.Each(func(svc *corev1.Service) {
		// A replica goes once all peers are sure that nobody has the Service.
		if k := access.KeyOf(svc); svc.Labels[v1alpha1.LabelReplica] != "" && lacks(k) && !s.published(k, gives) {
			s.add(k, true)
		}
	})
	s.imports.Each(func(i *mcs.ServiceImport) {
		if k := access.KeyOf(i); i.Labels[v1alpha1.LabelImport] != "" && lacks(k) && !s.published(k, exports) {
			s.add(k, true)
		}
	})
	s.pubs.Each(func(own *v1alpha1.PublishedService) {
		answers := slices.ContainsFunc(own.Spec.Seen, func(a v1alpha1.Seen) bool { return a.Cluster == string(id) })
		if k := access.ServiceOf(own.Spec.Service); answers && lacks(k) {
			s.add(k, true)
		}
	})
	s.slices.Each(func(e *discoveryv1.EndpointSlice) {
		k := cmp.Or(access.Labelled(e, mcs.LabelServiceName), access.Labelled(e, discoveryv1.LabelServiceName))
		if slices.ContainsFunc(model.Parts(e), func(part model.Part) bool {
			return part.Cluster == "" || part.Cluster == id && !p.publishes(k, part.Slice)
		}) {
			s.add(k, true)
		}
	})
}

// published reports whether a peer that is read publishes the Service as one
// that is so.
func (s *site) published(k types.NamespacedName, so func(*v1alpha1.PublishedService) bool) bool {
	return slices.ContainsFunc(s.readings(), func(r *reading) bool { return slices.ContainsFunc(r.services.Of(k), so) })
}

func gives(p *v1alpha1.PublishedService) bool {
	return p.Spec.Role == v1alpha1.RoleSource || p.Spec.Role == v1alpha1.RoleUnion
}

func exports(p *v1alpha1.PublishedService) bool { return p.Spec.Exported != nil }

// peerStatuses are what the lease says of peers: of those that are read, of
// those of which something is remembered, unless it is to be forgotten, and of
// what should name one and cannot be used.
func (s *site) peerStatuses(now time.Time) []v1alpha1.PeerStatus {
	all := make(map[string]v1alpha1.PeerStatus)
	s.mu.Lock()
	for id, m := range s.remember {
		if _, reads := s.peers[id]; !reads && !s.forgotten[id] {
			health, _ := m.peering().Health(now)
			all[string(id)] = statusOf(id, m, health)
		}
	}
	for _, p := range s.faulty {
		status := all[p.Name]
		status.Cluster, status.Message = p.Name, p.Err.Error()
		all[p.Name] = status
	}
	s.mu.Unlock()
	for _, r := range s.readings() {
		status := r.status(now)
		if f, ok := all[string(r.id)]; ok && status.Message == "" {
			status.Message = f.Message
		}
		all[string(r.id)] = status
	}
	var sorted []v1alpha1.PeerStatus
	for _, p := range all {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b v1alpha1.PeerStatus) int { return strings.Compare(a.Cluster, b.Cluster) })
	return sorted
}

// Conditions of a ClusterLease.
const (
	// ConditionRanges says whether its pods' addresses are its own.
	ConditionRanges = "PodRangesDistinct"
)

// leaseConditions are what is true of the cluster as a whole.
func (s *site) leaseConditions() []metav1.Condition {
	conditions := slices.Clone(s.conditions)
	var shared []string
	for _, r := range s.readings() {
		lease := r.lease()
		if lease == nil {
			continue
		}
		for _, pair := range model.Overlaps(s.podRanges, lease.Spec.PodRanges) {
			shared = append(shared, fmt.Sprintf("%s here and %s of %s", pair[0], pair[1], r.id))
		}
	}
	slices.Sort(shared)
	ranges := metav1.Condition{Type: ConditionRanges, Status: metav1.ConditionTrue, Reason: "Distinct", Message: "no peer has pods in a range of this cluster"}
	switch {
	case len(s.podRanges) == 0:
		ranges.Status, ranges.Reason, ranges.Message = metav1.ConditionUnknown, "Unknown", "no node tells its pod range; give --pod-ranges"
	case len(shared) > 0:
		ranges.Status, ranges.Reason = metav1.ConditionFalse, "Overlap"
		ranges.Message = fmt.Sprintf("pod ranges overlap: %s; requests reach the wrong pods until one of them is changed", strings.Join(shared[:min(len(shared), 5)], ", "))
	}
	s.sayOnce(ranges)
	return append(conditions, ranges)
}

// sayOnce logs an overlap when it is new.
func (s *site) sayOnce(c metav1.Condition) {
	s.mu.Lock()
	fresh := c.Status == metav1.ConditionFalse && s.overlap != c.Message
	s.overlap = c.Message
	s.mu.Unlock()
	if fresh {
		s.log.Warn("clusters share pod addresses", "reason", c.Message)
	}
}

// measured is how often gauges are set.
const measured = 5 * time.Second

// measure sets the gauges, until ctx ends.
func (s *site) measure(ctx context.Context) {
	own := string(s.model.Cluster)
	for ctx.Err() == nil {
		live, backlog := s.queue.Depth()
		s.metrics.queue.WithLabelValues(own, "live").Set(float64(live))
		s.metrics.queue.WithLabelValues(own, "backlog").Set(float64(backlog))
		s.measureFacts(own)
		now := time.Now()
		for _, r := range s.readings() {
			peering := r.peering()
			health, _ := peering.Health(now)
			state := r.state(health)
			for _, other := range []string{unknown, string(model.Live), string(model.Stale), string(model.Expired)} {
				is := 0.
				if other == state {
					is = 1
				}
				s.metrics.health.WithLabelValues(own, string(r.id), other).Set(is)
			}
			if !peering.Heard.IsZero() {
				s.metrics.lag.WithLabelValues(own, string(r.id)).Set(now.Sub(peering.Heard).Seconds())
			}
			s.metrics.services.WithLabelValues(own, string(r.id)).Set(float64(peering.Services))
		}
		s.recount()
		access.Pause(ctx, measured)
	}
}

// measureFacts counts what holds for Services now.
func (s *site) measureFacts(own string) {
	holds, conflicts, phases := 0., make(map[string]float64), make(map[string]float64)
	s.mu.Lock()
	for _, n := range s.notes {
		if n.facts.Holds != "" {
			holds++
		}
		if n.facts.Conflict != "" {
			conflicts[n.facts.Conflict]++
		}
		if n.facts.Phase != "" {
			phases[string(n.facts.Phase)]++
		}
	}
	s.mu.Unlock()
	s.metrics.holds.WithLabelValues(own).Set(holds)
	s.metrics.conflicts.DeletePartialMatch(prometheus.Labels{"cluster": own})
	for reason, n := range conflicts {
		s.metrics.conflicts.WithLabelValues(own, reason).Set(n)
	}
	s.metrics.migrating.DeletePartialMatch(prometheus.Labels{"cluster": own})
	for phase, n := range phases {
		s.metrics.migrating.WithLabelValues(own, phase).Set(n)
	}
}
