package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// handOver takes the handover of a Service that gives endpoints one phase further.
func (s *stepping) handOver() {
	if s.holdPromise() {
		s.withdraw()
		return
	}
	if len(s.aim.heirs) == 0 {
		s.withdraw()
		if s.me.To != "" {
			s.hold(fmt.Sprintf("waits for %s, which the annotation %s names: no cluster of that name is read and alive here", s.me.To, v1alpha1.AnnotationTo))
			return
		}
		s.hold("waits for a cluster to take over: none is known that will; name one with the annotation " + v1alpha1.AnnotationTo)
		return
	}
	h, heirs := s.handover, names(s.aim.heirs)
	if !underWay(h) || !slices.Equal(h.Heirs, heirs) {
		h = s.newHandover(v1alpha1.PhasePreparing, heirs)
	}
	if h.Phase == v1alpha1.PhasePreparing {
		h.Need = s.need(s.ready)
	}
	s.handover = h
	ready, missing := s.heirsReady(h)
	if ready < h.Need || missing != "" {
		s.waitForHeirs(h, ready, missing)
		return
	}
	if h.Phase == v1alpha1.PhasePreparing {
		s.waitUntilStable(h)
	} else if what := s.unanswered(h); what != "" {
		s.hold("waits for " + what)
	} else {
		h.Phase = v1alpha1.PhaseCommitted
	}
}

// holdPromise records, if another cluster counts on this one to go on giving, that the
// step waits for that, and returns true.
func (s *stepping) holdPromise() bool {
	promised := s.promised()
	if promised {
		s.hold("waits for a handover to this cluster to end: it promised to stay until then")
	}
	return promised
}

// waitForHeirs waits for the endpoints of the heirs, or for an heir that is missing.
func (s *stepping) waitForHeirs(h *v1alpha1.Handover, ready int32, missing string) {
	if h.Phase == v1alpha1.PhaseJoining {
		// Clusters answered this turn while the endpoints were ready. They no longer
		// are, so another turn begins.
		s.handover = s.newHandover(v1alpha1.PhasePreparing, h.Heirs)
	}
	s.handover.Since = nil
	if missing != "" {
		s.hold("waits for " + missing + " to prepare")
	} else {
		s.hold(fmt.Sprintf("waits for endpoints of %s: %d of %d are ready", strings.Join(h.Heirs, ", "), ready, h.Need))
	}
}

// waitUntilStable lets the handover go on once the heirs' endpoints have been ready for
// long enough.
func (s *stepping) waitUntilStable(h *v1alpha1.Handover) {
	if h.Since == nil {
		h.Since = &metav1.MicroTime{Time: s.in.Now.Truncate(time.Microsecond)}
	}
	stable := h.Since.Add(s.stableFor())
	if s.in.Now.Before(stable) {
		s.again = stable
		s.hold(fmt.Sprintf("waits until endpoints of %s have been ready for %s", strings.Join(h.Heirs, ", "), s.stableFor()))
		return
	}
	h.Phase = v1alpha1.PhaseJoining
	s.hold("waits for all clusters to use the endpoints of " + strings.Join(h.Heirs, ", "))
}

// newHandover begins another turn, which has a higher number than every earlier one.
func (s *stepping) newHandover(phase v1alpha1.Phase, heirs []string) *v1alpha1.Handover {
	turn := s.in.Now.UnixMilli()
	if s.me.Handover != nil {
		turn = max(turn, s.me.Handover.Turn+1)
	}
	return &v1alpha1.Handover{Turn: turn, Phase: phase, Heirs: heirs, Need: 1}
}

// heirsReady counts the ready endpoints that the heirs publish. If an heir is not
// prepared to give endpoints, it returns that heir instead.
func (s *stepping) heirsReady(h *v1alpha1.Handover) (ready int32, missing string) {
	for _, id := range h.Heirs {
		i := slices.IndexFunc(s.others, func(m clusterset.Member) bool { return string(m.ID) == id })
		if i < 0 || s.others[i].Health != Live || !s.others[i].Gives() && s.others[i].Role != v1alpha1.RoleCandidate {
			return 0, id
		}
		ready += s.others[i].Ready
	}
	return ready, ""
}

// unanswered returns what the handover still lacks, for people: the answer of a
// cluster, or the heirs' endpoints in use here. Empty: nothing.
func (s *stepping) unanswered(h *v1alpha1.Handover) string {
	if s.inUse(h.Heirs) < int(h.Need) {
		return "the endpoints of " + strings.Join(h.Heirs, ", ") + " to be in use here"
	}
	for _, id := range s.peers() {
		p := s.in.Peers[id]
		heir := slices.Contains(h.Heirs, string(id))
		// A peer whose lease was not listed yet may read this cluster, and so must answer.
		if p.Forgotten || p.Health == Expired || p.Synced && !p.Reads && !heir {
			continue
		}
		a := answerOf(p, s.cfg.Cluster)
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

// answerOf returns a peer's answer to the handover of a cluster; nil: there is none.
func answerOf(p Peer, cluster ClusterID) *v1alpha1.Seen {
	if p.Published.Service == nil || !p.Synced {
		return nil
	}
	return answerAbout(p.Published.Service.Spec.Seen, cluster)
}

// answerAbout returns the answer to the handover of a cluster; nil: there is none.
func answerAbout(all []v1alpha1.Seen, cluster ClusterID) *v1alpha1.Seen {
	if i := slices.IndexFunc(all, func(s v1alpha1.Seen) bool { return s.Cluster == string(cluster) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// stepBack makes a candidate a receiver again. No cluster counts on its endpoints, so
// it needs no answers, but other endpoints must be in use in their place here.
func (s *stepping) stepBack() {
	switch {
	case s.holdPromise():
	case !s.dispensable():
		s.hold("waits for an endpoint of another cluster to be in use here")
	default:
		s.handover = s.newHandover(v1alpha1.PhaseCommitted, nil)
	}
}

// dispensable reports whether this cluster does not need a candidate's endpoints.
func (s *stepping) dispensable() bool { return s.ready == 0 || s.inUse(s.givers()) > 0 }

// standAlone stops giving endpoints because the annotation says singular, whether or
// not other clusters have endpoints.
func (s *stepping) standAlone() {
	if !s.holdPromise() {
		s.handover = s.newHandover(v1alpha1.PhaseCommitted, nil)
	}
}

// finish carries out a committed handover, over several decisions: it changes the Service,
// then what Kubernetes leaves behind is deleted, then the record says that the handover is
// done. Until then this cluster gives no promise and begins nothing else.
func (s *stepping) finish() {
	switch {
	case !s.candidate() && !s.gives():
		// The Service was changed by an earlier step.
	case !s.meant():
		s.handover.Phase = v1alpha1.PhaseWithdrawn
	case s.me.Mode == v1alpha1.ModeSingular:
		s.retire(v1alpha1.RoleSingular, "stand alone")
		return
	case len(s.handover.Heirs) == 0 && !(s.candidate() && s.aim.role == v1alpha1.RoleReceiver && s.dispensable()):
		s.handover.Phase = v1alpha1.PhaseWithdrawn // no cluster counted on it
		return
	default:
		s.retire(v1alpha1.RoleReceiver, "others give instead")
		return
	}
	if s.leftAlone() || len(s.left.objects()) == 0 {
		s.handover.Phase = v1alpha1.PhaseDone
	}
}

// meant reports whether this cluster itself wants the handover of a Service that was
// created here. The record alone does not prove it: other programs may write to the store
// that holds the record, and the wish may have been withdrawn since.
func (s *stepping) meant() bool {
	return s.me.Replica || s.me.Mode == v1alpha1.ModeReceiver || s.me.Mode == v1alpha1.ModeSingular || s.candidate() ||
		slices.ContainsFunc(s.handover.Heirs, func(id string) bool { return s.cfg.Trust.Of(ClusterID(id)).Claim })
}

// withdraw ends a handover that is not committed.
func (s *stepping) withdraw() {
	if underWay(s.handover) && s.handover.Phase != v1alpha1.PhaseCommitted {
		s.handover.Phase, s.handover.Since = v1alpha1.PhaseWithdrawn, nil
	}
}

// need returns how many endpoints of the heirs must be ready to replace n: 1 or more.
func (s *stepping) need(n int) int32 {
	want := s.cfg.MinReady
	if want == (intstr.IntOrString{}) {
		want = intstr.FromString("75%")
	}
	if a := s.svc.Annotations[v1alpha1.AnnotationMinReady]; a != "" {
		want = intstr.Parse(a)
	}
	v, err := intstr.GetScaledValueFromIntOrPercent(&want, n, true)
	if err != nil {
		s.notes.Warn("BadMinReady", fmt.Sprintf("%s is %q, which is neither a number nor a percentage: until that is mended, all endpoints that are given up must be replaced", v1alpha1.AnnotationMinReady, want.String()))
		v = n
	}
	return int32(max(v, 1)) //nolint:gosec // endpoints of one Service
}

// stableFor returns for how long so many endpoints must have been ready.
func (s *stepping) stableFor() time.Duration {
	a, ok := s.svc.Annotations[v1alpha1.AnnotationStableFor]
	if !ok {
		return s.cfg.StableFor
	}
	v, err := time.ParseDuration(a)
	if err != nil || v < 0 {
		s.notes.Warn("BadStableFor", fmt.Sprintf("%s is %q, which is no duration such as 30s: %s counts until that is mended", v1alpha1.AnnotationStableFor, a, s.cfg.StableFor))
		return s.cfg.StableFor
	}
	return v
}

// names returns identities as strings, in order.
func names(ids []ClusterID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	slices.Sort(out)
	return out
}
