package servicesync

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// Conditions of a PublishedService. Each appears when it first is true.
const (
	// ConditionConflict says that clusters contradict each other about the Service.
	ConditionConflict = "Conflict"
	// ConditionWaiting says what a migration waits for.
	ConditionWaiting = "Waiting"
)

// conditionsOf are a Service's conditions as a decision has them; of those that
// never were true nothing is said.
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

// sayConditions writes a Service's conditions, where they have changed.
func (s *site) sayConditions(ctx context.Context, k types.NamespacedName, result model.Result) error {
	found := s.pubs.Of(k)
	if len(found) == 0 {
		return nil
	}
	published := found[0]
	conditions := conditionsOf(published.Status.Conditions, result)
	if equality.Semantic.DeepEqual(conditions, published.Status.Conditions) {
		return nil
	}
	next := published.DeepCopy()
	next.Status = v1alpha1.PublishedServiceStatus{Conditions: conditions}
	return s.write(ctx, k, model.Write{Verb: model.UpdateStatus, Store: model.Publications, Object: next, Before: published})
}
