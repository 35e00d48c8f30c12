package model

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// decision is one run of Decide: what was found out, and what is wanted.
type decision struct {
	cfg Config
	in  Input

	// What there is.
	inScope bool
	svc     *corev1.Service
	me      member
	own     map[kind]map[string]endpoint          // the cluster's own endpoints
	ready   int                                   // of those
	others  []member                              // clusters that publish the Service, in order
	may     map[ClusterID]bool                    // of those, whose endpoints may serve here
	have    map[string]*discoveryv1.EndpointSlice // the imported slices that exist
	ours    map[string]*discoveryv1.EndpointSlice // their parts, by cluster and published slice

	// What is wanted.
	aim         v1alpha1.Role
	heirs       []ClusterID // if aim is to stop giving
	handover    *v1alpha1.Handover
	service     *corev1.Service // as it should be; nil: as it is
	serviceWhy  string
	drop        bool                                   // the replica
	slices      map[string]*discoveryv1.EndpointSlice  // the parts to have
	seen        []v1alpha1.Seen                        // answers to give
	publication *v1alpha1.PublishedServiceSpec         // nil: none
	published   map[string]v1alpha1.PublishedEndpoints // by slice

	writes []Write
	result Result
}

// member is a cluster that takes part in a Service, as it says itself.
type member struct {
	v1alpha1.PublishedServiceSpec

	id     ClusterID
	health Health
	trust  Trust
}

// look finds out what there is.
func (d *decision) look() {
	d.inScope = d.cfg.Scope.Includes(d.in.Service.Namespace) && !isDerived(d.in.Local.Service)
	d.svc = d.in.Local.Service
	d.have = make(map[string]*discoveryv1.EndpointSlice)
	var own []*discoveryv1.EndpointSlice
	for _, s := range d.in.Local.Slices {
		switch {
		case s.Labels[mcs.LabelServiceName] != "":
			// Of a ServiceImport: see share.
		case s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy:
			d.have[s.Name] = s
		case !d.leftBehind(s):
			own = append(own, s)
		}
	}
	d.ours = d.unbundle(d.have)
	d.own = gather(own)
	d.lookAtOwn()
	for _, id := range slices.Sorted(maps.Keys(d.in.Peers)) {
		p := d.in.Peers[id]
		if s := p.Published.Service; s != nil && p.Synced && understood(s) && s.Spec.Role != v1alpha1.RoleNone {
			d.others = append(d.others, member{s.Spec, id, p.Health, d.cfg.Trust.Of(id)})
		}
	}
	d.may = d.entitled()
}

// lookAtOwn fills in what the cluster says of itself, but for its answers.
func (d *decision) lookAtOwn() {
	ready, total := count(d.own)
	d.ready = ready
	d.me = member{id: d.cfg.Cluster, health: Live, PublishedServiceSpec: v1alpha1.PublishedServiceSpec{
		FormatVersion: v1alpha1.FormatApart,
		Cluster:       string(d.cfg.Cluster),
		Service:       v1alpha1.ServiceReference{Namespace: d.in.Service.Namespace, Name: d.in.Service.Name},
		Role:          v1alpha1.RoleNone,
		Ready:         int32(ready), //nolint:gosec // endpoints of one Service
		Total:         int32(total), //nolint:gosec // endpoints of one Service
	}}
	if stored := d.in.Published.Service; stored != nil {
		d.me.Handover, d.handover = stored.Spec.Handover.DeepCopy(), stored.Spec.Handover.DeepCopy()
		d.me.Seen = stored.Spec.Seen
	}
	if d.svc == nil {
		return
	}
	if err := d.describe(&d.me.PublishedServiceSpec, d.svc); err != nil {
		d.warn("UnknownMode", err.Error())
	}
	if e := d.in.Local.Export; e != nil && e.DeletionTimestamp == nil && d.svc.Spec.Type != corev1.ServiceTypeExternalName {
		d.me.Exported = &v1alpha1.Export{Created: e.CreationTimestamp, Labels: e.Spec.ExportedLabels, Annotations: e.Spec.ExportedAnnotations}
	}
}

// describe fills in what a Service says. Its error is that of a mode that is
// unknown, which asks for nothing.
func (d *decision) describe(me *v1alpha1.PublishedServiceSpec, svc *corev1.Service) error {
	me.Role, me.Replica, me.Template = roleOf(svc), isReplica(svc), d.template(svc)
	me.To = svc.Annotations[v1alpha1.AnnotationTo]
	answered := v1alpha1.Mode(svc.Annotations[v1alpha1.AnnotationAnswered])
	mode, err := modeOf(svc)
	if err != nil {
		mode = answered
	}
	me.Mode, me.Asked = mode, mode != answered
	return err
}

// leftBehind reports whether a slice is of Kubernetes' own controllers and
// stayed when its Service's selector was taken away: they never remove it, and
// proxies still route to it (kubernetes/kubernetes#118376).
func (d *decision) leftBehind(s *discoveryv1.EndpointSlice) bool {
	if d.svc == nil || len(d.svc.Spec.Selector) > 0 || d.svc.Annotations[v1alpha1.AnnotationSelector] == "" {
		return false
	}
	by := s.Labels[discoveryv1.LabelManagedBy]
	return by == "endpointslice-controller.k8s.io" || by == "endpointslicemirroring-controller.k8s.io"
}

// understood reports whether a publication is of a format that is known here.
func understood(s *v1alpha1.PublishedService) bool {
	return s.Spec.FormatVersion >= 1 && s.Spec.FormatVersion <= v1alpha1.FormatVersion
}

func isReplica(s *corev1.Service) bool { return s != nil && s.Labels[v1alpha1.LabelReplica] != "" }

// roleOf is the role that a Service's annotations record, or else the one that
// goes without saying.
func roleOf(s *corev1.Service) v1alpha1.Role {
	switch {
	case s == nil:
		return v1alpha1.RoleNone
	case s.Annotations[v1alpha1.AnnotationRole] != "":
		return v1alpha1.Role(s.Annotations[v1alpha1.AnnotationRole])
	default:
		return unsaid(isReplica(s))
	}
}

// unsaid is the role of a Service about which nothing is said.
func unsaid(replica bool) v1alpha1.Role {
	if replica {
		return v1alpha1.RoleReceiver
	}
	return v1alpha1.RoleSource
}

// gives reports whether others use the endpoints of one in this role.
func gives(r v1alpha1.Role) bool { return r == v1alpha1.RoleSource || r == v1alpha1.RoleUnion }

// selectorOf is the selector in use, or else the one that was taken away.
func selectorOf(s *corev1.Service) map[string]string {
	if len(s.Spec.Selector) > 0 {
		return maps.Clone(s.Spec.Selector)
	}
	var saved map[string]string
	if json.Unmarshal([]byte(s.Annotations[v1alpha1.AnnotationSelector]), &saved) != nil {
		return nil
	}
	return saved
}

// warn says something that somebody should do something about.
func (d *decision) warn(reason, note string) { d.event(corev1.EventTypeWarning, reason, note) }

func (d *decision) event(kind, reason, note string) {
	d.result.Events = append(d.result.Events, Event{kind, reason, note})
}
