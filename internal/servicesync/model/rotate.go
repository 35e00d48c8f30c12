package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// use holds the endpoints of other clusters that are used here.
type use struct {
	// parts are the parts of slices that are used. Invariant: they share no memory with
	// the view.
	parts parts
	// conflict is the aim's conflict, or else the reason why Services of one name do not
	// belong together; empty: none.
	conflict string
	// kept says that endpoints stay although their cluster has handed over, because
	// nothing else is ready.
	kept  bool
	notes plan.Notes
}

// rotating is a use that is being made.
type rotating struct {
	*view
	// handover is this cluster's own after the step; nil: there was never one.
	handover *v1alpha1.Handover
	use
}

// rotate decides which endpoints of other clusters are used here. Endpoints that are no
// longer wanted go once others replace them.
func rotate(seen *view, aim aim, next next) use {
	r := &rotating{seen, next.handover, use{parts: make(parts), conflict: aim.conflict}}
	r.noteTwoNatives()
	if r.svc != nil {
		r.rotate()
	}
	return r.use
}

func (r *rotating) rotate() {
	if r.me.Role == v1alpha1.RoleSingular && r.me.Mode != v1alpha1.ModeSingular {
		// The Service will share endpoints again. Until its role says so, the endpoints
		// in use stay.
		for _, id := range r.clusters() {
			r.retain(id)
		}
		return
	}
	wanted := r.wanted()
	for _, id := range r.clusters() {
		r.take(id, wanted[id])
	}
	if r.me.Role != v1alpha1.RoleSingular {
		if r.readyInUse() == 0 {
			r.takeAny()
		}
		r.keepTheLast(wanted)
	}
	r.markStale()
	hint(r.view, r.parts, &r.notes)
}

// clusters returns the clusters that are read or have endpoints in use here.
func (r *rotating) clusters() []ClusterID {
	all := make(map[ClusterID]bool)
	for id := range r.in.Peers {
		all[id] = true
	}
	for _, p := range r.imports {
		all[p.Cluster] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// wanted returns the clusters whose endpoints are to be used here: those that give, as
// far as the role here allows it, and the heirs of handovers.
func (r *rotating) wanted() map[ClusterID]bool {
	wanted := make(map[ClusterID]bool)
	only, contested := r.native()
	for _, m := range r.others {
		switch {
		case !m.Gives() || !r.may[m.ID]:
		case r.me.Role == v1alpha1.RoleReceiver, r.candidate():
			wanted[m.ID] = !contested || m.ID == only
		case r.me.Role == v1alpha1.RoleUnion:
			wanted[m.ID] = r.agreed(m) && (m.Role == v1alpha1.RoleUnion || m.Replica || r.me.Replica)
		}
	}
	if r.me.Role == v1alpha1.RoleSingular {
		return wanted
	}
	for _, m := range r.others {
		if r.accepts(m) && r.may[m.ID] && m.Health != Expired {
			addHeirs(wanted, m.Handover)
		}
	}
	addHeirs(wanted, r.handover)
	delete(wanted, r.cfg.Cluster)
	return wanted
}

// addHeirs adds the heirs of a handover once all clusters are to use their endpoints.
func addHeirs(wanted map[ClusterID]bool, h *v1alpha1.Handover) {
	if h == nil || h.Phase != v1alpha1.PhaseJoining && h.Phase != v1alpha1.PhaseCommitted {
		return
	}
	for _, id := range h.Heirs {
		wanted[ClusterID(id)] = true
	}
}

// native returns, if several clusters have created a Service of this name that do not
// belong together, the only one whose endpoints are used: the one that the replica
// follows or that is in use already, or else the one with the oldest Service.
func (r *rotating) native() (only ClusterID, contested bool) {
	var natives []clusterset.Member
	for _, m := range r.others {
		if m.Role == v1alpha1.RoleSource && !m.Replica && !handingOver(m) && m.Template != nil {
			natives = append(natives, m)
		}
	}
	if len(natives) < 2 {
		return "", false
	}
	slices.SortStableFunc(natives, func(a, b clusterset.Member) int {
		return cmp.Or(a.Template.Created.Compare(b.Template.Created.Time), cmp.Compare(a.ID, b.ID))
	})
	r.contradict(fmt.Sprintf("%s and %s each have a Service of this name of their own: one of them only is used here; annotate both with union, or one with receiver or singular", natives[0].ID, natives[1].ID))
	for _, m := range natives {
		if f := r.followed(); m.ID == f || f == "" && r.imports.uses(m.ID) {
			return m.ID, true
		}
	}
	return natives[0].ID, true
}

// noteTwoNatives notes that another cluster has created a Service of this name too.
func (r *rotating) noteTwoNatives() {
	if r.svc == nil || r.me.Replica || !r.gives() {
		return
	}
	for _, m := range r.others {
		if m.Gives() && !m.Replica && !r.agreed(m) && !handingOver(m) {
			r.contradict(fmt.Sprintf("%s has a Service of this name of its own: neither uses the other's endpoints; annotate both with union, or one with receiver or singular", m.ID))
			return
		}
	}
}

// contradict records the conflict NativeTwice, unless there is a conflict already.
func (r *rotating) contradict(note string) {
	if r.conflict == "" {
		r.conflict = "NativeTwice"
		r.notes.Warn(r.conflict, note)
	}
}

// take uses the endpoints that a cluster publishes, if wanted. If it is not known what
// the cluster publishes, those that are in use stay.
func (r *rotating) take(id ClusterID, wanted bool) {
	p, known := r.in.Peers[id]
	published := p.Published.Service
	switch {
	case p.Forgotten:
	case id == "" && r.heardAll():
		// Nobody can tell any more whose endpoints these are.
	case !known || p.Unheard():
		r.retain(id)
		if published != nil && p.Synced {
			r.notes.Warn("UnknownFormat", fmt.Sprintf("%s publishes in format %d, and %d is the newest known here: its endpoints stay as they were; bring this cluster's controller up to date", id, published.Spec.FormatVersion, v1alpha1.FormatVersion))
		}
	case published != nil && wanted:
		all := p.Published.All()
		if !p.Published.Whole(all) {
			r.retain(id) // some slices were not seen yet
		}
		for _, s := range all {
			// No proxy uses names, and a name may be that of any server.
			if s.Spec.AddressType != discoveryv1.AddressTypeFQDN {
				part := r.part(id, s)
				r.parts[part.Name()] = part
			}
		}
	}
}

// heardAll reports whether this cluster knows what every other cluster publishes.
func (r *rotating) heardAll() bool {
	for _, p := range r.in.Peers {
		if !p.Confirmed && !p.Forgotten {
			return false
		}
	}
	return len(r.in.Peers) > 0
}

// part returns the part for a slice that a peer publishes. It leaves out addresses that
// endpoints of this cluster have: if pod ranges overlap, the address is theirs here.
func (r *rotating) part(id ClusterID, s *v1alpha1.PublishedSlice) *endpointslice.Part {
	p := &endpointslice.Part{Cluster: id, Slice: s.Name, AddressType: s.Spec.AddressType}
	for _, port := range s.Spec.Ports {
		p.Ports = append(p.Ports, *port.DeepCopy())
	}
	for _, e := range r.rules().Endpoints(id, s, &r.notes) {
		if r.own.Has(e.Address) {
			r.notes.Warn("AddressTwice", "an endpoint of another cluster has the address "+e.Address+" of one of this cluster, and is left out: their pod ranges overlap")
			continue
		}
		p.Endpoints = append(p.Endpoints, e.Imported())
	}
	return p
}

// retain keeps the endpoints of a cluster that are in use.
func (r *rotating) retain(id ClusterID) {
	for name, p := range r.imports {
		if p.Cluster == id {
			r.parts[name] = p.Unexpired()
		}
	}
}

// takeAny uses, because nothing else is ready, the endpoints of clusters that prepare
// to take over, and of those that this cluster has just taken over from.
func (r *rotating) takeAny() {
	for _, m := range r.others {
		if r.accepts(m) && r.may[m.ID] && (m.Gives() || m.Role == v1alpha1.RoleCandidate) {
			r.take(m.ID, true)
		}
	}
}

// keepTheLast keeps endpoints in use, although their cluster has handed over, as long
// as nothing that replaces them is seen here.
func (r *rotating) keepTheLast(wanted map[ClusterID]bool) {
	if r.readyInUse() > 0 || r.me.Role == v1alpha1.RoleSource {
		return
	}
	for _, m := range r.others {
		h := m.Handover
		handed := h != nil && len(h.Heirs) > 0 && (h.Phase == v1alpha1.PhaseCommitted || h.Phase == v1alpha1.PhaseDone)
		if !wanted[m.ID] && handed && (m.Role == v1alpha1.RoleReceiver || m.Role == v1alpha1.RoleCandidate && m.Total == 0) {
			r.retain(m.ID)
		}
	}
	r.kept = r.readyInUse() > 0
}

// readyInUse counts the ready endpoints that are to be used, including this cluster's own,
// but not those of clusters whose leases have expired.
func (r *rotating) readyInUse() int { return r.ready + r.readyAmong(r.parts) }

// markStale marks the endpoints of clusters whose leases are stale or expired. Endpoints of
// a cluster with an expired lease are used only if nothing else is ready.
func (r *rotating) markStale() {
	alternative := r.readyInUse() > 0 || r.leftServe(r.parts)
	for _, p := range r.parts {
		health := r.in.Peers[p.Cluster].Health
		if health == Expired {
			endpointslice.Expire(p.Endpoints, alternative)
		}
		p.Stale = health.Mark()
	}
}
