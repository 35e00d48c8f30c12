package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// rotate decides which endpoints of other clusters are used here, and what
// becomes of those that are used no more.
func (d *decision) rotate() {
	d.slices = make(map[string]*discoveryv1.EndpointSlice)
	d.sayNativeTwice()
	if d.svc == nil {
		return
	}
	if d.me.Role == v1alpha1.RoleSingular && d.me.Mode != v1alpha1.ModeSingular {
		// About to take part again: what is there stays until the role says so.
		for _, id := range d.clusters() {
			d.retain(id)
		}
		return
	}
	using := d.using()
	for _, id := range d.clusters() {
		d.follow(id, using[id])
	}
	if d.me.Role != v1alpha1.RoleSingular {
		if d.readyInUse() == 0 {
			d.useAnybody()
		}
		d.keepTheLast(using)
	}
	ready := d.ready
	if d.leftIsAll() {
		ready++ // it stays, and is more than what is silent
	}
	d.presentExpired(d.slices, ready)
	d.hint()
}

// clusters are those with endpoints in use or to offer.
func (d *decision) clusters() []ClusterID {
	all := make(map[ClusterID]bool)
	for id := range d.in.Peers {
		all[id] = true
	}
	for _, s := range d.ours {
		all[ClusterID(s.Labels[v1alpha1.LabelCluster])] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// using are the clusters whose endpoints are to be used here.
func (d *decision) using() map[ClusterID]bool {
	using := make(map[ClusterID]bool)
	origin, contested := d.origin()
	for _, m := range d.others {
		switch {
		case !gives(m.Role) || !d.may[m.id]:
		case d.me.Role == v1alpha1.RoleReceiver, d.me.Role == v1alpha1.RoleCandidate:
			using[m.id] = !contested || m.id == origin
		case d.me.Role == v1alpha1.RoleUnion:
			using[m.id] = d.agreed(m) && (m.Role == v1alpha1.RoleUnion || m.Replica || d.me.Replica)
		}
	}
	if d.me.Role == v1alpha1.RoleSingular {
		return using
	}
	for _, m := range d.others {
		if d.follows(m) && d.may[m.id] && m.health != Expired {
			addHeirs(using, m.Handover)
		}
	}
	addHeirs(using, d.handover)
	delete(using, d.cfg.Cluster)
	return using
}

// follows reports whether endpoints of another cluster may be used here at all:
// the Services are one, or this one has given up endpoints of its own.
func (d *decision) follows(m member) bool {
	return d.agreed(m) || d.me.Role == v1alpha1.RoleReceiver || d.me.Role == v1alpha1.RoleCandidate
}

// addHeirs adds those whose endpoints a handover has everybody use.
func addHeirs(using map[ClusterID]bool, h *v1alpha1.Handover) {
	if h == nil || h.Phase != v1alpha1.PhaseJoining && h.Phase != v1alpha1.PhaseCommitted {
		return
	}
	for _, id := range h.Heirs {
		using[ClusterID(id)] = true
	}
}

// origin is the cluster that is used if several have a Service of this name of
// their own which do not belong together: the one that is followed already, or
// the one whose Service is the oldest.
func (d *decision) origin() (ClusterID, bool) {
	var natives []member
	for _, m := range d.others {
		if m.Role == v1alpha1.RoleSource && !m.Replica && !handingOver(m) && m.Template != nil {
			natives = append(natives, m)
		}
	}
	if len(natives) < 2 {
		return "", false
	}
	slices.SortStableFunc(natives, func(a, b member) int {
		return cmp.Or(a.Template.Created.Compare(b.Template.Created.Time), cmp.Compare(a.id, b.id))
	})
	follows := ClusterID(d.svc.Labels[v1alpha1.LabelReplica])
	d.conflict("NativeTwice", fmt.Sprintf("%s and %s each have a Service of this name of their own: one of them only is used here; annotate both with union, or one with receiver or singular", natives[0].id, natives[1].id))
	for _, m := range natives {
		if m.id == follows || follows == "" && d.uses(m.id) {
			return m.id, true
		}
	}
	return natives[0].id, true
}

// sayNativeTwice says that another cluster has a Service of this name too.
func (d *decision) sayNativeTwice() {
	if d.svc == nil || d.me.Replica || !gives(d.me.Role) {
		return
	}
	for _, m := range d.others {
		if gives(m.Role) && !m.Replica && !d.agreed(m) && !handingOver(m) {
			d.conflict("NativeTwice", fmt.Sprintf("%s has a Service of this name of its own: neither uses the other's endpoints; annotate both with union, or one with receiver or singular", m.id))
			return
		}
	}
}

// follow has the slices of a cluster as it publishes them, if it is used, or as
// they were if that is not known.
func (d *decision) follow(id ClusterID, used bool) {
	p, known := d.in.Peers[id]
	published := p.Published.Service
	switch {
	case p.Forgotten, id == "" && d.heardAll(): // it cannot be said any more whose they are
	case !known || !p.Synced || published == nil && !p.Confirmed || published != nil && !understood(published):
		d.retain(id)
		if published != nil && p.Synced {
			d.warn("UnknownFormat", fmt.Sprintf("%s publishes in format %d, and %d is the newest known here: its endpoints stay as they were; bring this cluster's controller up to date", id, published.Spec.FormatVersion, v1alpha1.FormatVersion))
		}
	case published != nil && used:
		all := p.Published.All()
		if !p.Published.Whole(all) {
			d.retain(id) // not all of it is seen
		}
		for _, s := range all {
			if s.Spec.AddressType == discoveryv1.AddressTypeFQDN {
				continue // no proxy uses names, and they may be anybody's
			}
			in := d.imported(id, s)
			d.slices[in.Name] = in
		}
	}
}

// heardAll reports whether what every other cluster has is known.
func (d *decision) heardAll() bool {
	for _, p := range d.in.Peers {
		if !p.Confirmed && !p.Forgotten {
			return false
		}
	}
	return len(d.in.Peers) > 0
}

// retain keeps what is there of a cluster as it is.
func (d *decision) retain(id ClusterID) {
	for name, s := range d.ours {
		if s.Labels[v1alpha1.LabelCluster] == string(id) {
			d.slices[name] = unexpired(s)
		}
	}
}

// useAnybody uses the endpoints of those about to take over, and of those whom
// this cluster has only just taken over from, since there is nothing else.
func (d *decision) useAnybody() {
	for _, m := range d.others {
		if d.follows(m) && d.may[m.id] && (gives(m.Role) || m.Role == v1alpha1.RoleCandidate) {
			d.follow(m.id, true)
		}
	}
}

// keepTheLast keeps what is in use of a cluster that has handed over, or takes
// part again since, while nothing that takes its place is seen here.
func (d *decision) keepTheLast(using map[ClusterID]bool) {
	if d.readyInUse() > 0 || d.me.Role == v1alpha1.RoleSource {
		return
	}
	for _, m := range d.others {
		h := m.Handover
		handed := h != nil && len(h.Heirs) > 0 && (h.Phase == v1alpha1.PhaseCommitted || h.Phase == v1alpha1.PhaseDone)
		if !using[m.id] && handed && (m.Role == v1alpha1.RoleReceiver || m.Role == v1alpha1.RoleCandidate && m.Total == 0) {
			d.retain(m.id)
		}
	}
	d.result.Facts.Kept = d.readyInUse() > 0
}

// readyInUse counts the ready endpoints that there would be, but for those of
// clusters whose lease has run out.
func (d *decision) readyInUse() int { return d.ready + d.readyAmong(d.slices) }

func (d *decision) readyAmong(all map[string]*discoveryv1.EndpointSlice) int {
	n := 0
	for _, s := range all {
		// Nobody can say of those that are nobody's whether they are still there.
		if id := ClusterID(s.Labels[v1alpha1.LabelCluster]); id != "" && d.in.Peers[id].Health != Expired {
			n += readyIn(s)
		}
	}
	return n
}

// inUse counts the ready endpoints of clusters that are in use here by now.
func (d *decision) inUse(of []string) int {
	n := 0
	if slices.Contains(of, string(d.cfg.Cluster)) {
		n = d.ready
	}
	var theirs []*discoveryv1.EndpointSlice
	for _, s := range d.ours {
		if slices.Contains(of, s.Labels[v1alpha1.LabelCluster]) {
			theirs = append(theirs, s)
		}
	}
	ready, _ := count(gather(theirs))
	return n + ready
}

// inUseOfGivers counts those of clusters that give.
func (d *decision) inUseOfGivers() int {
	var givers []string
	for _, m := range d.others {
		if gives(m.Role) {
			givers = append(givers, string(m.id))
		}
	}
	return d.inUse(givers)
}

// presentExpired has endpoints of a cluster whose lease ran out used only if
// nothing else is ready: proxies turn to endpoints that terminate but serve
// when no other is left, without asking anybody.
func (d *decision) presentExpired(all map[string]*discoveryv1.EndpointSlice, ready int) {
	alternative := ready+d.readyAmong(all) > 0
	for _, s := range all {
		stale := ""
		switch d.in.Peers[ClusterID(s.Labels[v1alpha1.LabelCluster])].Health {
		case Live:
		case Stale:
			stale = v1alpha1.StaleKept
		case Expired:
			stale = v1alpha1.StaleExpired
			for i := range s.Endpoints {
				c := &s.Endpoints[i].Conditions
				ready := deref(c.Ready) && !alternative
				back := deref(c.Ready) && alternative
				c.Ready, c.Serving, c.Terminating = &ready, ptr(ready || back), &back
			}
		}
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationStale, stale)
	}
}

func ptr[T any](v T) *T { return &v }
