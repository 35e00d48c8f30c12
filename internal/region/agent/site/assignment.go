package site

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/namespace"
)

// on is the namespace of an assignment on its service cluster.
func on(a *v1alpha1.ServiceClusterAssignment) namespace.Wanted {
	return namespace.Wanted{
		Name: namespace.Derived(a.Spec.Account, projection.MadeFor(a)), Account: a.Spec.Account, Operation: projection.MadeFor(a),
	}
}

// assign makes an assignment's namespace on the service cluster, or removes it if the assignment
// is deleted. remote is nil if nobody can connect to the service cluster now.
func (s *site) assign(ctx context.Context, name string, remote *cluster.Cluster) error {
	a, err := s.api.Assignments.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !slices.Contains(a.Finalizers, v1alpha1.Finalizer) {
		return err
	}
	next := *a.Status.DeepCopy()
	not := func(reason, message string) error {
		status.Set(&next.Conditions, v1alpha1.ConditionReady, false, reason, message)
		return errors.Join(status.Assignment(ctx, s.api, a, next), projection.ErrWaiting)
	}
	if remote == nil {
		return not("ServiceClusterNotReady", fmt.Sprintf("nobody can connect to the service cluster %s now; its conditions say why", s.name))
	}
	if a.DeletionTimestamp != nil {
		return s.unassign(ctx, a, remote, not)
	}
	state, err := remote.Ensure(ctx, on(a))
	switch {
	case err != nil:
		why := cluster.Explain(err)
		return not(why.Reason, fmt.Sprintf("the service cluster %s: %s", s.name, why.Message))
	case state == namespace.Taken:
		return not("NamespaceTaken", fmt.Sprintf("a namespace %s is on the service cluster that was not made for this assignment; nothing in it was changed", on(a).Name))
	case state == namespace.Terminating:
		return not("NamespaceTerminating", fmt.Sprintf("somebody has deleted the namespace %s on the service cluster; it is made again once it is gone", on(a).Name))
	}
	next.Namespace = on(a).Name
	status.Set(&next.Conditions, v1alpha1.ConditionReady, true, status.Ready, fmt.Sprintf("the namespace %s is on the service cluster", on(a).Name))
	return status.Assignment(ctx, s.api, a, next)
}

// unassign removes an assignment's namespace from the service cluster, and lets the assignment
// go once it is gone. An object that somebody has deleted while the name stands is let go at
// once, and made again: the namespace stays.
func (s *site) unassign(ctx context.Context, a *v1alpha1.ServiceClusterAssignment, remote *cluster.Cluster, not func(reason, message string) error) error {
	claim, stands, err := s.api.Standing(ctx, projection.KeyOf(projection.KindAssignment, a.Name))
	switch {
	case err != nil:
		return err
	case stands == local.Undecided:
		return projection.ErrWaiting
	case stands == local.Owned && claim.Owner.Op.String() == projection.MadeFor(a):
		return nil
	}
	gone, err := remote.Remove(ctx, on(a))
	switch {
	case err != nil:
		why := cluster.Explain(err)
		return not(why.Reason, fmt.Sprintf("the assignment is deleted, and its namespace %s cannot be removed: the service cluster %s: %s", on(a).Name, s.name, why.Message))
	case !gone:
		return not(status.Removing, fmt.Sprintf("the assignment is deleted, and its namespace %s is being removed from the service cluster", on(a).Name))
	}
	return projection.Release(ctx, s.api.Assignments, a)
}
