package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/namespace"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// assignments is how claims become ServiceClusterAssignments. What follows from them is the work
// of the service cluster's site, in whose home the assignment waits for it.
func (t *term) assignments() projection[*v1alpha1.ServiceClusterAssignment, *v1alpha1.ServiceClusterAssignmentList] {
	return projection[*v1alpha1.ServiceClusterAssignment, *v1alpha1.ServiceClusterAssignmentList]{
		client: t.api.Assignments,
		make: func(c stored.Claim) (*v1alpha1.ServiceClusterAssignment, error) {
			on, account, _ := strings.Cut(c.Key.Name, "/")
			return &v1alpha1.ServiceClusterAssignment{
				Spec: v1alpha1.ServiceClusterAssignmentSpec{ServiceCluster: on, Account: account, Region: string(c.Owner.Home)},
			}, nil
		},
		fit: func(have, want *v1alpha1.ServiceClusterAssignment) bool {
			changed := have.Spec != want.Spec
			have.Spec = want.Spec
			return changed
		},
		follow: func(_ context.Context, a *v1alpha1.ServiceClusterAssignment, _ error) error {
			t.sites.nudge(a.Spec.ServiceCluster, item{assignment: a.Name})
			return nil
		},
		clear: t.clearAssignment,
	}
}

// clearAssignment has the site remove the namespace, if the service cluster's home is here. The
// site lets the assignment go by itself.
func (t *term) clearAssignment(ctx context.Context, a *v1alpha1.ServiceClusterAssignment) (bool, error) {
	c, err := t.api.ServiceClusters.Get(ctx, a.Spec.ServiceCluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case !t.connects(c):
		return true, nil
	}
	t.sites.start(c.Name)
	t.sites.nudge(c.Name, item{assignment: a.Name})
	return false, nil
}

// on is the namespace of an assignment on its service cluster.
func on(a *v1alpha1.ServiceClusterAssignment) namespace.Wanted {
	return namespace.Wanted{
		Name: namespace.Derived(a.Spec.Account, madeFor(a)), Account: a.Spec.Account, Operation: madeFor(a),
	}
}

// assign makes an assignment's namespace on the service cluster, or removes it if the assignment
// is deleted. remote is nil if nobody can connect to the service cluster now.
func (s *site) assign(ctx context.Context, name string, remote *cluster.Cluster) error {
	a, err := s.term.api.Assignments.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !slices.Contains(a.Finalizers, v1alpha1.Finalizer) {
		return err
	}
	status := *a.Status.DeepCopy()
	not := func(reason, message string) error {
		set(&status.Conditions, v1alpha1.ConditionReady, false, reason, message)
		return errors.Join(s.term.saveAssignment(ctx, a, status), errWaiting)
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
	status.Namespace = on(a).Name
	set(&status.Conditions, v1alpha1.ConditionReady, true, reasonReady, fmt.Sprintf("the namespace %s is on the service cluster", on(a).Name))
	return s.term.saveAssignment(ctx, a, status)
}

// unassign removes an assignment's namespace from the service cluster, and lets the assignment
// go once it is gone. An object that somebody has deleted while the name stands is let go at
// once, and made again: the namespace stays.
func (s *site) unassign(ctx context.Context, a *v1alpha1.ServiceClusterAssignment, remote *cluster.Cluster, not func(reason, message string) error) error {
	claim, stands, err := s.term.api.Standing(ctx, keyOf(kindAssignment, a.Name))
	switch {
	case err != nil:
		return err
	case stands == local.Undecided:
		return errWaiting
	case stands == local.Owned && claim.Owner.Op.String() == madeFor(a):
		return nil
	}
	gone, err := remote.Remove(ctx, on(a))
	switch {
	case err != nil:
		why := cluster.Explain(err)
		return not(why.Reason, fmt.Sprintf("the assignment is deleted, and its namespace %s cannot be removed: the service cluster %s: %s", on(a).Name, s.name, why.Message))
	case !gone:
		return not(reasonRemoving, fmt.Sprintf("the assignment is deleted, and its namespace %s is being removed from the service cluster", on(a).Name))
	}
	return s.term.assignments().release(ctx, a)
}
