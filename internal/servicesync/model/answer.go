package model

import (
	"slices"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// answering is what all answers depend on.
type answering struct {
	*view
	// stays says that this cluster can promise to go on giving endpoints.
	stays bool
}

// answer returns this cluster's answers to the handovers of all other clusters. The
// promises that it gave earlier stay in force until those handovers are over.
func answer(seen *view, aim aim, next next) (all []v1alpha1.Seen) {
	a := answering{seen, (seen.gives() || seen.candidate()) && aim.role != v1alpha1.RoleReceiver && aim.role != v1alpha1.RoleSingular &&
		!underWay(seen.me.Handover) && !underWay(next.handover)}
	for _, id := range seen.peers() {
		if given := a.to(id); given != nil {
			all = append(all, *given)
		}
	}
	return all
}

// to returns the answer to the handover of one cluster; nil: there is none.
func (a answering) to(id ClusterID) *v1alpha1.Seen {
	before := answerAbout(a.me.Seen, id)
	if before != nil && a.over(*before) {
		before = nil
	}
	p := a.in.Peers[id]
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
	if a.aside(id) {
		return &v1alpha1.Seen{Cluster: string(id), Turn: h.Turn, Aside: true}
	}
	return &v1alpha1.Seen{
		Cluster: string(id),
		Turn:    h.Turn,
		Ready:   min(h.Need, int32(a.inUse(h.Heirs))), //nolint:gosec // endpoints of one Service
		Stays:   a.isHeirIn(h) && a.stays || before != nil && before.Turn == h.Turn && before.Stays,
	}
}

// aside reports whether this cluster uses no endpoints of another's Service.
func (a answering) aside(id ClusterID) bool {
	switch {
	case !a.shared:
		return true
	case a.svc == nil:
		return !a.in.Local.Namespace && !a.cfg.CreateNamespaces
	case a.me.Role == v1alpha1.RoleSingular:
		return true
	}
	i := slices.IndexFunc(a.others, func(m clusterset.Member) bool { return m.ID == id })
	return i < 0 || a.gives() && !a.agreed(a.others[i])
}
