package offering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/catalog"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
)

// instanceEvery is how often an instance's status is read. Nobody watches a service cluster: what
// it answers to a read is bounded, and a watch is not.
const instanceEvery = 10 * time.Second

// instance is one tenant's instance of a kind of the catalog, while it is worked on.
type instance struct {
	*Offers
	entry   *v1alpha1.CatalogEntry
	kind    catalog.Kind
	tenants *unstructured.Unstructured
}

// Sync makes the service cluster have what a tenant's instance says, and brings the status back.
func (o *Offers) Sync(ctx context.Context, at Item, remote *cluster.Cluster) error {
	kind, ok := o.kind(at.Entry)
	if !ok {
		return nil // once it is offered, all instances are looked at
	}
	e, err := o.API.Entries(at.Entry.Namespace).Get(ctx, at.Entry.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreAbsent(err)
	}
	have, err := o.API.Dynamic.Resource(kind.Offered()).Namespace(at.Instance.Namespace).Get(ctx, at.Instance.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreAbsent(err)
	}
	i := &instance{o, e, kind, have}
	on, reason, message, err := i.place(ctx)
	if err != nil {
		return err
	}
	if have.GetDeletionTimestamp() != nil {
		return i.delete(ctx, on, reason, remote)
	}
	defer o.look(at, instanceEvery)
	switch {
	case reason != "":
		return i.say(ctx, nil, reason, message)
	case remote == nil:
		return i.say(ctx, nil, "ServiceClusterNotReady", fmt.Sprintf("nobody can connect to the service cluster %s now", o.cluster))
	}
	return i.apply(ctx, on, remote)
}

func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// The reasons why an instance has no place on the service cluster. notAssigned is one for good, as
// long as nothing changes: there is nothing of the instance on the service cluster.
const (
	notAssigned = "NotAssigned"
	notYet      = "AssignmentNotReady"
	notAllowed  = "NotAllowed"
)

// place is the namespace on the service cluster for an instance, or why there is none. An
// account's namespace is the one that its agent made, and no other of its name.
func (i *instance) place(ctx context.Context) (on, reason, message string, err error) {
	account := i.tenants.GetNamespace()
	a, err := i.API.Assignments.Get(ctx, i.cluster+"."+account, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", notAssigned, fmt.Sprintf("the account %s is not assigned to the service cluster %s", account, i.cluster), nil
	case err != nil:
		return "", "", "", err
	}
	owner, err := i.API.Accounts.Get(ctx, account, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", "", "", err
	case err != nil || owner.Status.Namespace != account:
		return "", notAssigned, fmt.Sprintf("the namespace %s is not that of an account", account), nil
	case a.Status.Namespace == "" || a.DeletionTimestamp != nil:
		return "", notYet, fmt.Sprintf("the account's assignment to the service cluster %s is not ready; its conditions say why", i.cluster), nil
	case !catalog.Allows(i.entry, account):
		return a.Status.Namespace, notAllowed, fmt.Sprintf("the catalog's entry is not for the account %s", account), nil
	}
	return a.Status.Namespace, "", "", nil
}

// apply makes the instance on the service cluster.
func (i *instance) apply(ctx context.Context, on string, remote *cluster.Cluster) error {
	if !slices.Contains(i.tenants.GetFinalizers(), v1alpha1.Finalizer) {
		i.tenants.SetFinalizers(append(i.tenants.GetFinalizers(), v1alpha1.Finalizer))
		var err error
		if i.tenants, err = i.client().Update(ctx, i.tenants, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	theirs, err := remote.Instance(ctx, i.kind.Resource(), on, i.tenants.GetName())
	switch {
	case apierrors.IsNotFound(err):
		theirs = nil
	case err != nil:
		return i.failed(ctx, err)
	case !catalog.MadeFor(theirs, i.tenants):
		return i.say(ctx, nil, "NameTaken", "the service cluster has an instance of this name that was not made for this one; it was not changed")
	}
	theirs, err = remote.Apply(ctx, i.kind.Resource(), catalog.Instance(i.kind, i.entry, i.tenants, on), theirs)
	if err != nil {
		return i.failed(ctx, err)
	}
	return i.say(ctx, theirs, "", "the service cluster has it")
}

// failed says what the service cluster answered.
func (i *instance) failed(ctx context.Context, err error) error {
	why := cluster.Explain(err)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		why.Reason = "Refused"
	}
	return i.say(ctx, nil, why.Reason, fmt.Sprintf("the service cluster %s: %s", i.cluster, why.Message))
}

// delete removes the instance from the service cluster, and lets the tenant's go once it is gone.
func (i *instance) delete(ctx context.Context, on, reason string, remote *cluster.Cluster) error {
	if !slices.Contains(i.tenants.GetFinalizers(), v1alpha1.Finalizer) {
		return nil
	}
	waits := func(message string) error {
		if err := i.say(ctx, nil, status.Removing, message); err != nil {
			return err
		}
		return projection.ErrWaiting
	}
	switch {
	case reason == notAssigned:
		return i.releaseInstance(ctx, i.kind, i.tenants) // with the assignment, all that was there has gone
	case on == "" || remote == nil:
		return waits(fmt.Sprintf("nobody can connect to the service cluster %s now, to remove the instance there", i.cluster))
	}
	theirs, err := remote.Instance(ctx, i.kind.Resource(), on, i.tenants.GetName())
	switch {
	case apierrors.IsNotFound(err), err == nil && !catalog.MadeFor(theirs, i.tenants):
		return i.releaseInstance(ctx, i.kind, i.tenants)
	case err != nil:
		return waits(fmt.Sprintf("the service cluster %s: %s", i.cluster, cluster.Explain(err).Message))
	}
	if theirs.GetDeletionTimestamp() == nil {
		if err := remote.Delete(ctx, i.kind.Resource(), theirs); err != nil && !apierrors.IsNotFound(err) {
			return waits(fmt.Sprintf("the service cluster %s: %s", i.cluster, cluster.Explain(err).Message))
		}
	}
	return waits(fmt.Sprintf("the service cluster %s is removing it", i.cluster))
}

// client is that of the tenant's instance.
func (i *instance) client() dynamic.ResourceInterface {
	return i.API.Dynamic.Resource(i.kind.Offered()).Namespace(i.tenants.GetNamespace())
}

// say writes the tenant's status: what the service cluster says, if that is known, and whether the
// two sides are alike. Without a reason they are.
func (i *instance) say(ctx context.Context, theirs *unstructured.Unstructured, reason, message string) error {
	synced := metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	if reason == "" {
		synced.Status, synced.Reason = metav1.ConditionTrue, "Synced"
	}
	next := catalog.Status(i.entry, i.tenants, theirs, synced)
	if equality.Semantic.DeepEqual(i.tenants.Object["status"], any(next)) {
		return nil
	}
	i.tenants.Object["status"] = next
	_, err := i.client().UpdateStatus(ctx, i.tenants, metav1.UpdateOptions{})
	return ignoreAbsent(err)
}
