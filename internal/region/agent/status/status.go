// Package status writes what became of the objects of one region into their statuses, where it has
// changed, and into Events. It finds nothing out by itself.
package status

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/local"
)

// Reasons of conditions that several kinds have.
const (
	Ready    = "Ready"
	Unread   = "SpecNotRead"
	Removing = "Removing"
)

// Set sets a condition.
func Set(all *[]metav1.Condition, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(all, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// Account writes an account's status if it is another than before.
func Account(ctx context.Context, api *local.API, have *v1alpha1.Account, status v1alpha1.AccountStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	before := have.Status.Conditions
	have = have.DeepCopy()
	have.Status = status
	_, err := api.Accounts.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return told(api, have, before, status.Conditions, err)
}

// ServiceCluster writes a service cluster's status if it is another than before.
func ServiceCluster(ctx context.Context, api *local.API, have *v1alpha1.ServiceCluster, status v1alpha1.ServiceClusterStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	before := have.Status.Conditions
	have = have.DeepCopy()
	have.Status = status
	_, err := api.ServiceClusters.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return told(api, have, before, status.Conditions, err)
}

// Assignment writes an assignment's status if it is another than before.
func Assignment(ctx context.Context, api *local.API, have *v1alpha1.ServiceClusterAssignment, status v1alpha1.ServiceClusterAssignmentStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	before := have.Status.Conditions
	have = have.DeepCopy()
	have.Status = status
	_, err := api.Assignments.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return told(api, have, before, status.Conditions, err)
}

// Entry writes an entry's status if it is another than before.
func Entry(ctx context.Context, api *local.API, have *v1alpha1.CatalogEntry, status v1alpha1.CatalogEntryStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	before := have.Status.Conditions
	have = have.DeepCopy()
	have.Status = status
	_, err := api.Entries(have.Namespace).UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return told(api, have, before, status.Conditions, err)
}

// told writes an Event if the condition Ready has another status or reason than before, and returns
// err, which is why the status could not be written. Events are for people: they can be lost.
func told(api *local.API, of local.Object, before, now []metav1.Condition, err error) error {
	old, is := meta.FindStatusCondition(before, v1alpha1.ConditionReady), meta.FindStatusCondition(now, v1alpha1.ConditionReady)
	if err != nil || api.Events == nil || is == nil || old != nil && old.Status == is.Status && old.Reason == is.Reason {
		return err
	}
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue || is.Reason == Removing {
		kind = corev1.EventTypeNormal
	}
	api.Events.Event(of, kind, is.Reason, is.Message)
	return nil
}
