package model

import (
	"slices"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// answer returns this cluster's answers to the handovers of all other clusters. The
// promises that it gave earlier stay in force until those handovers are over.
func answer(seen *view, aim aim, next next) (all []v1alpha1.Seen) {
	stays := (seen.gives() || seen.candidate()) && aim.role != v1alpha1.RoleReceiver && aim.role != v1alpha1.RoleSingular &&
		!underWay(seen.me.Handover) && !underWay(next.handover)
	for _, id := range seen.peers() {
		if a := seen.answerTo(id, stays); a != nil {
			all = append(all, *a)
		}
	}
	return all
}

// answerTo returns the answer to the handover of one cluster; nil: there is none. stays
// says that this cluster can promise to go on giving endpoints.
func (v *view) answerTo(id ClusterID, stays bool) *v1alpha1.Seen {
	before := answerAbout(v.me.Seen, id)
	if before != nil && v.over(*before) {
		before = nil
	}
	p := v.in.Peers[id]
	if p.Published.Service == nil || !p.Synced || !p.Published.Understood() {
		return before
	}
	h := p.Published.Service.Spec.Handover
	if !underWay(h) || len(h.Heirs) == 0 || h.Phase == v1alpha1.PhasePreparing {
		return before
	}
	if before != nil && before.Turn > h.Turn {
		return before // this view of the peer is older than the one that was answered
	}
	if v.aside(id) {
		return &v1alpha1.Seen{Cluster: string(id), Turn: h.Turn, Aside: true}
	}
	return &v1alpha1.Seen{
		Cluster: string(id),
		Turn:    h.Turn,
		Ready:   min(h.Need, int32(v.inUse(h.Heirs))), //nolint:gosec // endpoints of one Service
		Stays:   v.isHeirIn(h) && stays || before != nil && before.Turn == h.Turn && before.Stays,
	}
}

// aside reports whether this cluster uses no endpoints of another's Service.
func (v *view) aside(id ClusterID) bool {
	switch {
	case !v.shared:
		return true
	case v.svc == nil:
		return !v.in.Local.Namespace && !v.cfg.CreateNamespaces
	case v.me.Role == v1alpha1.RoleSingular:
		return true
	}
	i := slices.IndexFunc(v.others, func(m clusterset.Member) bool { return m.ID == id })
	return i < 0 || v.gives() && !v.agreed(v.others[i])
}
