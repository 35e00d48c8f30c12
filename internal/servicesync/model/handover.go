package model

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// handOver goes one phase on in giving up the role of a source.
func (d *decision) handOver() {
	if d.promised() {
		d.withdraw()
		d.hold("waits for a handover to this cluster to end: it promised to stay until then")
		return
	}
	if len(d.heirs) == 0 {
		d.withdraw()
		if d.me.To != "" {
			d.hold(fmt.Sprintf("waits for %s, which the annotation %s names: no cluster of that name is read and alive here", d.me.To, v1alpha1.AnnotationTo))
			return
		}
		d.hold("waits for somebody to take over: no other cluster is known to; name one with the annotation " + v1alpha1.AnnotationTo)
		return
	}
	h := d.handover
	heirs := names(d.heirs)
	if !underWay(h) || !slices.Equal(h.Heirs, heirs) {
		h = d.newHandover(v1alpha1.PhasePreparing, heirs)
	}
	if h.Phase == v1alpha1.PhasePreparing {
		h.Need = d.need(d.ready)
	}
	d.handover = h
	ready, missing := d.heirsReady(h)
	if ready < h.Need || missing != "" {
		if h.Phase == v1alpha1.PhaseJoining {
			// Answers to this turn counted on endpoints that are not ready any more.
			d.handover = d.newHandover(v1alpha1.PhasePreparing, heirs)
		}
		d.handover.Since = nil
		if missing != "" {
			d.hold("waits for " + missing + " to prepare")
		} else {
			d.hold(fmt.Sprintf("waits for endpoints of %s: %d of %d are ready", join(heirs), ready, h.Need))
		}
		return
	}
	if h.Phase == v1alpha1.PhasePreparing {
		d.waitUntilStable(h)
	} else if who := d.unanswered(h); who != "" {
		d.hold("waits for " + who)
	} else {
		h.Phase = v1alpha1.PhaseCommitted
	}
}

// waitUntilStable lets the heirs' endpoints prove themselves.
func (d *decision) waitUntilStable(h *v1alpha1.Handover) {
	if h.Since == nil {
		h.Since = &metav1.MicroTime{Time: d.in.Now.Truncate(time.Microsecond)}
	}
	stable := h.Since.Add(d.stableFor())
	if d.in.Now.Before(stable) {
		d.again(stable)
		d.hold(fmt.Sprintf("waits until endpoints of %s have been ready for %s", join(h.Heirs), d.stableFor()))
		return
	}
	h.Phase = v1alpha1.PhaseJoining
	d.hold("waits for all clusters to use the endpoints of " + join(h.Heirs))
}

// newHandover begins a turn.
func (d *decision) newHandover(phase v1alpha1.Phase, heirs []string) *v1alpha1.Handover {
	turn := d.in.Now.UnixMilli()
	if d.me.Handover != nil {
		turn = max(turn, d.me.Handover.Turn+1)
	}
	return &v1alpha1.Handover{Turn: turn, Phase: phase, Heirs: heirs, Need: 1}
}

// heirsReady counts the ready endpoints that the heirs publish, and names one
// that is not prepared.
func (d *decision) heirsReady(h *v1alpha1.Handover) (ready int32, missing string) {
	for _, id := range h.Heirs {
		i := slices.IndexFunc(d.others, func(m member) bool { return string(m.id) == id })
		if i < 0 || d.others[i].health != Live || !gives(d.others[i].Role) && d.others[i].Role != v1alpha1.RoleCandidate {
			return 0, id
		}
		ready += d.others[i].Ready
	}
	return ready, ""
}

// unanswered says whose answer a handover lacks; empty: nobody's.
func (d *decision) unanswered(h *v1alpha1.Handover) string {
	if d.inUse(h.Heirs) < int(h.Need) {
		return "the endpoints of " + join(h.Heirs) + " to be in use here"
	}
	for _, id := range sortedPeers(d.in.Peers) {
		p := d.in.Peers[id]
		heir := slices.Contains(h.Heirs, string(id))
		// One whose lease was not listed yet may read this cluster, and is waited for.
		if p.Forgotten || p.Health == Expired || p.Synced && !p.Reads && !heir {
			continue
		}
		a := answerOf(p, d.cfg.Cluster)
		switch {
		case a == nil || a.Turn != h.Turn:
			return fmt.Sprintf("%s to answer", id)
		case heir && !a.Stays:
			return fmt.Sprintf("%s to promise that it stays", id)
		case !a.Aside && a.Ready < h.Need:
			return fmt.Sprintf("%s to use the new endpoints: %d of %d are in use there", id, a.Ready, h.Need)
		}
	}
	return ""
}

// answerOf is what a peer says about a cluster's handover.
func answerOf(p Peer, cluster ClusterID) *v1alpha1.Seen {
	if p.Published.Service == nil || !p.Synced {
		return nil
	}
	all := p.Published.Service.Spec.Seen
	if i := slices.IndexFunc(all, func(s v1alpha1.Seen) bool { return s.Cluster == string(cluster) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// stepBack ends a candidacy: nobody counts on it, so nobody need be asked, but
// something must be in use in its place here.
func (d *decision) stepBack() {
	switch {
	case d.promised():
		d.hold("waits for a handover to this cluster to end: it promised to stay until then")
	case !d.dispensable():
		d.hold("waits for an endpoint of another cluster to be in use here")
	default:
		d.handover = d.newHandover(v1alpha1.PhaseCommitted, nil)
	}
}

// dispensable reports whether a candidate's endpoints are not needed here.
func (d *decision) dispensable() bool { return d.ready == 0 || d.inUseOfGivers() > 0 }

// leaveAlone stops giving because somebody said so, whatever others have.
func (d *decision) leaveAlone() {
	if d.promised() {
		d.hold("waits for a handover to this cluster to end: it promised to stay until then")
		return
	}
	d.handover = d.newHandover(v1alpha1.PhaseCommitted, nil)
}

// finish carries out what was committed: first the Service, then what
// Kubernetes leaves behind, then the record. Until the record says so, no
// promise is given and nothing else begins.
func (d *decision) finish() {
	switch candidate := d.me.Role == v1alpha1.RoleCandidate; {
	case !candidate && !gives(d.me.Role):
	case !d.meant():
		d.handover.Phase = v1alpha1.PhaseWithdrawn
	case d.me.Mode == v1alpha1.ModeSingular:
		d.retire(v1alpha1.RoleSingular, "stand alone")
		return
	case len(d.handover.Heirs) == 0 && !(candidate && d.aim == v1alpha1.RoleReceiver && d.dispensable()):
		d.handover.Phase = v1alpha1.PhaseWithdrawn // nobody counted on it
		return
	default:
		d.retire(v1alpha1.RoleReceiver, "others give instead")
		return
	}
	if len(d.leftOvers()) == 0 {
		d.handover.Phase = v1alpha1.PhaseDone
	}
}

// meant reports whether a handover of a Service that was created here is this
// cluster's wish. Its record alone does not say so: it may lie in a store that
// others write to, and the wish may have been taken back since.
func (d *decision) meant() bool {
	return d.me.Replica || d.me.Mode == v1alpha1.ModeReceiver || d.me.Mode == v1alpha1.ModeSingular || d.me.Role == v1alpha1.RoleCandidate ||
		slices.ContainsFunc(d.handover.Heirs, func(id string) bool { return d.cfg.Trust.Of(ClusterID(id)).Claim })
}

// withdraw takes back a handover that is not committed.
func (d *decision) withdraw() {
	if underWay(d.handover) && d.handover.Phase != v1alpha1.PhaseCommitted {
		d.handover.Phase, d.handover.Since = v1alpha1.PhaseWithdrawn, nil
	}
}

// promised reports whether another cluster counts on this one to stay.
func (d *decision) promised() bool {
	return slices.ContainsFunc(d.me.Seen, func(s v1alpha1.Seen) bool { return s.Stays && !d.over(s) })
}

// over reports whether the handover that an answer is for is over: the cluster
// says so, or has begun a later one, or is gone.
func (d *decision) over(s v1alpha1.Seen) bool {
	p, known := d.in.Peers[ClusterID(s.Cluster)]
	switch {
	case !known || p.Forgotten || p.Health == Expired:
		return true
	case p.Published.Service == nil:
		return p.Confirmed
	}
	h := p.Published.Service.Spec.Handover
	return h != nil && (h.Turn > s.Turn || h.Turn == s.Turn && !underWay(h))
}

// answerAll answers the handovers of other clusters, and keeps the promises
// that were given.
func (d *decision) answerAll() {
	for _, id := range sortedPeers(d.in.Peers) {
		p := d.in.Peers[id]
		if a := d.answerTo(id, p); a != nil {
			d.seen = append(d.seen, *a)
		}
	}
}

func (d *decision) answerTo(id ClusterID, p Peer) *v1alpha1.Seen {
	var before *v1alpha1.Seen
	if i := slices.IndexFunc(d.me.Seen, func(s v1alpha1.Seen) bool { return s.Cluster == string(id) }); i >= 0 && !d.over(d.me.Seen[i]) {
		before = &d.me.Seen[i]
	}
	if p.Published.Service == nil || !p.Synced || !understood(p.Published.Service) {
		return before
	}
	h := p.Published.Service.Spec.Handover
	if !underWay(h) || len(h.Heirs) == 0 || h.Phase == v1alpha1.PhasePreparing {
		return before
	}
	if before != nil && before.Turn > h.Turn {
		return before // an old view of the peer
	}
	a := &v1alpha1.Seen{Cluster: string(id), Turn: h.Turn}
	if d.aside(id) {
		a.Aside = true
		return a
	}
	a.Ready = min(h.Need, int32(d.inUse(h.Heirs))) //nolint:gosec // endpoints of one Service
	promise := slices.Contains(h.Heirs, string(d.cfg.Cluster)) && d.staysFor()
	a.Stays = promise || before != nil && before.Turn == h.Turn && before.Stays
	return a
}

// staysFor reports whether this cluster can promise to go on giving.
func (d *decision) staysFor() bool {
	give := gives(d.me.Role) || d.me.Role == v1alpha1.RoleCandidate
	return give && d.aim != v1alpha1.RoleReceiver && d.aim != v1alpha1.RoleSingular && !underWay(d.me.Handover) && !underWay(d.handover)
}

// aside reports whether this cluster uses nothing of another's Service.
func (d *decision) aside(id ClusterID) bool {
	switch {
	case !d.inScope:
		return true
	case d.svc == nil:
		return !d.in.Local.Namespace && !d.cfg.CreateNamespaces
	case d.me.Role == v1alpha1.RoleSingular:
		return true
	}
	i := slices.IndexFunc(d.others, func(m member) bool { return m.id == id })
	return i < 0 || gives(d.me.Role) && !d.agreed(d.others[i])
}
