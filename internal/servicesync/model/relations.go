package model

import (
	"slices"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// This file says how other clusters relate to this cluster's Service: whether their
// Services are the same, what they may change here, and what they do now.

// agreed reports whether this cluster's Service and another cluster's are the same. They
// are if this cluster's Service was made from another cluster's, or has an annotation about
// its role. Otherwise they are only if the other cluster says that its Service is a replica
// of this one, and may claim.
func (v *view) agreed(m clusterset.Member) bool {
	return v.me.Replica || v.annotated() || m.Replica && m.Trust.Claim
}

// annotated reports whether the Service has an annotation about its role, or had one
// and is still on its way back to the default.
func (v *view) annotated() bool {
	return v.svc != nil && (v.me.Mode != v1alpha1.ModeNone || v.me.Role != defaultRole(v.me.Replica))
}

// yields reports whether this cluster stops giving endpoints if another cluster asks to be
// the source. It yields to a peer that may claim. If its own annotation says receiver, it
// also yields to the cluster that the annotation names, or to any if it names none.
// Otherwise it also yields to the cluster whose Service its replica was made from.
func (v *view) yields(m clusterset.Member) bool {
	switch {
	case m.Trust.Claim:
		return true
	case v.me.Mode == v1alpha1.ModeReceiver:
		return v.me.To == "" || v.me.To == string(m.ID)
	default:
		return v.me.Replica && v.followed() == m.ID
	}
}

// mayGive reports whether the Service may get endpoints of its own here if other clusters
// ask for that. A replica may have endpoints of its own if it has a selector or endpoints
// already, if it has an annotation, or if the configuration allows it to adopt the selector
// of the cluster that it follows.
func (v *view) mayGive() bool {
	if !v.me.Replica || v.me.Mode != v1alpha1.ModeNone || len(v.own) > 0 || len(v.svc.Spec.Selector) > 0 {
		return true
	}
	return v.cfg.Trust.Of(v.followed()).Selector
}

// accepts reports whether endpoints of another cluster may be used here at all: the
// Services are the same, or this cluster uses endpoints of others.
func (v *view) accepts(m clusterset.Member) bool {
	return v.agreed(m) || v.me.Role == v1alpha1.RoleReceiver || v.candidate()
}

// othersGive reports whether another cluster gives endpoints, or may do so unseen.
func (v *view) othersGive() bool {
	return slices.ContainsFunc(v.others, func(m clusterset.Member) bool { return m.Gives() && m.Health != Expired }) || v.unheard()
}

// partnersGive is othersGive without the clusters whose Services are not the same.
func (v *view) partnersGive() bool {
	return slices.ContainsFunc(v.others, func(m clusterset.Member) bool {
		return m.Gives() && m.Health != Expired && (v.agreed(m) || m.Role == v1alpha1.RoleUnion)
	}) || v.unheard()
}

// givers returns the other clusters that give endpoints.
func (v *view) givers() (all []string) {
	for _, m := range v.others {
		if m.Gives() {
			all = append(all, string(m.ID))
		}
	}
	return all
}

// inherited reports whether a cluster has handed over to this one.
func (v *view) inherited() bool { return slices.ContainsFunc(v.others, v.inheritedFrom) }

// inheritedFrom reports whether another cluster has handed over to this one.
func (v *view) inheritedFrom(m clusterset.Member) bool {
	return m.Role == v1alpha1.RoleReceiver && m.Handover != nil && m.Handover.Phase == v1alpha1.PhaseDone && v.isHeirIn(m.Handover)
}

// isHeirIn reports whether this cluster is an heir of a handover.
func (v *view) isHeirIn(h *v1alpha1.Handover) bool {
	return slices.Contains(h.Heirs, string(v.cfg.Cluster))
}

// isHeir reports whether another cluster is handing over to this one.
func (v *view) isHeir() bool {
	return slices.ContainsFunc(v.others, func(m clusterset.Member) bool { return v.may[m.ID] && handingOver(m) && v.isHeirIn(m.Handover) })
}

// handingOver reports whether a handover of another cluster is under way.
func handingOver(m clusterset.Member) bool { return underWay(m.Handover) && m.Health != Expired }

// underWay reports whether a handover has begun, and neither ended nor been withdrawn.
func underWay(h *v1alpha1.Handover) bool {
	return h != nil && h.Phase != v1alpha1.PhaseDone && h.Phase != v1alpha1.PhaseWithdrawn
}

// unionInForce reports whether a cluster's annotation asks for a union, and no later
// wish of another cluster has ended it.
func (v *view) unionInForce() bool {
	if v.me.Mode == v1alpha1.ModeUnion && v.me.Role == v1alpha1.RoleUnion {
		return true
	}
	return slices.ContainsFunc(v.others, func(m clusterset.Member) bool {
		return m.Mode == v1alpha1.ModeUnion && (m.Asked || m.Role == v1alpha1.RoleUnion) && v.may[m.ID] && v.agreed(m)
	})
}

// promised reports whether another cluster counts on this one to go on giving.
func (v *view) promised() bool {
	return slices.ContainsFunc(v.me.Seen, func(s v1alpha1.Seen) bool { return s.Stays && !v.over(s) })
}

// over reports whether the handover that an answer is for is over: the other cluster
// says so, or has begun a later one, or is gone.
func (v *view) over(s v1alpha1.Seen) bool {
	p, known := v.in.Peers[ClusterID(s.Cluster)]
	switch {
	case !known || p.Forgotten || p.Health == Expired:
		return true
	case p.Published.Service == nil:
		return p.Confirmed
	}
	h := p.Published.Service.Spec.Handover
	return h != nil && (h.Turn > s.Turn || h.Turn == s.Turn && !underWay(h))
}
