package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// replicate decides whether there is to be a replica, and of what.
func (d *decision) replicate() {
	if d.svc != nil && (!d.me.Replica || d.me.Role != v1alpha1.RoleReceiver) {
		return
	}
	m := d.model()
	switch {
	case m == nil && d.svc != nil:
		d.drop = d.unused()
	case m == nil:
	case d.svc == nil:
		d.service, d.serviceWhy = d.newReplica(*m), "replicate the Service"
	case shape(d.svc.Spec.Type, d.svc.Spec.ClusterIP == corev1.ClusterIPNone) != shape(m.Template.Type, m.Template.Headless):
		d.drop = true // made anew at once: what it was cannot become what it is
	default:
		if next := d.replicaOf(*m); !same(d.svc, next) {
			d.service, d.serviceWhy = next, "follow the Service of "+string(m.id)
		}
	}
}

// shape is what of a Service cannot change.
func shape(t corev1.ServiceType, headless bool) string {
	switch {
	case t == corev1.ServiceTypeExternalName:
		return "name"
	case headless:
		return "headless"
	default:
		return "address"
	}
}

// model is whose Service a replica is made from: of those that give, one
// that was not itself made as a replica, the one that it follows, the oldest.
func (d *decision) model() *member {
	var best *member
	for i, m := range d.others {
		if m.Template == nil || d.svc != nil && !d.may[m.id] || m.Role == v1alpha1.RoleSingular || m.Replica && !gives(m.Role) && m.Role != v1alpha1.RoleCandidate {
			continue
		}
		// What is shared for its export only is reached through its ServiceImport:
		// the Service's own name stays free here.
		if d.cfg.ExportedOnly && d.svc == nil && m.Exported != nil && m.Mode == v1alpha1.ModeNone && m.Role == v1alpha1.RoleSource {
			continue
		}
		if best == nil || d.rank(m) < d.rank(*best) || d.rank(m) == d.rank(*best) && older(m, *best) {
			best = &d.others[i]
		}
	}
	if d.svc == nil && best != nil && !gives(best.Role) {
		return nil // there is nothing to use yet
	}
	return best
}

// rank is the lower the better a member is followed.
func (d *decision) rank(m member) int {
	rank := 0
	if !gives(m.Role) {
		rank += 4
	}
	if m.Replica {
		rank += 2
	}
	if d.svc == nil || d.svc.Labels[v1alpha1.LabelReplica] != string(m.id) {
		rank++
	}
	return rank
}

func older(a, b member) bool {
	return a.Template.Created.Time.Before(b.Template.Created.Time)
}

// unused reports whether a replica can go: the cluster that it was made from
// was heard, no other that is alive may have the Service, and nobody gave this
// one endpoints of its own.
func (d *decision) unused() bool {
	from := ClusterID(d.svc.Labels[v1alpha1.LabelReplica])
	for id, p := range d.in.Peers {
		switch s := p.Published.Service; {
		case p.Forgotten:
		case s != nil && p.Synced:
			if !understood(s) {
				return false // who knows what it says
			}
		case p.Confirmed:
		case p.Health == Expired && id != from && !d.uses(id):
			// The dead delay nothing: that the Service is gone is said by another.
		default:
			return false // what is seen of it may be half of what there is
		}
	}
	_, known := d.in.Peers[from]
	return known && len(d.own) == 0 && len(d.svc.Spec.Selector) == 0 && len(d.in.Peers) > 0
}

func (d *decision) newReplica(m member) *corev1.Service {
	s := &corev1.Service{}
	s.Name, s.Namespace = d.in.Service.Name, d.in.Service.Namespace
	d.shapeReplica(s, m)
	if m.Template.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		d.chooseFamilies(s, m)
	}
	return s
}

// chooseFamilies asks for the IP families of the Service that is followed, as
// far as the cluster has them.
func (d *decision) chooseFamilies(s *corev1.Service, m member) {
	if len(m.Template.IPFamilies) > 1 {
		s.Spec.IPFamilyPolicy = ptr(corev1.IPFamilyPolicyPreferDualStack)
	}
	for _, f := range m.Template.IPFamilies {
		if slices.Contains(d.cfg.Families, f) {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, f)
		} else if len(d.cfg.Families) > 0 && len(m.Template.IPFamilies) == 1 {
			d.warn("IPFamilyNotSupported", fmt.Sprintf("the Service of %s is %s, which Services of this cluster cannot be", m.id, f))
		}
	}
}

func (d *decision) replicaOf(m member) *corev1.Service {
	s := d.svc.DeepCopy()
	d.shapeReplica(s, m)
	return s
}

// shapeReplica has a replica be what the Service is that it follows. What
// others have added to it stays.
func (d *decision) shapeReplica(r *corev1.Service, m member) {
	t := m.Template
	labels, annotations := carriedKeys(r)
	r.Labels = exchange(r.Labels, labels, t.Labels)
	r.Annotations = exchange(r.Annotations, annotations, t.Annotations)
	r.Labels[v1alpha1.LabelReplica] = string(m.id)
	setAnnotation(&r.ObjectMeta, v1alpha1.AnnotationCarried, encodeKeys(t.Labels, t.Annotations))
	s := &r.Spec
	s.Type, s.ExternalName = t.Type, t.ExternalName
	s.Ports = replicaPorts(t.Type, t.Ports, s.Ports)
	s.SessionAffinity, s.SessionAffinityConfig = t.SessionAffinity, t.SessionAffinityConfig.DeepCopy()
	s.InternalTrafficPolicy, s.TrafficDistribution = clone(t.InternalTrafficPolicy), clone(t.TrafficDistribution)
	s.PublishNotReadyAddresses = t.PublishNotReadyAddresses
	s.ExternalTrafficPolicy, s.LoadBalancerClass = t.ExternalTrafficPolicy, clone(t.LoadBalancerClass)
	s.AllocateLoadBalancerNodePorts = clone(t.AllocateLoadBalancerNodePorts)
	s.LoadBalancerSourceRanges = slices.Clone(t.LoadBalancerSourceRanges)
}

// carriedKeys are the labels and annotations that came with an earlier pass.
func carriedKeys(r *corev1.Service) (labels, annotations []string) {
	l, a, _ := strings.Cut(r.Annotations[v1alpha1.AnnotationCarried], ";")
	return strings.Split(l, ","), strings.Split(a, ",")
}

func encodeKeys(labels, annotations map[string]string) string {
	if len(labels)+len(annotations) == 0 {
		return ""
	}
	return strings.Join(slices.Sorted(maps.Keys(labels)), ",") + ";" + strings.Join(slices.Sorted(maps.Keys(annotations)), ",")
}

// exchange replaces the keys that were carried before by those carried now.
func exchange(have map[string]string, before []string, now map[string]string) map[string]string {
	out := make(map[string]string, len(have)+len(now)+1)
	maps.Copy(out, have)
	for _, k := range before {
		delete(out, k)
	}
	maps.Copy(out, now)
	return out
}

// replicaPorts keeps the node ports that were given out here, as long as the
// type has any.
func replicaPorts(kind corev1.ServiceType, want, have []corev1.ServicePort) []corev1.ServicePort {
	out := slices.Clone(want)
	if kind != corev1.ServiceTypeNodePort && kind != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for i := range out {
		for _, h := range have {
			if h.Name == out[i].Name && h.Protocol == out[i].Protocol {
				out[i].NodePort = h.NodePort
			}
		}
	}
	return out
}

func (d *decision) planService() {
	switch {
	case d.svc != nil && d.svc.DeletionTimestamp != nil:
		// It waits for whoever holds it back.
	case d.drop:
		for _, name := range slices.Sorted(maps.Keys(d.have)) {
			d.writes = append(d.writes, Write{Delete, Own, d.have[name], nil, "its replica goes"})
		}
		d.writes = append(d.writes, Write{Delete, Own, d.svc, nil, "no cluster has such a Service any more"})
	case d.service == nil:
	case !d.in.Local.Namespace:
		d.planNamespace()
	case d.svc == nil:
		d.writes = append(d.writes, Write{Create, Own, d.service, nil, d.serviceWhy})
	case d.serviceChanges():
		d.writes = append(d.writes, Write{Update, Own, d.service, d.svc, d.serviceWhy})
	}
}

// serviceChanges reports whether the Service is there and is to be another.
func (d *decision) serviceChanges() bool {
	return d.svc != nil && d.svc.DeletionTimestamp == nil && d.in.Local.Namespace &&
		!d.drop && d.service != nil && !same(d.svc, d.service)
}

// planNamespace creates the namespace if that is asked for: without labels,
// for those mean something in their own cluster only.
func (d *decision) planNamespace() {
	if !d.cfg.CreateNamespaces {
		d.result.Facts.Holds = "waits for its namespace to exist here"
		return
	}
	ns := &corev1.Namespace{}
	ns.Name = d.in.Service.Namespace
	d.writes = append(d.writes, Write{Create, Own, ns, nil, "a replica needs the namespace"})
}
