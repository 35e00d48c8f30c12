package mcs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// exportStatus writes the conditions of this cluster's ServiceExport.
func (d *decision) exportStatus() {
	e := d.Here.Export
	if e == nil || e.DeletionTimestamp != nil {
		return
	}
	me := d.Here.Member
	next := e.DeepCopy()
	set := func(kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason, message string) {
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message, LastTransitionTime: metav1.NewTime(d.Now)})
	}
	switch s := d.Here.Service; {
	case s == nil || me.Replica && !me.Gives():
		set(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService, "this cluster has no Service of this name of its own; create it, or remove the export")
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		set(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonInvalidServiceType, "an ExternalName Service cannot be exported")
	default:
		set(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, "it can be exported")
	}
	if d.Here.Published && me.Exported != nil {
		set(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "other clusters can read it")
	} else {
		set(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending, "it is not published")
	}
	if reasons := conflicts(d.exporters); len(reasons) > 0 && me.Exported != nil {
		message := fmt.Sprintf("the exports differ; that of %s is the oldest and counts", d.exporters[0].ID)
		set(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, mcsv1beta1.ServiceExportConditionReason(strings.Join(reasons, ",")), message)
	} else {
		set(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts, "all exports of the Service agree")
	}
	if !equality.Semantic.DeepEqual(e.Status, next.Status) {
		d.writes = append(d.writes, plan.StatusUpdated(e, next, "say how the export stands"))
	}
}

// differences are the reasons of KEP-1645 for which exports conflict, in its order:
// each reports whether the exports of two clusters differ so.
var differences = []struct {
	reason mcsv1beta1.ServiceExportConditionReason
	differ func(a, b clusterset.Member) bool
}{
	{mcsv1beta1.ServiceExportReasonPortConflict, func(a, b clusterset.Member) bool { return portsDiffer(a.Template.Ports, b.Template.Ports) }},
	{mcsv1beta1.ServiceExportReasonTypeConflict, func(a, b clusterset.Member) bool { return a.Template.Headless != b.Template.Headless }},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, func(a, b clusterset.Member) bool { return a.Template.SessionAffinity != b.Template.SessionAffinity }},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, func(a, b clusterset.Member) bool {
		return a.Template.SessionAffinity == b.Template.SessionAffinity && !equality.Semantic.DeepEqual(a.Template.SessionAffinityConfig, b.Template.SessionAffinityConfig)
	}},
	{mcsv1beta1.ServiceExportReasonLabelsConflict, func(a, b clusterset.Member) bool { return !maps.Equal(a.Exported.Labels, b.Exported.Labels) }},
	{mcsv1beta1.ServiceExportReasonAnnotationsConflict, func(a, b clusterset.Member) bool { return !maps.Equal(a.Exported.Annotations, b.Exported.Annotations) }},
	{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, func(a, b clusterset.Member) bool {
		return ptr.Deref(a.Template.InternalTrafficPolicy, "") != ptr.Deref(b.Template.InternalTrafficPolicy, "")
	}},
	{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, func(a, b clusterset.Member) bool {
		return ptr.Deref(a.Template.TrafficDistribution, "") != ptr.Deref(b.Template.TrafficDistribution, "")
	}},
	{mcsv1beta1.ServiceExportReasonIPFamilyConflict, func(a, b clusterset.Member) bool { return !slices.Equal(a.Template.IPFamilies, b.Template.IPFamilies) }},
}

// conflicts returns the reasons for which the first export conflicts with others.
func conflicts(exporters []clusterset.Member) (reasons []string) {
	for _, d := range differences {
		if len(exporters) > 1 && slices.ContainsFunc(exporters[1:], func(m clusterset.Member) bool { return d.differ(exporters[0], m) }) {
			reasons = append(reasons, string(d.reason))
		}
	}
	return reasons
}

// portsDiffer reports whether one of two exports has a port that the other lacks or
// has with other fields. The import has such a port too, and yet KEP-1645 calls it a
// conflict.
func portsDiffer(a, b []corev1.ServicePort) bool {
	same := func(p, q corev1.ServicePort) bool {
		return p.Name == q.Name && p.Port == q.Port && p.Protocol == q.Protocol && ptr.Deref(p.AppProtocol, "") == ptr.Deref(q.AppProtocol, "")
	}
	lacks := func(a, b []corev1.ServicePort) bool {
		return slices.ContainsFunc(a, func(p corev1.ServicePort) bool {
			return !slices.ContainsFunc(b, func(q corev1.ServicePort) bool { return same(p, q) })
		})
	}
	return lacks(a, b) || lacks(b, a)
}
