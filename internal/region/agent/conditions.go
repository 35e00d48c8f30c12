package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// Reasons of conditions that several kinds have.
const (
	reasonReady    = "Ready"
	reasonUnread   = "SpecNotRead"
	reasonRemoving = "Removing"
)

// set sets a condition.
func set(all *[]metav1.Condition, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(all, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// saveAccount writes an account's status if it is another than before.
func (t *term) saveAccount(ctx context.Context, have *v1alpha1.Account, status v1alpha1.AccountStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	have = have.DeepCopy()
	have.Status = status
	_, err := t.api.Accounts.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}

// saveServiceCluster writes a service cluster's status if it is another than before.
func (t *term) saveServiceCluster(ctx context.Context, have *v1alpha1.ServiceCluster, status v1alpha1.ServiceClusterStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	have = have.DeepCopy()
	have.Status = status
	_, err := t.api.ServiceClusters.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}

// saveAssignment writes an assignment's status if it is another than before.
func (t *term) saveAssignment(ctx context.Context, have *v1alpha1.ServiceClusterAssignment, status v1alpha1.ServiceClusterAssignmentStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	have = have.DeepCopy()
	have.Status = status
	_, err := t.api.Assignments.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}

// saveEntry writes an entry's status if it is another than before.
func (t *term) saveEntry(ctx context.Context, have *v1alpha1.CatalogEntry, status v1alpha1.CatalogEntryStatus) error {
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	have = have.DeepCopy()
	have.Status = status
	_, err := t.api.Entries(have.Namespace).UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}
