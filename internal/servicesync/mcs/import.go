package mcs

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// importOf writes the ServiceImport. Invariant: there is an exporter.
func (d *decision) importOf() {
	first, old := d.exporters[0], d.Here.Import
	next := &mcsv1beta1.ServiceImport{}
	if old != nil {
		next = old.DeepCopy()
	}
	next.Name, next.Namespace = d.Service.Name, d.Service.Namespace
	next.Labels = with(first.Exported.Labels, map[string]string{v1alpha1.LabelImport: d.Service.Name})
	next.Annotations = with(first.Exported.Annotations, map[string]string{"multicluster.kubernetes.io/derived-service": DerivedName(d.Service)})
	next.Spec = d.importSpec()
	switch {
	case old == nil:
		d.writes = append(d.writes, plan.Created(next, "import the Service that "+string(first.ID)+" exports"))
	case !equality.Semantic.DeepEqual(old, next):
		d.writes = append(d.writes, plan.Updated(old, next, "follow the exported Service"))
	default: // the status is written once the rest is right
		d.importStatus(old)
	}
}

func (d *decision) importSpec() mcsv1beta1.ServiceImportSpec {
	t := d.exporters[0].Template
	spec := mcsv1beta1.ServiceImportSpec{
		Type:                  mcsv1beta1.ClusterSetIP,
		Ports:                 unionOfPorts(d.exporters),
		SessionAffinity:       t.SessionAffinity,
		SessionAffinityConfig: t.SessionAffinityConfig,
		InternalTrafficPolicy: t.InternalTrafficPolicy,
		TrafficDistribution:   t.TrafficDistribution,
	}
	if t.Headless {
		spec.Type, spec.IPFamilies = mcsv1beta1.Headless, t.IPFamilies
	} else if derived := d.Here.Derived; IsDerived(derived) {
		spec.IPs, spec.IPFamilies = derived.Spec.ClusterIPs, derived.Spec.IPFamilies
		if len(spec.IPs) == 0 && derived.Spec.ClusterIP != "" {
			spec.IPs = []string{derived.Spec.ClusterIP}
		}
	}
	return spec
}

func (d *decision) importStatus(old *mcsv1beta1.ServiceImport) {
	next := old.DeepCopy()
	next.Status.Clusters = nil
	for _, m := range d.exporters {
		next.Status.Clusters = append(next.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: string(m.ID)})
	}
	slices.SortFunc(next.Status.Clusters, func(a, b mcsv1beta1.ClusterStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	ready := metav1.Condition{Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue, Reason: string(mcsv1beta1.ServiceImportReasonReady), Message: "it can be used", LastTransitionTime: metav1.NewTime(d.Now)}
	if next.Spec.Type == mcsv1beta1.ClusterSetIP && len(next.Spec.IPs) == 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(mcsv1beta1.ServiceImportReasonPending), "it has no address yet"
	}
	meta.SetStatusCondition(&next.Status.Conditions, ready)
	if !equality.Semantic.DeepEqual(old.Status, next.Status) {
		d.writes = append(d.writes, plan.StatusUpdated(old, next, "say which clusters export it"))
	}
}

// unionOfPorts returns the ports of all exporters. If one Service cannot have two of
// them, it returns that of the older export.
func unionOfPorts(exporters []clusterset.Member) []mcsv1beta1.ServicePort {
	var ports []mcsv1beta1.ServicePort
	for _, m := range exporters {
		for _, p := range m.Template.Ports {
			excludes := func(q mcsv1beta1.ServicePort) bool {
				return q.Name == p.Name || q.Name == "" || p.Name == "" || q.Port == p.Port && q.Protocol == p.Protocol
			}
			if len(ports) < template.MostPorts && !slices.ContainsFunc(ports, excludes) {
				ports = append(ports, mcsv1beta1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
			}
		}
	}
	slices.SortStableFunc(ports, func(a, b mcsv1beta1.ServicePort) int { return cmp.Compare(a.Name, b.Name) })
	return ports
}

// derived writes the Service that gives the import its address. A headless import has
// no address, and so needs no such Service.
func (d *decision) derived() {
	first, old := d.exporters[0], d.Here.Derived
	switch {
	case first.Template.Headless:
		if IsDerived(old) {
			d.writes = append(d.writes, plan.Deleted(old, "the exported Service is headless"))
		}
		return
	case old != nil && !IsDerived(old):
		d.notes.Warn("DerivedNotOurs", fmt.Sprintf("a Service %s stands where the import's address should be; remove it", old.Name))
		return
	}
	next := &corev1.Service{}
	if old != nil {
		next = old.DeepCopy()
	}
	next.Name, next.Namespace = DerivedName(d.Service), d.Service.Namespace
	next.Labels = with(next.Labels, map[string]string{v1alpha1.LabelImport: d.Service.Name})
	next.OwnerReferences = d.owner()
	want := d.importSpec()
	spec := want.DeepCopy()
	next.Spec.Type = corev1.ServiceTypeClusterIP
	next.Spec.SessionAffinity, next.Spec.SessionAffinityConfig = spec.SessionAffinity, spec.SessionAffinityConfig
	next.Spec.InternalTrafficPolicy, next.Spec.TrafficDistribution = spec.InternalTrafficPolicy, spec.TrafficDistribution
	next.Spec.Ports = derivedPorts(spec.Ports, next.Spec.Ports)
	if old == nil {
		if f := template.ChooseFamilies(first.Template, d.Families, next); f != "" {
			d.notes.Warn("IPFamilyNotSupported", template.FamilyNotSupported(first.ID, f))
		}
		d.writes = append(d.writes, plan.Created(next, "give the import an address"))
	} else if !equality.Semantic.DeepEqual(old, next) {
		d.writes = append(d.writes, plan.Updated(old, next, "follow the exported Service"))
	}
}

// derivedPorts returns the ports of the derived Service. Nobody uses their target
// ports, which the API server fills in.
func derivedPorts(want []mcsv1beta1.ServicePort, have []corev1.ServicePort) (ports []corev1.ServicePort) {
	for _, p := range want {
		port := corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port}
		for _, was := range have {
			if was.Name == p.Name {
				port.TargetPort = was.TargetPort
			}
		}
		ports = append(ports, port)
	}
	return ports
}
