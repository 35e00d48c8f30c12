package agent

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/region/agent/offering"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// catalog is that of the region.
func (t *term) catalog() offering.Catalog { return offering.Catalog{API: t.api} }

// entry has the site of an entry's service cluster offer it, or withdraws it if it is deleted.
func (t *term) entry(ctx context.Context, key stored.Key) error {
	namespace, name, _ := strings.Cut(key.Name, "/")
	e, err := t.api.Entries(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case e.DeletionTimestamp != nil:
		return t.catalog().Withdraw(ctx, e)
	}
	c, err := t.api.ServiceClusters.Get(ctx, e.Spec.ServiceCluster, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err != nil || !t.api.Connects(c):
		return t.catalog().NotOffered(ctx, e, "NoServiceCluster", fmt.Sprintf("no service cluster %s has its home in region %s", e.Spec.ServiceCluster, t.api.Region))
	}
	t.sites.Start(c.Name)
	t.sites.Entry(c.Name, types.NamespacedName{Namespace: e.Namespace, Name: e.Name})
	return nil
}
