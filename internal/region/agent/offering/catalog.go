// Package offering offers kinds of service clusters to the accounts of one region, by the entries of
// its catalog, and has tenants' instances alike in the region and there. It connects to no service
// cluster by itself.
package offering

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/catalog"
	"github.com/xbernetes/xbernetes/internal/region/local"
)

// entryEvery is how often an entry is looked at though nothing was noticed: nobody watches the
// definitions of service clusters.
const entryEvery = time.Minute

// definitions are the region's own.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Catalog is that of one region, without its service clusters.
type Catalog struct{ API *local.API }

// NotOffered says in the entry's condition why accounts cannot create instances.
func (c Catalog) NotOffered(ctx context.Context, e *v1alpha1.CatalogEntry, reason, message string) error {
	next := *e.Status.DeepCopy()
	status.Set(&next.Conditions, v1alpha1.ConditionReady, false, reason, message)
	return status.Entry(ctx, c.API, e, next)
}

// Withdraw removes the definition of an entry that is deleted, once there are no instances.
func (c Catalog) Withdraw(ctx context.Context, e *v1alpha1.CatalogEntry) error {
	if !slices.Contains(e.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	k, have, err := c.definitionOf(ctx, e)
	if err != nil {
		return err
	}
	if have != nil {
		left, err := c.API.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && len(left.Items) > 0 {
			first := left.Items[0]
			if err := c.NotOffered(ctx, e, "InUse", fmt.Sprintf("the entry is deleted, and stays until nobody has an instance; %s/%s is one", first.GetNamespace(), first.GetName())); err != nil {
				return err
			}
			return projection.ErrWaiting
		}
		err = c.API.Dynamic.Resource(definitions()).Delete(ctx, k.Definition(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))})
		if ignoreAbsent(err) != nil {
			return err
		}
	}
	e.Finalizers = slices.DeleteFunc(e.Finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
	_, err = c.API.Entries(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
	return err
}

// definitionOf is the region's definition that was made for an entry; nil if there is none.
func (c Catalog) definitionOf(ctx context.Context, e *v1alpha1.CatalogEntry) (catalog.Kind, *unstructured.Unstructured, error) {
	plural, _, _ := strings.Cut(e.Spec.CRD, ".")
	k := catalog.Kind{Plural: plural}
	have, err := c.API.Dynamic.Resource(definitions()).Get(ctx, k.Definition(), metav1.GetOptions{})
	if err != nil || have.GetAnnotations()[v1alpha1.AnnotationEntry] != e.Namespace+"/"+e.Name {
		return k, nil, ignoreAbsent(err)
	}
	return k, have, nil
}

// ReleaseInstances lets all instances go of a service cluster that has no assignments any more: there is
// nothing of them left on it, and soon nobody to work for them.
func (c Catalog) ReleaseInstances(ctx context.Context, cluster string) error {
	all, err := c.API.Entries("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		e := &all.Items[i]
		if e.Spec.ServiceCluster != cluster {
			continue
		}
		k, have, err := c.definitionOf(ctx, e)
		if err != nil {
			return err
		}
		if have == nil {
			continue
		}
		instances, err := c.API.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return ignoreAbsent(err)
		}
		for j := range instances.Items {
			if err := c.releaseInstance(ctx, k, &instances.Items[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseInstance takes the agent's finalizer off an instance.
func (c Catalog) releaseInstance(ctx context.Context, k catalog.Kind, of *unstructured.Unstructured) error {
	kept := slices.DeleteFunc(of.GetFinalizers(), func(f string) bool { return f == v1alpha1.Finalizer })
	if len(kept) == len(of.GetFinalizers()) {
		return nil
	}
	of.SetFinalizers(kept)
	_, err := c.API.Dynamic.Resource(k.Offered()).Namespace(of.GetNamespace()).Update(ctx, of, metav1.UpdateOptions{})
	return ignoreAbsent(err)
}

// define makes the region's definition for an entry, or says who has its name. It returns once the
// kind is served.
func (c Catalog) define(ctx context.Context, k catalog.Kind, e *v1alpha1.CatalogEntry) (taken string, err error) {
	client, entry := c.API.Dynamic.Resource(definitions()), e.Namespace+"/"+e.Name
	have, err := client.Get(ctx, k.Definition(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = client.Create(ctx, catalog.Define(k, entry), metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	if other := have.GetAnnotations()[v1alpha1.AnnotationEntry]; other != entry {
		return fmt.Sprintf("the name %s is taken, by the entry %q", k.Definition(), other), nil
	}
	if _, err := c.API.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return "", fmt.Errorf("%s is not served yet: %w", k.Definition(), projection.ErrWaiting)
	}
	return "", nil
}
