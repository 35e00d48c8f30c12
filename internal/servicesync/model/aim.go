package model

import (
	"cmp"
	"fmt"
	"slices"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// aimAt decides which role the Service should come to. Whoever asks for
// something new is followed; what was answered before is history. Where wishes
// contradict each other nothing moves: the aim is the role that it has.
func (d *decision) aimAt() {
	d.aim = d.me.Role
	switch {
	case d.svc == nil:
	case d.me.Mode == v1alpha1.ModeSingular:
		d.aim = v1alpha1.RoleSingular
	case d.me.Asked:
		d.aimAsAsked()
	default:
		d.aimToFollow()
	}
	if d.aim == v1alpha1.RoleReceiver && (gives(d.me.Role) || d.me.Role == v1alpha1.RoleCandidate) {
		d.heirs = d.findHeirs()
	}
}

// aimAsAsked follows the Service's own annotation.
func (d *decision) aimAsAsked() {
	switch d.me.Mode {
	case v1alpha1.ModeSource:
		if other := d.declaredSource(); other != nil {
			d.conflict("TwoSources", fmt.Sprintf("%s is declared to be the source as well: nothing changes until one of the two says receiver or nothing", other.id))
			return
		}
		d.aim = v1alpha1.RoleSource
	case v1alpha1.ModeReceiver:
		d.aim = v1alpha1.RoleReceiver
	case v1alpha1.ModeUnion:
		d.aim = v1alpha1.RoleUnion
	default:
		d.aim = d.byItself()
	}
}

// aimToFollow follows what other clusters ask for.
func (d *decision) aimToFollow() {
	d.sayUnheeded()
	mayGive := gives(d.me.Role) || d.me.Role == v1alpha1.RoleCandidate
	claims := d.claimants()
	switch {
	case len(claims) > 1:
		d.conflict("TwoSources", fmt.Sprintf("%s and %s both ask to be the source: nothing changes until one of them does not", claims[0].id, claims[1].id))
	case len(claims) == 1 && mayGive && !d.agreed(claims[0]):
		// Said as NativeTwice.
	case len(claims) == 1 && mayGive && d.me.Mode == v1alpha1.ModeSource:
		if claims[0].Mode == v1alpha1.ModeSource {
			d.conflict("TwoSources", fmt.Sprintf("%s asks to be the source, and so is declared this one: nothing changes until one of the two says receiver or nothing", claims[0].id))
		}
	case len(claims) == 1:
		if mayGive {
			d.aim = v1alpha1.RoleReceiver
		}
	case d.isHeir() && !gives(d.me.Role) && d.canGive():
		d.aim = v1alpha1.RoleCandidate
	case d.unionInForce() && d.me.Mode != v1alpha1.ModeReceiver && (gives(d.me.Role) || d.canGive()):
		d.aim = v1alpha1.RoleUnion
	case d.blind():
		// Whoever is not seen may ask for just what is.
	case d.isHeir() && d.me.Role == v1alpha1.RoleUnion:
		// It gives already: others count on it to stay.
	case d.me.Role == v1alpha1.RoleUnion, d.me.Role == v1alpha1.RoleCandidate, d.me.Role == v1alpha1.RoleSingular, d.relieved():
		d.aim = d.byItself()
	}
}

// relieved reports whether this cluster, which is to receive and gives because
// nobody else did, is not the only source any more.
func (d *decision) relieved() bool {
	return d.me.Role == v1alpha1.RoleSource && d.me.Mode == v1alpha1.ModeReceiver && slices.ContainsFunc(d.others, func(m member) bool {
		return m.Role == v1alpha1.RoleSource && m.Mode != v1alpha1.ModeReceiver && m.health != Expired && d.agreed(m)
	})
}

// byItself is the role that the Service has if nobody else asks for anything.
func (d *decision) byItself() v1alpha1.Role {
	switch {
	case d.me.Role == v1alpha1.RoleCandidate && !d.me.Asked:
		return d.afterwards()
	case d.me.Mode == v1alpha1.ModeSource:
		return v1alpha1.RoleSource
	case d.me.Mode == v1alpha1.ModeReceiver:
		return v1alpha1.RoleReceiver
	case !d.me.Replica && d.overtaken():
		return v1alpha1.RoleReceiver // what was said counts more than what was not
	case d.me.Replica && gives(d.me.Role) && !d.me.Asked && !d.someoneElses():
		return v1alpha1.RoleSource // what it was made from is gone or has handed over, and it gives
	default:
		return unsaid(d.me.Replica)
	}
}

// overtaken reports whether the Service of this cluster's own, about which nothing is
// said any more, stays a receiver of another that is declared to be the source.
func (d *decision) overtaken() bool {
	m := d.declaredSource()
	return m != nil && d.agreed(*m) && (d.me.Role == v1alpha1.RoleReceiver || d.yields(*m))
}

// someoneElses reports whether another cluster has, or may have, the Service
// that this one was made from, or is the one of several replicas to inherit it.
func (d *decision) someoneElses() bool {
	for _, m := range d.others {
		if !m.Replica && !d.inheritedFrom(m) || m.Role == v1alpha1.RoleSource || gives(m.Role) && m.id < d.cfg.Cluster {
			return true
		}
	}
	return d.unheard()
}

// afterwards is the role of a candidate whose handover is over: the source, if
// it was handed over or nobody else gives, or else a receiver again. Nobody
// asked it to take over from a cluster that is only silent.
func (d *decision) afterwards() v1alpha1.Role {
	for _, m := range d.others {
		if gives(m.Role) && m.health != Expired && !d.inherited() {
			return v1alpha1.RoleReceiver
		}
		if gives(m.Role) && !d.inherited() {
			return v1alpha1.RoleCandidate
		}
	}
	if d.unheard() || d.ready == 0 && !d.inherited() {
		return v1alpha1.RoleCandidate
	}
	return v1alpha1.RoleSource
}

// inherited reports whether a handover to this cluster is done.
func (d *decision) inherited() bool {
	return slices.ContainsFunc(d.others, d.inheritedFrom)
}

// inheritedFrom reports whether another cluster has handed over to this one.
func (d *decision) inheritedFrom(m member) bool {
	return m.Role == v1alpha1.RoleReceiver && m.Handover != nil && m.Handover.Phase == v1alpha1.PhaseDone && slices.Contains(m.Handover.Heirs, string(d.cfg.Cluster))
}

// othersGive reports whether another cluster gives, or may without being seen.
func (d *decision) othersGive() bool {
	for _, m := range d.others {
		if gives(m.Role) && m.health != Expired {
			return true
		}
	}
	return d.unheard()
}

// unheard reports whether endpoints are in use of a cluster that was not heard
// about this Service yet.
func (d *decision) unheard() bool {
	for id, p := range d.in.Peers {
		if !p.Forgotten && !p.Confirmed && (p.Published.Service == nil || !p.Synced) && p.Health != Expired && d.uses(id) {
			return true
		}
	}
	return false
}

// blind reports whether endpoints are in use of a cluster that this process has
// not read yet.
func (d *decision) blind() bool {
	for id, p := range d.in.Peers {
		if !p.Synced && !p.Forgotten && d.uses(id) {
			return true
		}
	}
	return false
}

// uses reports whether endpoints of a cluster are in use here.
func (d *decision) uses(id ClusterID) bool {
	for _, s := range d.ours {
		if s.Labels[v1alpha1.LabelCluster] == string(id) && len(s.Endpoints) > 0 {
			return true
		}
	}
	return false
}

// declaredSource is another cluster whose annotation says source, and was not
// overtaken by what others asked for later.
func (d *decision) declaredSource() *member {
	for i, m := range d.others {
		if m.Mode == v1alpha1.ModeSource && (m.Asked || gives(m.Role)) && m.health != Expired {
			return &d.others[i]
		}
	}
	return nil
}

// claimants are the clusters that want to be the only source: by an annotation
// that says so, or by taking back one that said something else. If nobody asks,
// they are those who have more right to be one than a replica that is, too: one
// that had been handed over, and was taken back before it knew, or one of two
// that did not see each other when both inherited it.
func (d *decision) claimants() []member {
	var said, unsaid, besides, elder []member
	second := d.me.Replica && d.me.Role == v1alpha1.RoleSource && d.me.Mode == v1alpha1.ModeNone && !d.unionInForce()
	for _, m := range d.others {
		switch {
		case m.health == Expired || m.Role == v1alpha1.RoleSingular || !d.yields(m):
		case m.Mode == v1alpha1.ModeSource && (m.Asked || gives(m.Role) && m.Replica):
			said = append(said, m)
		case m.Mode == v1alpha1.ModeNone && m.Asked && !m.Replica:
			unsaid = append(unsaid, m)
		case second && m.Role == v1alpha1.RoleSource && (m.Mode == v1alpha1.ModeSource || m.Mode == v1alpha1.ModeNone && !m.Replica):
			besides = append(besides, m)
		case second && m.Role == v1alpha1.RoleSource && m.Mode == v1alpha1.ModeNone && m.id < d.cfg.Cluster && len(elder) == 0:
			elder = append(elder, m)
		}
	}
	switch {
	case len(said) > 0:
		return said
	case len(unsaid) > 0:
		return unsaid
	case len(besides) > 0:
		return besides
	default:
		return elder
	}
}

// agreed reports whether this Service and another cluster's are one. That is for
// this cluster to say: the Service was made here from another cluster's, or its own
// annotation says what it is to be. Without either, the other cluster's word that
// its Service is a replica of this one counts only if the peer may claim.
func (d *decision) agreed(m member) bool {
	return d.me.Replica || d.spokenFor() || m.Replica && m.trust.Claim
}

// spokenFor reports whether somebody has said here what the Service is to be, or
// had, and it is on its way back.
func (d *decision) spokenFor() bool {
	return d.svc != nil && (d.me.Mode != v1alpha1.ModeNone || d.me.Role != unsaid(d.me.Replica))
}

// yields reports whether this cluster stops giving the Service because another
// asks to be the source: if its own annotation says so and names nobody else, to
// the cluster that a replica was made from, or to a peer that may claim.
func (d *decision) yields(m member) bool {
	switch {
	case m.trust.Claim:
		return true
	case d.me.Mode == v1alpha1.ModeReceiver:
		return d.me.To == "" || d.me.To == string(m.id)
	default:
		return d.me.Replica && d.svc.Labels[v1alpha1.LabelReplica] == string(m.id)
	}
}

// canGive reports whether the Service may get endpoints of its own here, if others
// ask for that. A replica may if somebody has given it some, or its annotation or
// the configuration lets it adopt the selector of the cluster that it follows.
func (d *decision) canGive() bool {
	if !d.me.Replica || d.me.Mode != v1alpha1.ModeNone || len(d.own) > 0 || len(d.svc.Spec.Selector) > 0 {
		return true
	}
	return d.cfg.Trust.Of(ClusterID(d.svc.Labels[v1alpha1.LabelReplica])).Selector
}

// sayUnheeded says which wishes of other clusters come to nothing because nobody
// has allowed them here.
func (d *decision) sayUnheeded() {
	for _, m := range d.others {
		asks := m.Replica && (m.Mode == v1alpha1.ModeSource || m.Mode == v1alpha1.ModeUnion) && (m.Asked || m.Role == v1alpha1.RoleUnion)
		switch {
		case m.health == Expired:
		case asks && gives(d.me.Role) && !d.spokenFor() && !d.me.Replica && !m.trust.Claim:
			d.warn("ClaimNotAllowed", fmt.Sprintf("%s asks to be %s of this Service, which serves here and has no annotation: nothing changes; annotate it with %s here as well, or start with --allow %s=claim", m.id, m.Mode, cmp.Or(map[v1alpha1.Mode]string{v1alpha1.ModeSource: "receiver"}[m.Mode], "union"), m.id))
		case !gives(d.me.Role) && !d.canGive() && (m.Mode == v1alpha1.ModeUnion && m.Role == v1alpha1.RoleUnion || handingOver(m) && slices.Contains(m.Handover.Heirs, string(d.cfg.Cluster))):
			d.warn("SelectorNotAllowed", fmt.Sprintf("%s wants this cluster to give endpoints, and the selector of %s is not adopted here unasked: annotate the replica with %s, or start with --allow %s=selector", m.id, d.svc.Labels[v1alpha1.LabelReplica], cmp.Or(map[v1alpha1.Mode]string{v1alpha1.ModeUnion: "union"}[m.Mode], "source"), d.svc.Labels[v1alpha1.LabelReplica]))
		}
	}
}

// isHeir reports whether another cluster is handing over to this one.
func (d *decision) isHeir() bool {
	for _, m := range d.others {
		if d.may[m.id] && handingOver(m) && slices.Contains(m.Handover.Heirs, string(d.cfg.Cluster)) {
			return true
		}
	}
	return false
}

// handingOver reports whether a handover is under way.
func handingOver(m member) bool { return underWay(m.Handover) && m.health != Expired }

func underWay(h *v1alpha1.Handover) bool {
	return h != nil && h.Phase != v1alpha1.PhaseDone && h.Phase != v1alpha1.PhaseWithdrawn
}

// unionInForce reports whether somebody's annotation asks for union, and was
// not overtaken.
func (d *decision) unionInForce() bool {
	if d.me.Mode == v1alpha1.ModeUnion && d.me.Role == v1alpha1.RoleUnion {
		return true
	}
	for _, m := range d.others {
		if m.Mode == v1alpha1.ModeUnion && (m.Asked || m.Role == v1alpha1.RoleUnion) && d.may[m.id] && d.agreed(m) {
			return true
		}
	}
	return false
}

// findHeirs decides who gives instead of this cluster: whoever claims to, the
// one that is named, those who give already, those whose Service it was in the
// first place, or the only other cluster. Which cluster happens to be prepared
// does not count, or the outcome would depend on who was first.
func (d *decision) findHeirs() []ClusterID {
	stays := func(m member) bool {
		return m.health == Live && m.Mode != v1alpha1.ModeSingular && !underWay(m.Handover) &&
			!(m.Asked && (m.Mode == v1alpha1.ModeReceiver || m.Mode == v1alpha1.ModeNone && m.Replica))
	}
	pick := func(want func(member) bool) (found []ClusterID) {
		for _, m := range d.others {
			if stays(m) && want(m) {
				found = append(found, m.id)
			}
		}
		return found
	}
	if claims := d.claimants(); len(claims) == 1 && stays(claims[0]) {
		return []ClusterID{claims[0].id}
	}
	if d.me.To != "" {
		return d.namedHeir()
	}
	if found := pick(func(m member) bool { return gives(m.Role) }); len(found) > 0 {
		return found
	}
	if found := pick(func(m member) bool { return !m.Replica }); len(found) > 0 {
		return found
	}
	return d.onlyPeer()
}

// namedHeir is the cluster that the annotation names.
func (d *decision) namedHeir() []ClusterID {
	id := ClusterID(d.me.To)
	if p, ok := d.in.Peers[id]; ok && p.Health == Live && id != d.cfg.Cluster {
		return []ClusterID{id}
	}
	d.warn("UnknownHeir", fmt.Sprintf("%s names %q, which is no cluster that is read and alive here: the handover waits", v1alpha1.AnnotationTo, d.me.To))
	return nil
}

// onlyPeer is the one cluster that reads this one, if there is one only, as far
// as all have been listed.
func (d *decision) onlyPeer() []ClusterID {
	var found []ClusterID
	for _, id := range sortedPeers(d.in.Peers) {
		switch p := d.in.Peers[id]; {
		case p.Forgotten:
		case p.Reads:
			found = append(found, id)
		case !p.Synced && p.Health != Expired:
			return nil
		}
	}
	if len(found) != 1 || d.in.Peers[found[0]].Health != Live {
		return nil
	}
	for _, m := range d.others {
		if m.Mode == v1alpha1.ModeSingular || m.Asked && m.Mode == v1alpha1.ModeReceiver {
			return nil
		}
	}
	return found
}

// conflict records that wishes contradict each other.
func (d *decision) conflict(reason, note string) {
	if d.result.Facts.Conflict == "" {
		d.result.Facts.Conflict = reason
		d.warn(reason, note)
	}
}
