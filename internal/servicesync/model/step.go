package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// next is the Service and its handover after the next step.
type next struct {
	wanted
	// handover is the record to publish; nil: there was never one.
	handover *v1alpha1.Handover
	// holds is what the step waits for, as a text for people; empty: nothing.
	holds string
	// again is when the wait ends although no object changes; zero: never.
	again time.Time
}

// stepping is a step that is being made.
type stepping struct {
	*view
	aim aim
	next
}

// unchanged is the step that changes nothing.
func unchanged(seen *view) next { return next{handover: seen.me.Handover.DeepCopy()} }

// step takes the next step from the role that the Service has to its aim. It changes
// the Service in one write at most, so that the role, the answer to the annotation and
// the selector change together. w is the Service as it should be otherwise.
func step(seen *view, aim aim, w wanted) next {
	s := &stepping{seen, aim, unchanged(seen)}
	s.wanted = w
	if s.svc != nil {
		s.step()
	}
	return s.next
}

func (s *stepping) step() {
	if h := s.me.Handover; h != nil && h.Phase == v1alpha1.PhaseCommitted {
		s.finish()
		return
	}
	if s.aim.role != v1alpha1.RoleReceiver && s.aim.role != v1alpha1.RoleSingular {
		s.withdraw()
	}
	switch {
	case s.aim.conflict != "":
		s.withdraw()
		if s.me.Role == v1alpha1.RoleSingular && s.me.Mode != v1alpha1.ModeSingular && s.me.Replica {
			s.take(v1alpha1.RoleReceiver, "it need not stand alone until the conflict is solved")
		}
	case s.aim.role == s.me.Role:
		if s.me.Asked {
			s.take(s.me.Role, "answer the annotation")
		}
	case s.gives() || s.candidate():
		s.fromGiver()
	default:
		s.fromReceiver()
	}
}

// fromGiver takes a step from a role with endpoints of its own.
func (s *stepping) fromGiver() {
	switch s.aim.role {
	case v1alpha1.RoleUnion:
		s.take(v1alpha1.RoleUnion, "give in union with others")
	case v1alpha1.RoleSource:
		switch {
		case s.candidate() && s.inherited():
			s.take(v1alpha1.RoleSource, "it was handed over")
		case s.partnersGive():
			s.hold("waits for the others to stop giving")
		case s.candidate() && s.ready == 0:
			s.hold("waits for an endpoint of its own to be ready")
		default:
			s.take(v1alpha1.RoleSource, "nobody else gives any more")
		}
	case v1alpha1.RoleReceiver:
		if s.candidate() {
			s.stepBack()
		} else {
			s.handOver()
		}
	case v1alpha1.RoleSingular:
		if s.candidate() && s.ready == 0 && len(s.svc.Spec.Selector) > 0 {
			s.hold("waits for an endpoint of its own to be ready before it stands alone")
		} else {
			s.standAlone()
		}
	default:
	}
}

// fromReceiver takes a step from a role without endpoints that other clusters use.
func (s *stepping) fromReceiver() {
	switch s.aim.role {
	case v1alpha1.RoleUnion:
		s.take(v1alpha1.RoleUnion, "give in union with others")
	case v1alpha1.RoleSource:
		if s.me.Role == v1alpha1.RoleSingular && !s.othersGive() {
			s.take(v1alpha1.RoleSource, "give endpoints again")
		} else {
			s.take(v1alpha1.RoleCandidate, "prepare to take over")
		}
	case v1alpha1.RoleCandidate:
		s.take(v1alpha1.RoleCandidate, "prepare to take over")
	case v1alpha1.RoleSingular:
		if len(s.svc.Spec.Selector) == 0 && s.svc.Annotations[v1alpha1.AnnotationSelector] != "" {
			s.take(v1alpha1.RoleCandidate, "have endpoints of its own before it stands alone")
		} else {
			s.take(v1alpha1.RoleSingular, "stand alone")
		}
	case v1alpha1.RoleReceiver:
		switch {
		case len(s.own) == 0 && len(s.svc.Spec.Selector) == 0:
			s.take(v1alpha1.RoleReceiver, "use what others give again")
		case !s.me.Replica && !s.othersGive():
			s.take(v1alpha1.RoleSource, "give until somebody takes over")
		default:
			s.take(v1alpha1.RoleCandidate, "keep its own endpoints until others are in use")
		}
	default:
	}
}

// draft returns the Service as it should be so far, for further changes.
func (s *stepping) draft(why string) *corev1.Service {
	if s.service == nil {
		s.service = s.svc.DeepCopy()
	}
	s.why = why
	return s.service
}

// take gives the Service a role, the selector that the role needs, and the answer to
// its annotation once the role is what the annotation asks for.
func (s *stepping) take(role v1alpha1.Role, why string) {
	svc := s.draft(why)
	s.setRole(svc, role)
	if role == s.aim.role {
		setAnnotation(svc, v1alpha1.AnnotationAnswered, string(s.me.Mode))
	}
	if clusterset.Gives(role) || role == v1alpha1.RoleCandidate {
		s.restoreSelector(svc)
	}
}

// retire gives the Service a role without a selector, and keeps the selector in an
// annotation.
func (s *stepping) retire(role v1alpha1.Role, why string) {
	svc := s.draft(why)
	s.setRole(svc, role)
	answered := s.me.Mode
	if stored := s.in.Published.Service; role != s.aim.role && stored != nil {
		// The handover was committed for the mode that was published then. A mode that
		// was asked for since is still to be answered.
		answered = stored.Spec.Mode
	}
	setAnnotation(svc, v1alpha1.AnnotationAnswered, string(answered))
	setAnnotation(svc, v1alpha1.AnnotationAdopted, "")
	if role == v1alpha1.RoleReceiver && len(svc.Spec.Selector) > 0 {
		saved, err := json.Marshal(svc.Spec.Selector)
		if err != nil {
			panic(err) // a map of strings
		}
		setAnnotation(svc, v1alpha1.AnnotationSelector, string(saved))
		svc.Spec.Selector = nil
	}
}

// setRole records a role, unless it is the default.
func (s *stepping) setRole(svc *corev1.Service, role v1alpha1.Role) {
	if role == defaultRole(s.me.Replica) {
		role = ""
	}
	setAnnotation(svc, v1alpha1.AnnotationRole, string(role))
}

// restoreSelector gives a Service that has no selector the one that was taken away, or
// that of the Service that it was made from.
func (s *stepping) restoreSelector(svc *corev1.Service) {
	if len(svc.Spec.Selector) > 0 {
		return
	}
	if saved := template.Selector(svc); len(saved) > 0 {
		svc.Spec.Selector = saved
		setAnnotation(svc, v1alpha1.AnnotationSelector, "")
		return
	}
	if !s.me.Replica {
		return // its endpoints are managed without a selector
	}
	for _, m := range s.others {
		allowed := m.Trust.Selector || s.me.Mode != v1alpha1.ModeNone && m.ID == s.followed()
		if allowed && m.Template != nil && len(m.Template.Selector) > 0 && (m.Gives() || !m.Replica) {
			svc.Spec.Selector = maps.Clone(m.Template.Selector)
			setAnnotation(svc, v1alpha1.AnnotationAdopted, string(m.ID))
			return
		}
	}
}

// setAnnotation sets an annotation, or removes it if the value is empty.
func setAnnotation(o metav1.Object, key, value string) {
	all := o.GetAnnotations()
	switch {
	case value == "":
		delete(all, key)
		return
	case all == nil:
		all = make(map[string]string)
	}
	all[key] = value
	o.SetAnnotations(all)
}

// hold records what the step waits for, unless it waits for something else already.
func (s *stepping) hold(what string) {
	if s.holds == "" {
		s.holds = what
		s.notes.Inform("Waiting", fmt.Sprintf("on its way from %s to %s, the Service %s", s.me.Role, s.aim.role, what))
	}
}
