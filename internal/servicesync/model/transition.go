package model

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// step takes the next step from the role that the Service has to the one that
// it should have. What it decides is one write of the Service at most, in which
// the role, what was answered and the selector change together.
func (d *decision) step() {
	if d.svc == nil {
		return
	}
	if h := d.me.Handover; h != nil && h.Phase == v1alpha1.PhaseCommitted {
		d.finish()
		return
	}
	if d.aim != v1alpha1.RoleReceiver && d.aim != v1alpha1.RoleSingular {
		d.withdraw()
	}
	switch {
	case d.result.Facts.Conflict != "":
		d.withdraw()
		if d.me.Role == v1alpha1.RoleSingular && d.me.Mode != v1alpha1.ModeSingular && d.me.Replica {
			d.take(v1alpha1.RoleReceiver, "it need not stand alone until the conflict is solved")
		}
	case d.aim == d.me.Role:
		d.answer()
	case gives(d.me.Role) || d.me.Role == v1alpha1.RoleCandidate:
		d.stepOfGiver()
	default:
		d.stepOfReceiver()
	}
}

// stepOfGiver goes on from a role with endpoints of its own.
func (d *decision) stepOfGiver() {
	switch d.aim {
	case v1alpha1.RoleUnion:
		d.take(v1alpha1.RoleUnion, "give in union with others")
	case v1alpha1.RoleSource:
		switch {
		case d.me.Role == v1alpha1.RoleCandidate && d.inherited():
			d.take(v1alpha1.RoleSource, "it was handed over")
		case d.othersGiveToo():
			d.hold("waits for the others to stop giving")
		case d.me.Role == v1alpha1.RoleCandidate && d.ready == 0:
			d.hold("waits for an endpoint of its own to be ready")
		default:
			d.take(v1alpha1.RoleSource, "nobody else gives any more")
		}
	case v1alpha1.RoleReceiver:
		if d.me.Role == v1alpha1.RoleCandidate {
			d.stepBack()
		} else {
			d.handOver()
		}
	case v1alpha1.RoleSingular:
		if d.me.Role == v1alpha1.RoleCandidate && d.ready == 0 && len(d.svc.Spec.Selector) > 0 {
			d.hold("waits for an endpoint of its own to be ready before it stands alone")
		} else {
			d.leaveAlone()
		}
	default:
	}
}

// othersGiveToo reports whether others give to whom this cluster has to do.
func (d *decision) othersGiveToo() bool {
	for _, m := range d.others {
		if gives(m.Role) && m.health != Expired && (d.agreed(m) || m.Role == v1alpha1.RoleUnion) {
			return true
		}
	}
	return d.unheard()
}

// stepOfReceiver goes on from a role without endpoints that others use.
func (d *decision) stepOfReceiver() {
	switch d.aim {
	case v1alpha1.RoleUnion:
		d.take(v1alpha1.RoleUnion, "give in union with others")
	case v1alpha1.RoleSource:
		if d.me.Role == v1alpha1.RoleSingular && !d.othersGive() {
			d.take(v1alpha1.RoleSource, "give endpoints again")
		} else {
			d.take(v1alpha1.RoleCandidate, "prepare to take over")
		}
	case v1alpha1.RoleCandidate:
		d.take(v1alpha1.RoleCandidate, "prepare to take over")
	case v1alpha1.RoleSingular:
		if len(d.svc.Spec.Selector) == 0 && d.svc.Annotations[v1alpha1.AnnotationSelector] != "" {
			d.take(v1alpha1.RoleCandidate, "have endpoints of its own before it stands alone")
		} else {
			d.take(v1alpha1.RoleSingular, "stand alone")
		}
	case v1alpha1.RoleReceiver:
		switch {
		case len(d.own) == 0 && len(d.svc.Spec.Selector) == 0:
			d.take(v1alpha1.RoleReceiver, "use what others give again")
		case !d.me.Replica && !d.othersGive():
			d.take(v1alpha1.RoleSource, "give until somebody takes over")
		default:
			d.take(v1alpha1.RoleCandidate, "keep its own endpoints until others are in use")
		}
	default:
	}
}

// answer records that a wish came true, if it was one.
func (d *decision) answer() {
	if d.me.Asked {
		d.take(d.me.Role, "answer the annotation")
	}
}

// take writes a role, and with it the answer to the annotation and the selector
// that the role needs.
func (d *decision) take(role v1alpha1.Role, why string) {
	s := d.next()
	setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationRole, string(role))
	if role == unsaid(d.me.Replica) {
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationRole, "")
	}
	// A candidate is on its way: its wish is answered when it arrives.
	if role == d.aim {
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationAnswered, string(d.me.Mode))
	}
	if gives(role) || role == v1alpha1.RoleCandidate {
		d.restoreSelector(s)
	}
	d.service, d.serviceWhy = s, why
}

// restoreSelector gives a Service its selector back, or that of the Service
// that it was made from. One that it has stays.
func (d *decision) restoreSelector(s *corev1.Service) {
	if len(s.Spec.Selector) > 0 {
		return
	}
	if saved := selectorOf(s); len(saved) > 0 {
		s.Spec.Selector = saved
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationSelector, "")
		return
	}
	if !d.me.Replica {
		return // somebody manages its endpoints without one
	}
	follows := d.svc.Labels[v1alpha1.LabelReplica]
	for _, m := range d.others {
		allowed := m.trust.Selector || d.me.Mode != v1alpha1.ModeNone && string(m.id) == follows
		if allowed && m.Template != nil && len(m.Template.Selector) > 0 && (gives(m.Role) || !m.Replica) {
			s.Spec.Selector = maps.Clone(m.Template.Selector)
			setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationAdopted, string(m.id))
			return
		}
	}
}

// retire takes the selector away and keeps it, in the same write.
func (d *decision) retire(role v1alpha1.Role, why string) {
	s := d.next()
	setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationRole, string(role))
	if role == unsaid(d.me.Replica) {
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationRole, "")
	}
	answered := d.me.Mode
	if stored := d.in.Published.Service; role != d.aim && stored != nil {
		answered = stored.Spec.Mode // with which it was committed; what was asked since is still to be answered
	}
	setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationAnswered, string(answered))
	setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationAdopted, "")
	if role == v1alpha1.RoleReceiver && len(s.Spec.Selector) > 0 {
		saved, err := json.Marshal(s.Spec.Selector)
		if err != nil {
			panic(err) // a map of strings
		}
		setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationSelector, string(saved))
		s.Spec.Selector = nil
	}
	d.service, d.serviceWhy = s, why
}

// setAnnotation sets an annotation, or removes it.
func setAnnotation(m *metav1.ObjectMeta, key, value string) {
	if value == "" {
		delete(m.Annotations, key)
		return
	}
	if m.Annotations == nil {
		m.Annotations = make(map[string]string)
	}
	m.Annotations[key] = value
}

// hold records what is waited for.
func (d *decision) hold(what string) {
	if d.result.Facts.Holds == "" {
		d.result.Facts.Holds = what
		d.event(corev1.EventTypeNormal, "Waiting", fmt.Sprintf("on its way from %s to %s, the Service %s", d.me.Role, d.aim, what))
	}
}

// next is the Service as it should be so far, to be changed further.
func (d *decision) next() *corev1.Service {
	if d.service != nil {
		return d.service
	}
	return d.svc.DeepCopy()
}
