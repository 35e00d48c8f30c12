package agent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/payload"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// serviceClusters is how claims become ServiceClusters.
func (t *term) serviceClusters() projection.Projection[*v1alpha1.ServiceCluster, *v1alpha1.ServiceClusterList] {
	return projection.Projection[*v1alpha1.ServiceCluster, *v1alpha1.ServiceClusterList]{
		Client: t.api.ServiceClusters,
		Make: func(c stored.Claim) (*v1alpha1.ServiceCluster, error) {
			spec, err := payload.ServiceCluster(c.Payload)
			spec.Region = string(c.Owner.Home)
			return &v1alpha1.ServiceCluster{Spec: spec}, err
		},
		Fit: func(have, want *v1alpha1.ServiceCluster) bool {
			changed := !equality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = want.Spec
			return changed
		},
		Follow: t.followServiceCluster,
		Clear:  t.clearServiceCluster,
	}
}

// followServiceCluster has a site work for the service cluster if its home is here.
func (t *term) followServiceCluster(ctx context.Context, c *v1alpha1.ServiceCluster, unread error) error {
	next := *c.Status.DeepCopy()
	switch {
	case unread != nil:
		status.Set(&next.Conditions, v1alpha1.ConditionReady, false, status.Unread, unread.Error()+"; an agent of that version is needed")
	case c.Spec.Region != string(t.api.Region):
		next = v1alpha1.ServiceClusterStatus{}
	case c.Spec.KubeconfigSecret == nil:
		status.Set(&next.Conditions, v1alpha1.ConditionReady, false, "NoKubeconfig", "it was created without a kubeconfig Secret, so that nobody connects to it")
	default:
		t.sites.Start(c.Name)
		return nil
	}
	return status.ServiceCluster(ctx, t.api, c, next)
}

// clearServiceCluster waits for the assignments, which need the service cluster to be removed.
func (t *term) clearServiceCluster(ctx context.Context, c *v1alpha1.ServiceCluster) (bool, error) {
	if t.api.Connects(c) {
		t.sites.Start(c.Name) // this process may be new
		all, err := t.api.Assignments.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, a := range all.Items {
			if a.Spec.ServiceCluster != c.Name {
				continue
			}
			next := *c.Status.DeepCopy()
			status.Set(&next.Conditions, v1alpha1.ConditionReady, false, status.Removing, fmt.Sprintf("the service cluster is deleted, and the assignment %s is still being removed", a.Name))
			return false, status.ServiceCluster(ctx, t.api, c, next)
		}
		if err := t.catalog().ReleaseInstances(ctx, c.Name); err != nil {
			return false, err
		}
	}
	t.sites.End(c.Name)
	return true, nil
}
