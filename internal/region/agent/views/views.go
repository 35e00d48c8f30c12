// Package views watches one region, and says which names to look at. What is done about a name is
// decided by what the API answers then, and never by a view.
package views

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Resync is how often all names are looked at though nothing was noticed.
const Resync = 10 * time.Minute

// byCluster is the index of assignments and entries by their service cluster.
const byCluster = "cluster"

// Views are of all kinds that an agent looks at.
type Views struct {
	informers                                       []cache.SharedIndexInformer
	accounts, serviceClusters, assignments, entries cache.SharedIndexInformer
}

// New calls add with each name that something has happened to, once the views run.
func New(api *local.API, add func(stored.Key)) *Views {
	v := &Views{}
	objects := func(kind string) func(any) []stored.Key {
		return func(o any) []stored.Key { return []stored.Key{projection.KeyOf(kind, o.(metav1.Object).GetName())} }
	}
	region := []stored.Key{{Kind: projection.KindRegion}}
	v.watch(lister(api.Claims), &v1alpha1.Claim{}, add, func(o any) []stored.Key {
		return []stored.Key{stored.Key(o.(*v1alpha1.Claim).Spec.Key)}
	})
	v.accounts = v.watch(lister(api.Accounts), &v1alpha1.Account{}, add, objects(projection.KindAccount))
	v.serviceClusters = v.watch(lister(api.ServiceClusters), &v1alpha1.ServiceCluster{}, add, objects(projection.KindServiceCluster))
	v.assignments = v.watch(lister(api.Assignments), &v1alpha1.ServiceClusterAssignment{}, add, objects(projection.KindAssignment))
	v.entries = v.watch(lister(api.Entries("")), &v1alpha1.CatalogEntry{}, add, func(o any) []stored.Key {
		e := o.(*v1alpha1.CatalogEntry)
		return []stored.Key{{Kind: projection.KindEntry, Name: e.Namespace + "/" + e.Name}}
	})
	v.watch(lister(api.Regions), &v1alpha1.Region{}, add, func(any) []stored.Key { return region })
	// While the region is no active member, nothing is decided: then all names are looked at.
	names := slices.Clone(v.informers)
	v.watch(lister(api.Memberships), &v1alpha1.Membership{}, add, func(any) []stored.Key {
		return append(allOf(names), region...)
	})
	ofAccount := func(o any) []stored.Key {
		return []stored.Key{{Kind: projection.KindAccount, Name: o.(metav1.Object).GetLabels()[v1alpha1.LabelAccount]}}
	}
	namespaces, bindings := api.Kube.CoreV1().Namespaces(), api.Kube.RbacV1().RoleBindings("")
	v.watch(labelled(namespaces.List, namespaces.Watch), &corev1.Namespace{}, add, ofAccount)
	v.watch(labelled(bindings.List, bindings.Watch), &rbacv1.RoleBinding{}, add, ofAccount)
	return v
}

// allOf are the names that views of claims and of what is made of them have.
func allOf(views []cache.SharedIndexInformer) (keys []stored.Key) {
	for _, v := range views {
		for _, o := range v.GetStore().List() {
			switch o := o.(type) {
			case *v1alpha1.Claim:
				keys = append(keys, stored.Key(o.Spec.Key))
			case *v1alpha1.Account:
				keys = append(keys, projection.KeyOf(projection.KindAccount, o.Name))
			case *v1alpha1.ServiceCluster:
				keys = append(keys, projection.KeyOf(projection.KindServiceCluster, o.Name))
			case *v1alpha1.ServiceClusterAssignment:
				keys = append(keys, projection.KeyOf(projection.KindAssignment, o.Name))
			}
		}
	}
	return keys
}

// watch makes a view of one kind.
func (v *Views) watch(from cache.ListerWatcher, kind runtime.Object, add func(stored.Key), keys func(any) []stored.Key) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(from, kind, Resync, cache.Indexers{})
	tell := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		for _, k := range keys(o) {
			add(k)
		}
	}
	must(informer.AddIndexers(cache.Indexers{byCluster: func(o any) ([]string, error) {
		switch o := o.(type) {
		case *v1alpha1.ServiceClusterAssignment:
			return []string{o.Spec.ServiceCluster}, nil
		case *v1alpha1.CatalogEntry:
			return []string{o.Spec.ServiceCluster}, nil
		}
		return nil, nil
	}}))
	must(informer.SetTransform(slim))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }, DeleteFunc: tell})
	must(err)
	v.informers = append(v.informers, informer)
	return informer
}

// must is for what fails only if an informer has been started.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("set up a view: %v", err))
	}
}

// slim drops what no view is asked for.
func slim(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	if c, ok := o.(*v1alpha1.Claim); ok {
		c.Spec.Payload = ""
	}
	return o, nil
}

// Run keeps the views until ctx ends.
func (v *Views) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, informer := range v.informers {
		g.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Wait waits for all views to be complete; false: ctx has ended first.
func (v *Views) Wait(ctx context.Context) bool {
	synced := make([]cache.InformerSynced, len(v.informers))
	for i, informer := range v.informers {
		synced[i] = informer.HasSynced
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// Of are the assignments and the entries of a service cluster.
func (v *Views) Of(cluster string) (assignments []string, entries []types.NamespacedName) {
	for _, o := range indexed(v.assignments, cluster) {
		assignments = append(assignments, o.(*v1alpha1.ServiceClusterAssignment).Name)
	}
	for _, o := range indexed(v.entries, cluster) {
		e := o.(*v1alpha1.CatalogEntry)
		entries = append(entries, types.NamespacedName{Namespace: e.Namespace, Name: e.Name})
	}
	return assignments, entries
}

func indexed(view cache.SharedIndexInformer, cluster string) []any {
	found, err := view.GetIndexer().ByIndex(byCluster, cluster)
	must(err)
	return found
}

// Objects are those of the kinds that have a condition Ready, by kind.
func (v *Views) Objects() map[string][]any {
	return map[string][]any{
		projection.KindAccount: v.accounts.GetStore().List(), projection.KindServiceCluster: v.serviceClusters.GetStore().List(),
		projection.KindAssignment: v.assignments.GetStore().List(), projection.KindEntry: v.entries.GetStore().List(),
	}
}

// lister lists and watches one kind of the region's own.
func lister[T local.Object, L runtime.Object](c *local.Client[T, L]) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, o)
		},
	}
}

// labelled lists and watches what was made for accounts.
func labelled[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = v1alpha1.LabelAccount
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = v1alpha1.LabelAccount
			return follow(ctx, o)
		},
	}
}
