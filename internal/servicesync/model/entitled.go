package model

import (
	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// entitled returns the clusters whose endpoints may be used for the Service here.
//
// It begins with those that objects of this cluster name: the cluster that a replica
// follows, the heir that an annotation names, and the heirs of this cluster's own
// handover. It adds the peers that may claim. Each of these entitles the heirs of its
// own handover, and a member of a union entitles the whole union. If none of them can
// decide any more who gives endpoints, all clusters are entitled.
func entitled(v *view) map[ClusterID]bool {
	all := map[ClusterID]bool{v.followed(): true, ClusterID(v.me.To): true}
	entitleHeirs(all, v.me.Handover)
	for _, m := range v.others {
		if m.Trust.Claim {
			all[m.ID] = true
		}
	}
	inUnion := v.me.Mode == v1alpha1.ModeUnion || v.me.Role == v1alpha1.RoleUnion
	for range v.others { // each pass but the last adds a cluster
		before := len(all)
		for _, m := range v.others {
			switch {
			case all[m.ID]:
				inUnion = inUnion || m.Role == v1alpha1.RoleUnion
				entitleHeirs(all, m.Handover)
			case inUnion && m.Role == v1alpha1.RoleUnion:
				all[m.ID] = true
			}
		}
		if len(all) == before {
			break
		}
	}
	for id := range all {
		if id != "" && id != v.cfg.Cluster && decides(v, id) {
			return all
		}
	}
	for _, m := range v.others {
		all[m.ID] = true
	}
	return all
}

// entitleHeirs adds the heirs of a handover that have been asked to take over.
func entitleHeirs(all map[ClusterID]bool, h *v1alpha1.Handover) {
	if h == nil || h.Phase == v1alpha1.PhasePreparing || h.Phase == v1alpha1.PhaseWithdrawn {
		return
	}
	for _, id := range h.Heirs {
		all[ClusterID(id)] = true
	}
}

// decides reports whether a cluster may still decide which clusters give endpoints: it
// gives some, or is about to, or has handed over. A silent cluster may too, until the
// cluster itself says, or --forget does, that it no longer has the Service.
func decides(v *view, id ClusterID) bool {
	p, known := v.in.Peers[id]
	s := p.Published.Service
	switch {
	case !known:
		return true
	case p.Forgotten:
		return false
	case p.Unheard():
		return true
	case s == nil:
		return false
	}
	h := s.Spec.Handover
	return clusterset.Gives(s.Spec.Role) || s.Spec.Role == v1alpha1.RoleCandidate || h != nil && h.Phase != v1alpha1.PhaseWithdrawn && len(h.Heirs) > 0
}
