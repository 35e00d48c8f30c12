package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// isDerived reports whether a Service was made to give a ServiceImport its
// address: of such nothing is published.
func isDerived(s *corev1.Service) bool { return s != nil && s.Labels[v1alpha1.LabelImport] != "" }

// share brings the ServiceImport about (KEP-1645): one for all clusters that
// export the Service, a Service that gives it its address, and slices with the
// endpoints of all of them, those of this cluster too.
func (d *decision) share() {
	exporters := d.exporters()
	d.planExport(exporters)
	l := d.in.Local
	switch {
	case !l.Namespace:
	case len(exporters) == 0:
		d.unshare()
	case l.Import != nil && l.Import.Labels[v1alpha1.LabelImport] == "":
		d.warn("ImportNotOurs", "the ServiceImport of this name was made by somebody else, and stays as it is; remove it to have the exported Service imported")
	default:
		winner := exporters[0]
		d.planImport(exporters, winner)
		d.planDerived(exporters, winner)
		d.planDerivedSlices(d.derivedSlices(exporters, winner))
	}
}

// exporters are the clusters that export the Service, the oldest export first:
// where they differ, it counts.
func (d *decision) exporters() []member {
	var found []member
	if d.me.Exported != nil && d.inScope {
		found = append(found, d.me)
	}
	for _, m := range d.others {
		if m.Exported != nil && m.Template != nil {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b member) int {
		return cmp.Or(a.Exported.Created.Compare(b.Exported.Created.Time), cmp.Compare(a.id, b.id))
	})
	return found
}

// unshare removes the import once no cluster exports the Service, as far as
// all have been heard.
func (d *decision) unshare() {
	l := d.in.Local
	for id, p := range d.in.Peers {
		switch {
		case p.Forgotten, p.Confirmed, p.Synced && p.Published.Service != nil:
		case p.Health == Expired && !d.shares(id):
			// The dead delay nothing.
		default:
			return
		}
	}
	for _, s := range l.DerivedSlices {
		if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy {
			d.writes = append(d.writes, Write{Delete, Own, s, nil, "no cluster exports the Service"})
		}
	}
	if isDerived(l.Derived) {
		d.writes = append(d.writes, Write{Delete, Own, l.Derived, nil, "no cluster exports the Service"})
	}
	if l.Import != nil && l.Import.Labels[v1alpha1.LabelImport] != "" {
		d.writes = append(d.writes, Write{Delete, Own, l.Import, nil, "no cluster exports the Service"})
	}
}

// shares reports whether endpoints of a cluster are in the import here.
func (d *decision) shares(id ClusterID) bool {
	return slices.ContainsFunc(d.in.Local.DerivedSlices, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[v1alpha1.LabelCluster] == string(id) && len(s.Endpoints) > 0
	})
}

func (d *decision) planImport(exporters []member, winner member) {
	old := d.in.Local.Import
	next := &mcs.ServiceImport{}
	if old != nil {
		next = old.DeepCopy()
	}
	next.Name, next.Namespace = d.in.Service.Name, d.in.Service.Namespace
	next.Labels = over(winner.Exported.Labels, map[string]string{v1alpha1.LabelImport: d.in.Service.Name})
	next.Annotations = over(winner.Exported.Annotations, map[string]string{"multicluster.kubernetes.io/derived-service": DerivedName(d.in.Service)})
	t := winner.Template
	next.Spec = mcs.ServiceImportSpec{
		Type:                  mcs.ClusterSetIP,
		Ports:                 unionOfPorts(exporters),
		SessionAffinity:       t.SessionAffinity,
		SessionAffinityConfig: t.SessionAffinityConfig,
		InternalTrafficPolicy: t.InternalTrafficPolicy,
		TrafficDistribution:   t.TrafficDistribution,
	}
	if t.Headless {
		next.Spec.Type, next.Spec.IPFamilies = mcs.Headless, t.IPFamilies
	} else if derived := d.in.Local.Derived; isDerived(derived) {
		next.Spec.IPs, next.Spec.IPFamilies = derived.Spec.ClusterIPs, derived.Spec.IPFamilies
		if len(next.Spec.IPs) == 0 && derived.Spec.ClusterIP != "" {
			next.Spec.IPs = []string{derived.Spec.ClusterIP}
		}
	}
	if old == nil {
		d.writes = append(d.writes, Write{Create, Own, next, nil, "import the Service that " + string(winner.id) + " exports"})
		return
	}
	if !equality.Semantic.DeepEqual(old, next) {
		d.writes = append(d.writes, Write{Update, Own, next, old, "follow the exported Service"})
		return // the status when that is done
	}
	next = old.DeepCopy()
	next.Status.Clusters = nil
	for _, m := range exporters {
		next.Status.Clusters = append(next.Status.Clusters, mcs.ClusterStatus{Cluster: string(m.id)})
	}
	slices.SortFunc(next.Status.Clusters, func(a, b mcs.ClusterStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	ready := metav1.Condition{Type: string(mcs.ServiceImportConditionReady), Status: metav1.ConditionTrue, Reason: string(mcs.ServiceImportReasonReady), Message: "it can be used", LastTransitionTime: metav1.NewTime(d.in.Now)}
	if next.Spec.Type == mcs.ClusterSetIP && len(next.Spec.IPs) == 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(mcs.ServiceImportReasonPending), "it has no address yet"
	}
	meta.SetStatusCondition(&next.Status.Conditions, ready)
	if !equality.Semantic.DeepEqual(old.Status, next.Status) {
		d.writes = append(d.writes, Write{UpdateStatus, Own, next, old, "say which clusters export it"})
	}
}

// over lays b over a.
func over(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// unionOfPorts are the ports of all; of two that one Service cannot have, the older
// export's.
func unionOfPorts(exporters []member) []mcs.ServicePort {
	var ports []mcs.ServicePort
	for _, m := range exporters {
		for _, p := range m.Template.Ports {
			excludes := func(q mcs.ServicePort) bool {
				return q.Name == p.Name || q.Name == "" || p.Name == "" || q.Port == p.Port && q.Protocol == p.Protocol
			}
			if len(ports) < mostPorts && !slices.ContainsFunc(ports, excludes) {
				ports = append(ports, mcs.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
			}
		}
	}
	slices.SortStableFunc(ports, func(a, b mcs.ServicePort) int { return cmp.Compare(a.Name, b.Name) })
	return ports
}

// owner is the import, which what is made for it goes with.
func (d *decision) owner() []metav1.OwnerReference {
	i := d.in.Local.Import
	return []metav1.OwnerReference{{APIVersion: mcs.GroupVersion.String(), Kind: mcs.ServiceImportKindName, Name: i.Name, UID: i.UID}}
}

// planDerived has the Service that gives the import its address; one without
// an address needs none.
func (d *decision) planDerived(exporters []member, winner member) {
	old := d.in.Local.Derived
	switch {
	case d.in.Local.Import == nil:
		return
	case winner.Template.Headless:
		if isDerived(old) {
			d.writes = append(d.writes, Write{Delete, Own, old, nil, "the exported Service is headless"})
		}
		return
	case old != nil && !isDerived(old):
		d.warn("DerivedNotOurs", fmt.Sprintf("a Service %s stands where the import's address should be; remove it", old.Name))
		return
	}
	next := &corev1.Service{}
	if old != nil {
		next = old.DeepCopy()
	}
	next.Name, next.Namespace = DerivedName(d.in.Service), d.in.Service.Namespace
	next.Labels = over(next.Labels, map[string]string{v1alpha1.LabelImport: d.in.Service.Name})
	next.OwnerReferences = d.owner()
	t := winner.Template
	next.Spec.Type = corev1.ServiceTypeClusterIP
	next.Spec.SessionAffinity, next.Spec.SessionAffinityConfig = t.SessionAffinity, t.SessionAffinityConfig.DeepCopy()
	next.Spec.InternalTrafficPolicy, next.Spec.TrafficDistribution = clone(t.InternalTrafficPolicy), clone(t.TrafficDistribution)
	var ports []corev1.ServicePort
	for _, p := range unionOfPorts(exporters) {
		port := corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: clone(p.AppProtocol), Port: p.Port}
		for _, was := range next.Spec.Ports {
			if was.Name == p.Name {
				port.TargetPort = was.TargetPort // filled in by the server, and used by nobody
			}
		}
		ports = append(ports, port)
	}
	next.Spec.Ports = ports
	if old == nil {
		d.chooseFamilies(next, winner)
		d.writes = append(d.writes, Write{Create, Own, next, nil, "give the import an address"})
	} else if !equality.Semantic.DeepEqual(old, next) {
		d.writes = append(d.writes, Write{Update, Own, next, old, "follow the exported Service"})
	}
}

// derivedSlices are the endpoints of all that export, and of those who give in
// the place of one that does.
func (d *decision) derivedSlices(exporters []member, winner member) map[string]*discoveryv1.EndpointSlice {
	want := make(map[string]*discoveryv1.EndpointSlice)
	stands, partly := make(map[ClusterID]bool), make(map[ClusterID]bool)
	handed := false
	for _, m := range exporters {
		stands[m.id] = true
		handed = handed || m.Role == v1alpha1.RoleReceiver
	}
	add := func(id ClusterID, p *v1alpha1.PublishedSlice) {
		s := d.shared(id, p, winner.Template.Headless)
		want[s.Name] = s
	}
	if stands[d.cfg.Cluster] || handed && gives(d.me.Role) && (d.me.Replica || d.spokenFor()) {
		for name, endpoints := range d.published {
			p := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: endpoints}}
			p.Name = name
			add(d.cfg.Cluster, p)
		}
	}
	for _, m := range d.others {
		if stands[m.id] || handed && gives(m.Role) {
			published := d.in.Peers[m.id].Published
			all := published.All()
			partly[m.id] = !published.Whole(all)
			for _, p := range all {
				if p.Spec.AddressType != discoveryv1.AddressTypeFQDN {
					add(m.id, p)
				}
			}
		}
	}
	for _, s := range d.in.Local.DerivedSlices {
		p, known := d.in.Peers[ClusterID(s.Labels[v1alpha1.LabelCluster])]
		unheard := !known || !p.Synced || p.Published.Service == nil && !p.Confirmed || p.Published.Service != nil && !understood(p.Published.Service)
		ours := s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy
		id := ClusterID(s.Labels[v1alpha1.LabelCluster])
		if ours && id != d.cfg.Cluster && (unheard || partly[id] && want[s.Name] == nil) && !p.Forgotten {
			want[s.Name] = unexpired(s)
		}
	}
	d.presentExpired(want, 0)
	return want
}

// shared is the slice of an import for a published slice.
func (d *decision) shared(id ClusterID, p *v1alpha1.PublishedSlice, headless bool) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: p.Spec.AddressType}
	s.Name = DerivedName(d.in.Service) + "-" + digest(string(id), p.Name)
	s.Namespace = d.in.Service.Namespace
	s.Labels = map[string]string{
		discoveryv1.LabelServiceName: DerivedName(d.in.Service),
		discoveryv1.LabelManagedBy:   v1alpha1.ManagedBy,
		mcs.LabelServiceName:         d.in.Service.Name,
		mcs.LabelSourceCluster:       string(id),
		v1alpha1.LabelCluster:        string(id),
	}
	if headless {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, port := range p.Spec.Ports {
		s.Ports = append(s.Ports, *port.DeepCopy())
	}
	for _, e := range d.endpointsOf(id, p) {
		s.Endpoints = append(s.Endpoints, importedEndpoint(e))
	}
	s.Annotations = map[string]string{v1alpha1.AnnotationFrom: from(Part{Cluster: id, Slice: p.Name}.name(), len(s.Endpoints))}
	if d.in.Local.Import != nil {
		s.OwnerReferences = d.owner()
	}
	return s
}

func (d *decision) planDerivedSlices(want map[string]*discoveryv1.EndpointSlice) {
	if d.in.Local.Import == nil {
		return // first what they belong to
	}
	have := make(map[string]*discoveryv1.EndpointSlice)
	for _, s := range d.in.Local.DerivedSlices {
		if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy {
			have[s.Name] = s
		}
	}
	grow, shrink := compareSlices(have, want)
	d.writes = append(append(d.writes, grow...), shrink...)
}

// planExport says on the cluster's own export how it stands.
func (d *decision) planExport(exporters []member) {
	e := d.in.Local.Export
	if e == nil || e.DeletionTimestamp != nil {
		return
	}
	next := e.DeepCopy()
	set := func(kind mcs.ServiceExportConditionType, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{Type: string(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(d.in.Now)})
	}
	switch {
	case d.svc == nil || d.me.Replica && !gives(d.me.Role):
		set(mcs.ServiceExportConditionValid, metav1.ConditionFalse, string(mcs.ServiceExportReasonNoService), "this cluster has no Service of this name of its own; create it, or remove the export")
	case d.svc.Spec.Type == corev1.ServiceTypeExternalName:
		set(mcs.ServiceExportConditionValid, metav1.ConditionFalse, string(mcs.ServiceExportReasonInvalidServiceType), "an ExternalName Service cannot be exported")
	default:
		set(mcs.ServiceExportConditionValid, metav1.ConditionTrue, string(mcs.ServiceExportReasonValid), "it can be exported")
	}
	if s := d.in.Published.Service; s != nil && s.Spec.Exported != nil && d.me.Exported != nil {
		set(mcs.ServiceExportConditionReady, metav1.ConditionTrue, string(mcs.ServiceExportReasonExported), "other clusters can read it")
	} else {
		set(mcs.ServiceExportConditionReady, metav1.ConditionFalse, string(mcs.ServiceExportReasonPending), "it is not published")
	}
	if reasons, message := disagreements(exporters); len(reasons) > 0 && d.me.Exported != nil {
		set(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, strings.Join(reasons, ","), message)
	} else {
		set(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, string(mcs.ServiceExportReasonNoConflicts), "all exports of the Service agree")
	}
	if !equality.Semantic.DeepEqual(e.Status, next.Status) {
		d.writes = append(d.writes, Write{UpdateStatus, Own, next, e, "say how the export stands"})
	}
}

// disagreements are the reasons of KEP-1645 for which exports conflict.
func disagreements(exporters []member) (reasons []string, message string) {
	if len(exporters) < 2 {
		return nil, ""
	}
	w := exporters[0]
	differ := func(reason mcs.ServiceExportConditionReason, differs func(member) bool) {
		if slices.ContainsFunc(exporters[1:], differs) {
			reasons = append(reasons, string(reason))
		}
	}
	differ(mcs.ServiceExportReasonPortConflict, func(m member) bool { return portsConflict(w.Template.Ports, m.Template.Ports) })
	differ(mcs.ServiceExportReasonTypeConflict, func(m member) bool { return w.Template.Headless != m.Template.Headless })
	differ(mcs.ServiceExportReasonSessionAffinityConflict, func(m member) bool { return w.Template.SessionAffinity != m.Template.SessionAffinity })
	differ(mcs.ServiceExportReasonSessionAffinityConfigConflict, func(m member) bool {
		return w.Template.SessionAffinity == m.Template.SessionAffinity && !equality.Semantic.DeepEqual(w.Template.SessionAffinityConfig, m.Template.SessionAffinityConfig)
	})
	differ(mcs.ServiceExportReasonLabelsConflict, func(m member) bool { return !maps.Equal(w.Exported.Labels, m.Exported.Labels) })
	differ(mcs.ServiceExportReasonAnnotationsConflict, func(m member) bool { return !maps.Equal(w.Exported.Annotations, m.Exported.Annotations) })
	differ(mcs.ServiceExportReasonInternalTrafficPolicyConflict, func(m member) bool {
		return deref(w.Template.InternalTrafficPolicy) != deref(m.Template.InternalTrafficPolicy)
	})
	differ(mcs.ServiceExportReasonTrafficDistributionConflict, func(m member) bool {
		return deref(w.Template.TrafficDistribution) != deref(m.Template.TrafficDistribution)
	})
	differ(mcs.ServiceExportReasonIPFamilyConflict, func(m member) bool { return !slices.Equal(w.Template.IPFamilies, m.Template.IPFamilies) })
	return reasons, fmt.Sprintf("the exports differ; that of %s is the oldest and counts", w.id)
}

// portsConflict reports whether one has a port that the other has not, or has
// otherwise. Ports that only one has are united, and said to conflict all the same.
func portsConflict(a, b []corev1.ServicePort) bool {
	same := func(p, q corev1.ServicePort) bool {
		return p.Name == q.Name && p.Port == q.Port && p.Protocol == q.Protocol && deref(p.AppProtocol) == deref(q.AppProtocol)
	}
	lacks := func(a, b []corev1.ServicePort) bool {
		return slices.ContainsFunc(a, func(p corev1.ServicePort) bool {
			return !slices.ContainsFunc(b, func(q corev1.ServicePort) bool { return same(p, q) })
		})
	}
	return lacks(a, b) || lacks(b, a)
}
