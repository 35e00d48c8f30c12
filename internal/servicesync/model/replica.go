package model

import (
	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// wanted is the Service as it should be.
type wanted struct {
	// service is nil if the Service is to stay as it is, or there is to be none.
	service *corev1.Service
	// why explains the write of service.
	why string
	// drop says that the replica is to be deleted, whatever service says.
	drop  bool
	notes plan.Notes
}

// changes reports whether the Service exists and is to be updated.
func (w wanted) changes(seen *view) bool {
	return seen.svc != nil && seen.svc.DeletionTimestamp == nil && seen.in.Local.Namespace &&
		!w.drop && w.service != nil && !plan.Same(seen.svc, w.service)
}

// replicating is a replica that is being decided about.
type replicating struct {
	*view
	wanted
}

// replicate decides whether there is to be a replica, and of which cluster's Service.
// It leaves every other Service as it is.
func replicate(seen *view) wanted {
	r := &replicating{view: seen}
	if r.svc == nil || r.me.Replica && r.me.Role == v1alpha1.RoleReceiver {
		r.replicate(r.origin())
	}
	return r.wanted
}

// replicate makes the replica follow a cluster; nil: there is none to follow.
func (r *replicating) replicate(m *clusterset.Member) {
	switch {
	case m == nil:
		r.drop = r.svc != nil && r.unused()
	case r.svc == nil:
		r.service, r.why = r.create(*m), "replicate the Service"
	case template.ShapeOf(r.svc.Spec.Type, r.svc.Spec.ClusterIP == corev1.ClusterIPNone) != template.ShapeOf(m.Template.Type, m.Template.Headless):
		r.drop = true // no update can change the shape; the next decision creates it anew
	default:
		next := r.svc.DeepCopy()
		follow(*m, next)
		if !plan.Same(r.svc, next) {
			r.service, r.why = next, "follow the Service of "+string(m.ID)
		}
	}
}

// origin returns the cluster whose Service a replica is made from; nil: there is none.
// It is the cluster of lowest rank; of several, the one with the oldest Service.
func (r *replicating) origin() *clusterset.Member {
	var best *clusterset.Member
	for i, m := range r.others {
		if m.Template == nil || r.svc != nil && !r.may[m.ID] || m.Role == v1alpha1.RoleSingular || m.Replica && !m.Gives() && m.Role != v1alpha1.RoleCandidate {
			continue
		}
		// A Service that is shared only because of its export is reached through the
		// ServiceImport: its own name stays free here.
		if r.cfg.ExportedOnly && r.svc == nil && m.Exported != nil && m.Mode == v1alpha1.ModeNone && m.Role == v1alpha1.RoleSource {
			continue
		}
		if best == nil || r.rank(m) < r.rank(*best) || r.rank(m) == r.rank(*best) && m.Template.Created.Time.Before(best.Template.Created.Time) {
			best = &r.others[i]
		}
	}
	if r.svc == nil && best != nil && !best.Gives() {
		return nil // there are no endpoints to use yet
	}
	return best
}

// rank says how well a cluster is fit to be followed; lower is better. A cluster is fit if
// it gives endpoints, if its Service was created there, and if the replica follows it now.
func (r *replicating) rank(m clusterset.Member) (rank int) {
	if !m.Gives() {
		rank += 4
	}
	if m.Replica {
		rank += 2
	}
	if r.followed() != m.ID {
		rank++
	}
	return rank
}

// unused reports whether a replica can be deleted: the cluster that it was made from is
// known to have no such Service any more, no other live cluster may have it, and the
// replica has neither endpoints of its own nor a selector.
func (r *replicating) unused() bool {
	for id, p := range r.in.Peers {
		switch {
		case p.Forgotten:
		case p.Published.Service != nil && p.Synced:
			if !p.Published.Understood() {
				return false
			}
		case p.Confirmed:
		case p.Health == Expired && id != r.followed() && !r.imports.uses(id):
			// A cluster whose lease has expired, and whose endpoints are not in use, delays
			// nothing: another cluster must say that the Service is gone.
		default:
			return false // the peer may have publications that were not seen
		}
	}
	_, known := r.in.Peers[r.followed()]
	return known && len(r.own) == 0 && len(r.svc.Spec.Selector) == 0
}

// create returns a new replica.
func (r *replicating) create(m clusterset.Member) *corev1.Service {
	s := &corev1.Service{}
	s.Name, s.Namespace = r.in.Service.Name, r.in.Service.Namespace
	follow(m, s)
	if m.Template.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		if f := template.ChooseFamilies(m.Template, r.cfg.Families, s); f != "" {
			r.notes.Warn("IPFamilyNotSupported", template.FamilyNotSupported(m.ID, f))
		}
	}
	return s
}

// follow makes a replica follow the Service of a cluster.
func follow(m clusterset.Member, replica *corev1.Service) {
	template.Apply(m.Template, replica)
	replica.Labels[v1alpha1.LabelReplica] = string(m.ID)
}

// planService returns the write of the Service.
func planService(seen *view, next next) []Write {
	switch {
	case seen.svc != nil && seen.svc.DeletionTimestamp != nil:
		// Its finalizers delay the deletion.
	case next.drop:
		var all []Write
		for _, name := range sortedNames(seen.have) {
			all = append(all, plan.Deleted(seen.have[name], "its replica goes"))
		}
		return append(all, plan.Deleted(seen.svc, "no cluster has such a Service any more"))
	case next.service == nil:
	case !seen.in.Local.Namespace:
		if seen.cfg.CreateNamespaces {
			// Labels of a namespace hold for its own cluster only, so there are none.
			ns := &corev1.Namespace{}
			ns.Name = seen.in.Service.Namespace
			return []Write{plan.Created(ns, "a replica needs the namespace")}
		}
	case seen.svc == nil:
		return []Write{plan.Created(next.service, next.why)}
	case next.changes(seen):
		return []Write{plan.Updated(seen.svc, next.service, next.why)}
	}
	return nil
}

// lacksNamespace reports whether a Service cannot be written because its namespace is
// missing, and must not be created.
func lacksNamespace(seen *view, next next) bool {
	deleted := seen.svc != nil && seen.svc.DeletionTimestamp != nil
	return !deleted && !next.drop && next.service != nil && !seen.in.Local.Namespace && !seen.cfg.CreateNamespaces
}
