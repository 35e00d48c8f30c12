package agent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/payload"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// serviceClusters is how claims become ServiceClusters.
func (t *term) serviceClusters() projection[*v1alpha1.ServiceCluster, *v1alpha1.ServiceClusterList] {
	return projection[*v1alpha1.ServiceCluster, *v1alpha1.ServiceClusterList]{
		client: t.api.ServiceClusters,
		make: func(c stored.Claim) (*v1alpha1.ServiceCluster, error) {
			spec, err := payload.ServiceCluster(c.Payload)
			spec.Region = string(c.Owner.Home)
			return &v1alpha1.ServiceCluster{Spec: spec}, err
		},
		fit: func(have, want *v1alpha1.ServiceCluster) bool {
			changed := !equality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = want.Spec
			return changed
		},
		follow: t.followServiceCluster,
		clear:  t.clearServiceCluster,
	}
}

// connects says whether this agent is the one that connects to the service cluster.
func (t *term) connects(c *v1alpha1.ServiceCluster) bool {
	return c.Spec.Region == string(t.api.Region) && c.Spec.KubeconfigSecret != nil
}

// followServiceCluster has a site work for the service cluster if its home is here.
func (t *term) followServiceCluster(ctx context.Context, c *v1alpha1.ServiceCluster, unread error) error {
	status := *c.Status.DeepCopy()
	switch {
	case unread != nil:
		set(&status.Conditions, v1alpha1.ConditionReady, false, reasonUnread, unread.Error()+"; an agent of that version is needed")
	case c.Spec.Region != string(t.api.Region):
		status = v1alpha1.ServiceClusterStatus{}
	case c.Spec.KubeconfigSecret == nil:
		set(&status.Conditions, v1alpha1.ConditionReady, false, "NoKubeconfig", "it was created without a kubeconfig Secret, so that nobody connects to it")
	default:
		t.sites.start(c.Name)
		return nil
	}
	return t.saveServiceCluster(ctx, c, status)
}

// clearServiceCluster waits for the assignments, which need the service cluster to be removed.
func (t *term) clearServiceCluster(ctx context.Context, c *v1alpha1.ServiceCluster) (bool, error) {
	if t.connects(c) {
		t.sites.start(c.Name) // this process may be new
		all, err := t.api.Assignments.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, a := range all.Items {
			if a.Spec.ServiceCluster != c.Name {
				continue
			}
			status := *c.Status.DeepCopy()
			set(&status.Conditions, v1alpha1.ConditionReady, false, reasonRemoving, fmt.Sprintf("the service cluster is deleted, and the assignment %s is still being removed", a.Name))
			return false, t.saveServiceCluster(ctx, c, status)
		}
		if err := t.releaseInstances(ctx, c.Name); err != nil {
			return false, err
		}
	}
	t.sites.end(c.Name)
	return true, nil
}
