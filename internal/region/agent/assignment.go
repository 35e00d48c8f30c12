package agent

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// assignments is how claims become ServiceClusterAssignments. What follows from them is the work
// of the service cluster's site, in whose home the assignment waits for it.
func (t *term) assignments() projection.Projection[*v1alpha1.ServiceClusterAssignment, *v1alpha1.ServiceClusterAssignmentList] {
	return projection.Projection[*v1alpha1.ServiceClusterAssignment, *v1alpha1.ServiceClusterAssignmentList]{
		Client: t.api.Assignments,
		Make: func(c stored.Claim) (*v1alpha1.ServiceClusterAssignment, error) {
			on, account, _ := strings.Cut(c.Key.Name, "/")
			return &v1alpha1.ServiceClusterAssignment{
				Spec: v1alpha1.ServiceClusterAssignmentSpec{ServiceCluster: on, Account: account, Region: string(c.Owner.Home)},
			}, nil
		},
		Fit: func(have, want *v1alpha1.ServiceClusterAssignment) bool {
			changed := have.Spec != want.Spec
			have.Spec = want.Spec
			return changed
		},
		Follow: func(_ context.Context, a *v1alpha1.ServiceClusterAssignment, _ error) error {
			t.sites.Assignment(a.Spec.ServiceCluster, a.Name)
			return nil
		},
		Clear: t.clearAssignment,
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
	case !t.api.Connects(c):
		return true, nil
	}
	t.sites.Start(c.Name)
	t.sites.Assignment(c.Name, a.Name)
	return false, nil
}
