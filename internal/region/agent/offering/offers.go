package offering

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/agent/views"
	"github.com/xbernetes/xbernetes/internal/region/catalog"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
	"github.com/xbernetes/xbernetes/internal/region/local"
)

// Item is an entry of the catalog, or an instance of one.
type Item struct{ Entry, Instance types.NamespacedName }

// Offers are the kinds of one service cluster that the region serves now, each with a watch of its
// instances.
type Offers struct {
	Catalog
	cluster string
	look    func(at Item, after time.Duration) // has an item looked at

	mu  sync.Mutex
	of  map[types.NamespacedName]offer // guarded by mu
	all sync.WaitGroup
}

// New returns the offers of a service cluster, which are none yet. Whoever calls it has items looked
// at, by Offer and Sync, when look is called.
func New(api *local.API, cluster string, look func(at Item, after time.Duration)) *Offers {
	return &Offers{Catalog: Catalog{api}, cluster: cluster, look: look, of: map[types.NamespacedName]offer{}}
}

type offer struct {
	kind catalog.Kind
	end  context.CancelFunc
}

// start begins to watch the instances of an entry, if nobody does yet.
func (o *Offers) start(ctx context.Context, entry types.NamespacedName, k catalog.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.of[entry]
	switch {
	case ok && have.kind == k, ctx.Err() != nil:
		return
	case ok:
		have.end()
	}
	ctx, cancel := context.WithCancel(ctx)
	o.of[entry] = offer{k, cancel}
	informer := o.instances(entry, k)
	o.all.Go(func() { informer.RunWithContext(ctx) })
}

// kind is what an entry offers, if the region serves it now.
func (o *Offers) kind(entry types.NamespacedName) (catalog.Kind, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.of[entry]
	return have.kind, ok
}

func (o *Offers) end(entry types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if have, ok := o.of[entry]; ok {
		have.end()
		delete(o.of, entry)
	}
}

// Stop returns once nothing is watched any more. The contexts must be over.
func (o *Offers) Stop() {
	o.mu.Lock()
	for _, have := range o.of {
		have.end()
	}
	o.mu.Unlock()
	o.all.Wait()
}

// instances watches the instances of an entry, and has each looked at that changes.
func (o *Offers) instances(entry types.NamespacedName, k catalog.Kind) cache.SharedIndexInformer {
	client := o.API.Dynamic.Resource(k.Offered())
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		},
	}, &unstructured.Unstructured{}, views.Resync, cache.Indexers{})
	look := func(changed any) {
		if m, ok := changed.(metav1.Object); ok {
			o.look(Item{entry, types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}}, 0)
		}
	}
	must(informer.SetTransform(func(seen any) (any, error) {
		if u, ok := seen.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			delete(u.Object, "spec") // what is written is read anew
			delete(u.Object, "status")
		}
		return seen, nil
	}))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, now any) { look(now) }})
	must(err)
	return informer
}

// must is for what fails only if an informer has been started.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("set up a watch: %v", err))
	}
}

// Offer serves in the region what an entry names on the service cluster, and follows its instances
// until ctx ends; soon ends before that.
func (o *Offers) Offer(ctx, soon context.Context, at types.NamespacedName, remote *cluster.Cluster) error {
	e, err := o.API.Entries(at.Namespace).Get(soon, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o.end(at)
		return nil
	}
	if err != nil || e.DeletionTimestamp != nil {
		return err
	}
	kind, reason, message, err := o.offered(soon, e, remote)
	if err != nil {
		return err
	}
	if reason != "" {
		o.look(Item{Entry: at}, entryEvery)
		return o.NotOffered(soon, e, reason, message)
	}
	if !slices.Contains(e.Finalizers, v1alpha1.Finalizer) {
		e.Finalizers = append(e.Finalizers, v1alpha1.Finalizer)
		if e, err = o.API.Entries(e.Namespace).Update(soon, e, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	taken, err := o.define(soon, kind, e)
	switch {
	case err != nil:
		return err
	case taken != "":
		return o.NotOffered(soon, e, "NameTaken", taken)
	}
	o.start(ctx, at, kind)
	o.look(Item{Entry: at}, entryEvery)
	next := *e.Status.DeepCopy()
	next.Resource = kind.Definition()
	status.Set(&next.Conditions, v1alpha1.ConditionReady, true, status.Ready, fmt.Sprintf("the region serves %s", kind.Definition()))
	return status.Entry(soon, o.API, e, next)
}

// offered is the kind that an entry names on the service cluster, or why it cannot be offered.
func (o *Offers) offered(ctx context.Context, e *v1alpha1.CatalogEntry, remote *cluster.Cluster) (k catalog.Kind, reason, message string, err error) {
	c, err := o.API.ServiceClusters.Get(ctx, o.cluster, metav1.GetOptions{})
	switch {
	case err != nil:
		return k, "", "", err
	case !o.API.Connects(c) || c.Spec.KubeconfigSecret.Namespace != e.Namespace:
		return k, "NotTheProvider", fmt.Sprintf("the Secret of the service cluster %s is in another namespace: who has that namespace provides it", o.cluster), nil
	case remote == nil:
		return k, "ServiceClusterNotReady", fmt.Sprintf("nobody can connect to the service cluster %s now; its conditions say why", o.cluster), nil
	}
	crd, err := remote.Definition(ctx, e.Spec.CRD)
	switch {
	case apierrors.IsNotFound(err):
		return k, "CRDMissing", fmt.Sprintf("the service cluster %s has no CustomResourceDefinition %s", o.cluster, e.Spec.CRD), nil
	case err != nil:
		why := cluster.Explain(err)
		return k, why.Reason, fmt.Sprintf("the service cluster %s: %s", o.cluster, why.Message), nil
	}
	if k, err = catalog.KindOf(crd); err != nil || crd.GetName() != e.Spec.CRD {
		return k, "CRDRefused", fmt.Sprintf("the CustomResourceDefinition %s cannot be offered: %v", e.Spec.CRD, err), nil
	}
	return k, "", "", nil
}
