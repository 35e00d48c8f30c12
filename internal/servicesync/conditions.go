package servicesync

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// Conditions of a PublishedService. A condition is added when it becomes true for the first
// time.
const (
	// ConditionConflict says that clusters contradict each other about the Service.
	ConditionConflict = "Conflict"
	// ConditionWaiting says what a migration waits for.
	ConditionWaiting = "Waiting"
)

// conditionsOf returns a Service's conditions after a decision. A condition that never was
// true is left out.
func conditionsOf(before []metav1.Condition, result model.Result) []metav1.Condition {
	after := append([]metav1.Condition(nil), before...)
	say := func(kind, reason, message string) {
		switch {
		case message != "":
			meta.SetStatusCondition(&after, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message})
		case meta.FindStatusCondition(after, kind) != nil:
			meta.SetStatusCondition(&after, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "None"})
		}
	}
	f := result.Facts
	conflict := f.Conflict
	for _, e := range result.Events {
		if e.Reason == f.Conflict {
			conflict = e.Note
		}
	}
	say(ConditionConflict, f.Conflict, conflict)
	reason := string(f.Phase)
	if reason == "" {
		reason = "Waiting"
	}
	say(ConditionWaiting, reason, f.Holds)
	return after
}

// writeConditions writes a Service's conditions if they have changed.
func (s *site) writeConditions(ctx context.Context, k types.NamespacedName, result model.Result) error {
	published := s.informers.published(k).Service
	if published == nil {
		return nil
	}
	conditions := conditionsOf(published.Status.Conditions, result)
	if equality.Semantic.DeepEqual(conditions, published.Status.Conditions) {
		return nil
	}
	next := published.DeepCopy()
	next.Status = v1alpha1.PublishedServiceStatus{Conditions: conditions}
	return s.write(ctx, k, model.Write{Verb: model.UpdateStatus, Where: model.Publications, Object: next, Before: published})
}

// ConditionRanges is the condition of a ClusterLease that says whether the addresses of
// the cluster's pods are its own.
const ConditionRanges = "PodRangesDistinct"

// standing is what holds for the own cluster as a whole.
type standing struct {
	podRanges []string         // of the own cluster; nil: unknown
	rights    metav1.Condition // found before the work began
	overlap   string           // the overlap that was logged last; only conditions uses it, which the lease's keeper calls
}

// conditions returns the conditions of the own lease, given the leases of peers.
func (s *standing) conditions(peers []*v1alpha1.ClusterLease, log *slog.Logger) []metav1.Condition {
	var shared []string
	for _, lease := range peers {
		for _, pair := range clusterset.Overlaps(s.podRanges, lease.Spec.PodRanges) {
			shared = append(shared, fmt.Sprintf("%s here and %s of %s", pair[0], pair[1], lease.Name))
		}
	}
	slices.Sort(shared)
	ranges := metav1.Condition{Type: ConditionRanges, Status: metav1.ConditionTrue, Reason: "Distinct", Message: "no peer has pods in a range of this cluster"}
	switch {
	case len(s.podRanges) == 0:
		ranges.Status, ranges.Reason, ranges.Message = metav1.ConditionUnknown, "Unknown", "no node tells its pod range; give --pod-ranges"
	case len(shared) > 0:
		ranges.Status, ranges.Reason = metav1.ConditionFalse, "Overlap"
		ranges.Message = fmt.Sprintf("pod ranges overlap: %s; requests reach the wrong pods until one of them is changed", strings.Join(shared[:min(len(shared), 5)], ", "))
	}
	if ranges.Status == metav1.ConditionFalse && s.overlap != ranges.Message {
		log.Warn("clusters share pod addresses", "reason", ranges.Message)
	}
	s.overlap = ranges.Message
	return []metav1.Condition{s.rights, ranges}
}
