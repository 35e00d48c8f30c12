package model

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/admission"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/mcs"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// view holds what exists: everything that the steps of a decision depend on. Invariant: it
// does not change after look.
type view struct {
	cfg Config
	// in is the Input. Invariant: its Peers hold only what admission let in.
	in Input
	// shared says that the Service's namespace is shared, and that the Service is not
	// a derived one.
	shared bool
	// svc is the Service; nil: there is none.
	svc *corev1.Service
	// me is what this cluster says about itself in its publication, except for its
	// endpoints. Handover and Seen come from the stored publication.
	me clusterset.Member
	// own are this cluster's own endpoints; ready of them are ready.
	own   endpointslice.Set
	ready int
	// others are the other clusters that publish the Service, in the order of their
	// identities.
	others []clusterset.Member
	// may are the clusters whose endpoints may be used here; see entitled.
	may map[ClusterID]bool
	// have are the slices with endpoints of other clusters, and imports their parts.
	have    map[string]*discoveryv1.EndpointSlice
	imports parts
	// left is what Kubernetes left behind of the Service.
	left leftOvers
	// found notes what was left out, or not understood.
	found plan.Notes
}

// parts are endpoints of other clusters, by the names of their parts.
type parts map[string]*endpointslice.Part

// look collects what exists.
func look(cfg Config, in Input) *view {
	v := &view{cfg: cfg, in: in, svc: in.Local.Service, left: leftOversOf(in.Local.Service, in.Local), have: make(map[string]*discoveryv1.EndpointSlice)}
	v.in.Peers, v.found = v.rules().Admit(in.Service, in.Peers)
	v.shared = cfg.Scope.Includes(in.Service.Namespace) && !mcs.IsDerived(v.svc)
	var own []*discoveryv1.EndpointSlice
	for _, s := range in.Local.Slices {
		switch {
		case s.Labels[mcsv1beta1.LabelServiceName] != "":
			// The slice belongs to a ServiceImport.
		case s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy:
			v.have[s.Name] = s
		case !leftBehind(v.svc, s):
			own = append(own, s)
		}
	}
	v.imports, v.own = endpointslice.Unbundle(v.have), endpointslice.Gather(own)
	v.lookAtOwn()
	for _, id := range v.peers() {
		p := v.in.Peers[id]
		if s := p.Published.Service; s != nil && p.Synced && p.Published.Understood() && s.Spec.Role != v1alpha1.RoleNone {
			v.others = append(v.others, clusterset.Member{PublishedServiceSpec: s.Spec, ID: id, Health: p.Health, Trust: cfg.Trust.Of(id)})
		}
	}
	v.may = entitled(v)
	return v
}

// rules are what this cluster admits of its peers.
func (v *view) rules() admission.Rules {
	return admission.Rules{Trust: v.cfg.Trust, Reserved: v.cfg.Reserved, Carry: v.cfg.Carry}
}

// peers returns the identities of all peers, in order.
func (v *view) peers() []ClusterID { return slices.Sorted(maps.Keys(v.in.Peers)) }

// lookAtOwn fills in me and ready.
func (v *view) lookAtOwn() {
	ready, total := v.own.Count()
	v.ready = ready
	v.me = clusterset.Member{ID: v.cfg.Cluster, Health: Live, PublishedServiceSpec: v1alpha1.PublishedServiceSpec{
		FormatVersion: v1alpha1.FormatApart,
		Cluster:       string(v.cfg.Cluster),
		Service:       v1alpha1.ServiceReference{Namespace: v.in.Service.Namespace, Name: v.in.Service.Name},
		Role:          v1alpha1.RoleNone,
		Ready:         int32(ready), //nolint:gosec // endpoints of one Service
		Total:         int32(total), //nolint:gosec // endpoints of one Service
	}}
	if stored := v.in.Published.Service; stored != nil {
		v.me.Handover, v.me.Seen = stored.Spec.Handover.DeepCopy(), stored.Spec.Seen
	}
	if v.svc == nil {
		return
	}
	if err := describe(v.cfg.Carry, v.svc, &v.me.PublishedServiceSpec); err != nil {
		v.found.Warn("UnknownMode", err.Error())
	}
	if e := v.in.Local.Export; e != nil && e.DeletionTimestamp == nil && v.svc.Spec.Type != corev1.ServiceTypeExternalName {
		v.me.Exported = &v1alpha1.Export{Created: e.CreationTimestamp, Labels: e.Spec.ExportedLabels, Annotations: e.Spec.ExportedAnnotations}
	}
}

// describe fills in what a Service says about itself. It returns an error if the
// Service's mode is unknown; the Service then asks for nothing.
func describe(c Carry, svc *corev1.Service, me *v1alpha1.PublishedServiceSpec) error {
	me.Role, me.Replica, me.Template = roleOf(svc), isReplica(svc), template.Of(svc, c)
	me.To = svc.Annotations[v1alpha1.AnnotationTo]
	answered := v1alpha1.Mode(svc.Annotations[v1alpha1.AnnotationAnswered])
	mode, err := modeOf(svc)
	if err != nil {
		mode = answered
	}
	me.Mode, me.Asked = mode, mode != answered
	return err
}

func isReplica(s *corev1.Service) bool { return s != nil && s.Labels[v1alpha1.LabelReplica] != "" }

// followed returns the cluster whose Service a replica follows; empty: the Service is
// no replica, or there is none.
func (v *view) followed() ClusterID {
	if v.svc == nil {
		return ""
	}
	return ClusterID(v.svc.Labels[v1alpha1.LabelReplica])
}

// roleOf returns the role that a Service's annotation records, or else its default.
func roleOf(s *corev1.Service) v1alpha1.Role {
	if r := s.Annotations[v1alpha1.AnnotationRole]; r != "" {
		return v1alpha1.Role(r)
	}
	return defaultRole(isReplica(s))
}

// defaultRole returns the role of a Service that has no annotation about it.
func defaultRole(replica bool) v1alpha1.Role {
	if replica {
		return v1alpha1.RoleReceiver
	}
	return v1alpha1.RoleSource
}

// gives reports whether other clusters use this cluster's endpoints.
func (v *view) gives() bool { return v.me.Gives() }

// candidate reports whether this cluster prepares to take over, or to stop giving.
func (v *view) candidate() bool { return v.me.Role == v1alpha1.RoleCandidate }

// uses reports whether there are endpoints of a cluster.
func (p parts) uses(id ClusterID) bool {
	for _, part := range p {
		if part.Cluster == id && len(part.Endpoints) > 0 {
			return true
		}
	}
	return false
}

// ready counts the ready endpoints.
func (p parts) ready() (n int) {
	for _, part := range p {
		n += endpointslice.Ready(part.Endpoints)
	}
	return n
}

// readyAmong counts the ready endpoints of known clusters whose leases have not expired.
// Nobody can tell whether the other endpoints still exist.
func (v *view) readyAmong(all parts) (n int) {
	for _, p := range all {
		if p.Cluster != "" && v.in.Peers[p.Cluster].Health != Expired {
			n += endpointslice.Ready(p.Endpoints)
		}
	}
	return n
}

// inUse counts the ready endpoints of clusters that are in use here by now, those of
// this cluster among them.
func (v *view) inUse(of []string) (n int) {
	if slices.Contains(of, string(v.cfg.Cluster)) {
		n = v.ready
	}
	var theirs []*endpointslice.Part
	for _, p := range v.imports {
		if slices.Contains(of, string(p.Cluster)) {
			theirs = append(theirs, p)
		}
	}
	ready, _ := endpointslice.GatherParts(theirs).Count()
	return n + ready
}

// unheard reports whether endpoints of a cluster are in use although this process has
// not heard yet what that cluster publishes of the Service.
func (v *view) unheard() bool {
	for id, p := range v.in.Peers {
		if !p.Forgotten && !p.Confirmed && (p.Published.Service == nil || !p.Synced) && p.Health != Expired && v.imports.uses(id) {
			return true
		}
	}
	return false
}

// blind reports whether endpoints of a cluster are in use that this process has not
// listed yet.
func (v *view) blind() bool {
	for id, p := range v.in.Peers {
		if !p.Synced && !p.Forgotten && v.imports.uses(id) {
			return true
		}
	}
	return false
}
