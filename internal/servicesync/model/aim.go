package model

import (
	"cmp"
	"fmt"
	"slices"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// aim is the role that the Service of this cluster should come to have.
type aim struct {
	// role is the role it has if nothing is to change, or if the clusters' wishes
	// contradict each other.
	role v1alpha1.Role
	// heirs are the clusters that are to give endpoints instead of this one.
	// Invariant: empty unless role is receiver and this cluster gives, or is a
	// candidate; then empty if no cluster is known that can.
	heirs []ClusterID
	// conflict is the reason why wishes contradict each other; empty: they do not.
	conflict string
	notes    plan.Notes
}

// aiming is an aim that is being made.
type aiming struct {
	*view
	aim
}

// aimOf decides which role the Service should come to have. A wish that has not been
// answered yet counts more than wishes that have.
func aimOf(seen *view) aim {
	a := &aiming{seen, aim{role: seen.me.Role}}
	switch {
	case a.svc == nil:
	case a.me.Mode == v1alpha1.ModeSingular:
		a.role = v1alpha1.RoleSingular
	case a.me.Asked:
		a.asAsked()
	default:
		a.asOthersAsk()
	}
	if a.role == v1alpha1.RoleReceiver && (a.gives() || a.candidate()) {
		a.heirs = a.findHeirs()
	}
	return a.aim
}

// asAsked follows the Service's own annotation.
func (a *aiming) asAsked() {
	switch a.me.Mode {
	case v1alpha1.ModeSource:
		if other := a.declaredSource(); other != nil {
			a.contradict("TwoSources", fmt.Sprintf("%s is declared to be the source as well: nothing changes until one of the two annotations says receiver or is removed", other.ID))
			return
		}
		a.role = v1alpha1.RoleSource
	case v1alpha1.ModeReceiver:
		a.role = v1alpha1.RoleReceiver
	case v1alpha1.ModeUnion:
		a.role = v1alpha1.RoleUnion
	default:
		a.role = a.byItself()
	}
}

// asOthersAsk follows what other clusters ask for, as far as they may.
func (a *aiming) asOthersAsk() {
	a.noteUnheeded()
	claims := a.claimants()
	switch {
	case len(claims) > 1:
		a.contradict("TwoSources", fmt.Sprintf("%s and %s both ask to be the source: nothing changes until one of them stops asking", claims[0].ID, claims[1].ID))
	case len(claims) == 1:
		a.asClaimed(claims[0])
	case a.isHeir() && !a.gives() && a.mayGive():
		a.role = v1alpha1.RoleCandidate
	case a.unionInForce() && a.me.Mode != v1alpha1.ModeReceiver && (a.gives() || a.mayGive()):
		a.role = v1alpha1.RoleUnion
	case a.blind():
		// A cluster that was not listed yet may ask for the role that this one has.
	case a.isHeir() && a.me.Role == v1alpha1.RoleUnion:
		// The cluster gives already, and keeps its role because others count on it.
	case a.me.Role == v1alpha1.RoleUnion, a.candidate(), a.me.Role == v1alpha1.RoleSingular, a.relieved():
		a.role = a.byItself()
	}
}

// asClaimed follows the only cluster that asks to be the source.
func (a *aiming) asClaimed(m clusterset.Member) {
	switch {
	case !a.gives() && !a.candidate():
		// There is nothing to hand over.
	case !a.agreed(m):
		// The Services are not the same: noteTwoNatives says so.
	case a.me.Mode != v1alpha1.ModeSource:
		a.role = v1alpha1.RoleReceiver
	case m.Mode == v1alpha1.ModeSource:
		a.contradict("TwoSources", fmt.Sprintf("%s asks to be the source, but this cluster is declared the source: nothing changes until one of the two annotations says receiver or is removed", m.ID))
	}
}

// relieved reports whether this cluster is to be a receiver, gives only because no
// other cluster did, and now another is the source.
func (a *aiming) relieved() bool {
	return a.me.Role == v1alpha1.RoleSource && a.me.Mode == v1alpha1.ModeReceiver && slices.ContainsFunc(a.others, func(m clusterset.Member) bool {
		return m.Role == v1alpha1.RoleSource && m.Mode != v1alpha1.ModeReceiver && m.Health != Expired && a.agreed(m)
	})
}

// byItself returns the role of the Service if no other cluster asks for anything.
func (a *aiming) byItself() v1alpha1.Role {
	switch {
	case a.candidate() && !a.me.Asked:
		return a.afterHandover()
	case a.me.Mode == v1alpha1.ModeSource:
		return v1alpha1.RoleSource
	case a.me.Mode == v1alpha1.ModeReceiver:
		return v1alpha1.RoleReceiver
	case !a.me.Replica && a.overtaken():
		return v1alpha1.RoleReceiver // another cluster's annotation counts more than none here
	case a.me.Replica && a.gives() && !a.me.Asked && !a.ownedElsewhere():
		return v1alpha1.RoleSource // the Service it was made from is gone or was handed over
	default:
		return defaultRole(a.me.Replica)
	}
}

// overtaken reports whether a Service that was created here, and whose annotation was
// taken away, remains a receiver of another cluster that is declared to be the source.
func (a *aiming) overtaken() bool {
	m := a.declaredSource()
	return m != nil && a.agreed(*m) && (a.me.Role == v1alpha1.RoleReceiver || a.yields(*m))
}

// ownedElsewhere reports whether another cluster has, or may have, the Service that this
// replica was made from, or has a replica that comes before this one in inheriting the
// Service.
func (a *aiming) ownedElsewhere() bool {
	return slices.ContainsFunc(a.others, func(m clusterset.Member) bool {
		return !m.Replica && !a.inheritedFrom(m) || m.Role == v1alpha1.RoleSource || m.Gives() && m.ID < a.cfg.Cluster
	}) || a.unheard()
}

// afterHandover returns the role of a candidate once no handover to it is under way:
// source if it has inherited the Service or no other cluster gives, else receiver. While
// the cluster that gives is only silent, a candidate stays a candidate, because nobody
// asked it to take over from a silent cluster.
func (a *aiming) afterHandover() v1alpha1.Role {
	if a.inherited() {
		if a.unheard() {
			return v1alpha1.RoleCandidate
		}
		return v1alpha1.RoleSource
	}
	for _, m := range a.others {
		if m.Gives() && m.Health != Expired {
			return v1alpha1.RoleReceiver
		}
		if m.Gives() {
			return v1alpha1.RoleCandidate
		}
	}
	if a.unheard() || a.ready == 0 {
		return v1alpha1.RoleCandidate
	}
	return v1alpha1.RoleSource
}

// declaredSource returns another cluster whose annotation says source, and from which
// no later wish has taken the role; nil: there is none.
func (a *aiming) declaredSource() *clusterset.Member {
	for i, m := range a.others {
		if m.Mode == v1alpha1.ModeSource && (m.Asked || m.Gives()) && m.Health != Expired {
			return &a.others[i]
		}
	}
	return nil
}

// claimants returns the clusters that want to be the only source: those whose
// annotation says so; else those where an annotation was taken away from a Service
// that was created there. If there are none, and this cluster is a source although its
// Service is a replica, it returns the sources that come first: a Service that is
// declared the source or was created in its cluster, else the replica with the lowest
// identity. The former was handed over and taken back before this cluster saw it; the
// latter inherited the Service at the same time.
func (a *aiming) claimants() []clusterset.Member {
	var declared, takenBack, created, lowest []clusterset.Member
	second := a.me.Replica && a.me.Role == v1alpha1.RoleSource && a.me.Mode == v1alpha1.ModeNone && !a.unionInForce()
	for _, m := range a.others {
		switch {
		case m.Health == Expired || m.Role == v1alpha1.RoleSingular || !a.yields(m):
		case m.Mode == v1alpha1.ModeSource && (m.Asked || m.Gives() && m.Replica):
			declared = append(declared, m)
		case m.Mode == v1alpha1.ModeNone && m.Asked && !m.Replica:
			takenBack = append(takenBack, m)
		case second && m.Role == v1alpha1.RoleSource && (m.Mode == v1alpha1.ModeSource || m.Mode == v1alpha1.ModeNone && !m.Replica):
			created = append(created, m)
		case second && m.Role == v1alpha1.RoleSource && m.Mode == v1alpha1.ModeNone && m.ID < a.cfg.Cluster && len(lowest) == 0:
			lowest = append(lowest, m)
		}
	}
	for _, found := range [][]clusterset.Member{declared, takenBack, created} {
		if len(found) > 0 {
			return found
		}
	}
	return lowest
}

// noteUnheeded notes the wishes of other clusters that change nothing because this
// cluster does not allow them.
func (a *aiming) noteUnheeded() {
	for _, m := range a.others {
		asks := m.Replica && (m.Mode == v1alpha1.ModeSource || m.Mode == v1alpha1.ModeUnion) && (m.Asked || m.Role == v1alpha1.RoleUnion)
		switch {
		case m.Health == Expired:
		case asks && a.gives() && !a.annotated() && !a.me.Replica && !m.Trust.Claim:
			a.notes.Warn("ClaimNotAllowed", fmt.Sprintf("%s asks to be %s of this Service, which serves here and has no annotation: nothing changes; annotate it with %s here as well, or start with --allow %s=claim", m.ID, m.Mode, cmp.Or(map[v1alpha1.Mode]string{v1alpha1.ModeSource: "receiver"}[m.Mode], "union"), m.ID))
		case !a.gives() && !a.mayGive() && (m.Mode == v1alpha1.ModeUnion && m.Role == v1alpha1.RoleUnion || handingOver(m) && a.isHeirIn(m.Handover)):
			a.notes.Warn("SelectorNotAllowed", fmt.Sprintf("%s wants this cluster to give endpoints, and the selector of %s is not adopted here unasked: annotate the replica with %s, or start with --allow %s=selector", m.ID, a.followed(), cmp.Or(map[v1alpha1.Mode]string{v1alpha1.ModeUnion: "union"}[m.Mode], "source"), a.followed()))
		}
	}
}

// contradict records that wishes contradict each other.
func (a *aiming) contradict(reason, note string) {
	a.conflict = reason
	a.notes.Warn(reason, note)
}

// findHeirs returns the clusters that are to give endpoints instead of this one: the
// only cluster that claims to, or the one that the annotation names, or those that give
// already, or those where the Service was created, or the only other cluster. It does
// not matter which clusters are prepared: the outcome must not depend on who was first.
func (a *aiming) findHeirs() []ClusterID {
	stays := func(m clusterset.Member) bool {
		return m.Health == Live && m.Mode != v1alpha1.ModeSingular && !underWay(m.Handover) &&
			!(m.Asked && (m.Mode == v1alpha1.ModeReceiver || m.Mode == v1alpha1.ModeNone && m.Replica))
	}
	pick := func(wanted func(clusterset.Member) bool) (found []ClusterID) {
		for _, m := range a.others {
			if stays(m) && wanted(m) {
				found = append(found, m.ID)
			}
		}
		return found
	}
	if claims := a.claimants(); len(claims) == 1 && stays(claims[0]) {
		return []ClusterID{claims[0].ID}
	}
	if a.me.To != "" {
		return a.namedHeir()
	}
	if found := pick(clusterset.Member.Gives); len(found) > 0 {
		return found
	}
	if found := pick(func(m clusterset.Member) bool { return !m.Replica }); len(found) > 0 {
		return found
	}
	return a.onlyPeer()
}

// namedHeir returns the cluster that the annotation names, if it is read and alive.
func (a *aiming) namedHeir() []ClusterID {
	id := ClusterID(a.me.To)
	if p, ok := a.in.Peers[id]; ok && p.Health == Live && id != a.cfg.Cluster {
		return []ClusterID{id}
	}
	a.notes.Warn("UnknownHeir", fmt.Sprintf("%s names %q, which is no cluster that is read and alive here: the handover waits", v1alpha1.AnnotationTo, a.me.To))
	return nil
}

// onlyPeer returns the only cluster that reads this one. It returns none if there are
// several, or may be because a peer was not listed yet.
func (a *aiming) onlyPeer() []ClusterID {
	var found []ClusterID
	for _, id := range a.peers() {
		switch p := a.in.Peers[id]; {
		case p.Forgotten:
		case p.Reads:
			found = append(found, id)
		case !p.Synced && p.Health != Expired:
			return nil
		}
	}
	if len(found) != 1 || a.in.Peers[found[0]].Health != Live {
		return nil
	}
	for _, m := range a.others {
		if m.Mode == v1alpha1.ModeSingular || m.Asked && m.Mode == v1alpha1.ModeReceiver {
			return nil
		}
	}
	return found
}
