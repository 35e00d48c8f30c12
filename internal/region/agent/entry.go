package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/catalog"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// entryEvery is how often an entry is looked at though nothing was noticed: nobody watches the
// definitions of service clusters.
const entryEvery = time.Minute

// definitions are the region's own.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

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
		return t.withdraw(ctx, e)
	}
	c, err := t.api.ServiceClusters.Get(ctx, e.Spec.ServiceCluster, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err != nil || !t.connects(c):
		return t.notOffered(ctx, e, "NoServiceCluster", fmt.Sprintf("no service cluster %s has its home in region %s", e.Spec.ServiceCluster, t.api.Region))
	}
	t.sites.start(c.Name)
	t.sites.nudge(c.Name, item{entry: types.NamespacedName{Namespace: e.Namespace, Name: e.Name}})
	return nil
}

// notOffered says in the entry's condition why accounts cannot create instances.
func (t *term) notOffered(ctx context.Context, e *v1alpha1.CatalogEntry, reason, message string) error {
	status := *e.Status.DeepCopy()
	set(&status.Conditions, v1alpha1.ConditionReady, false, reason, message)
	return t.saveEntry(ctx, e, status)
}

// withdraw removes the definition of an entry that is deleted, once there are no instances.
func (t *term) withdraw(ctx context.Context, e *v1alpha1.CatalogEntry) error {
	if !slices.Contains(e.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	k, have, err := t.definitionOf(ctx, e)
	if err != nil {
		return err
	}
	if have != nil {
		left, err := t.api.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && len(left.Items) > 0 {
			first := left.Items[0]
			if err := t.notOffered(ctx, e, "InUse", fmt.Sprintf("the entry is deleted, and stays until nobody has an instance; %s/%s is one", first.GetNamespace(), first.GetName())); err != nil {
				return err
			}
			return errWaiting
		}
		err = t.api.Dynamic.Resource(definitions()).Delete(ctx, k.Definition(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))})
		if ignoreAbsent(err) != nil {
			return err
		}
	}
	e.Finalizers = slices.DeleteFunc(e.Finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
	_, err = t.api.Entries(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
	return err
}

// definitionOf is the region's definition that was made for an entry; nil if there is none.
func (t *term) definitionOf(ctx context.Context, e *v1alpha1.CatalogEntry) (catalog.Kind, *unstructured.Unstructured, error) {
	plural, _, _ := strings.Cut(e.Spec.CRD, ".")
	k := catalog.Kind{Plural: plural}
	have, err := t.api.Dynamic.Resource(definitions()).Get(ctx, k.Definition(), metav1.GetOptions{})
	if err != nil || have.GetAnnotations()[v1alpha1.AnnotationEntry] != e.Namespace+"/"+e.Name {
		return k, nil, ignoreAbsent(err)
	}
	return k, have, nil
}

// releaseInstances lets all instances go of a service cluster that has no assignments any more: there is
// nothing of them left on it, and soon nobody to work for them.
func (t *term) releaseInstances(ctx context.Context, cluster string) error {
	all, err := t.api.Entries("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		e := &all.Items[i]
		if e.Spec.ServiceCluster != cluster {
			continue
		}
		k, have, err := t.definitionOf(ctx, e)
		if err != nil {
			return err
		}
		if have == nil {
			continue
		}
		instances, err := t.api.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return ignoreAbsent(err)
		}
		for j := range instances.Items {
			if err := t.releaseInstance(ctx, k, &instances.Items[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseInstance takes the agent's finalizer off an instance.
func (t *term) releaseInstance(ctx context.Context, k catalog.Kind, of *unstructured.Unstructured) error {
	kept := slices.DeleteFunc(of.GetFinalizers(), func(f string) bool { return f == v1alpha1.Finalizer })
	if len(kept) == len(of.GetFinalizers()) {
		return nil
	}
	of.SetFinalizers(kept)
	_, err := t.api.Dynamic.Resource(k.Offered()).Namespace(of.GetNamespace()).Update(ctx, of, metav1.UpdateOptions{})
	return ignoreAbsent(err)
}

// offer serves in the region what an entry names on the service cluster, and follows its instances
// until ctx ends; soon ends before that.
func (s *site) offer(ctx, soon context.Context, at item, remote *cluster.Cluster) error {
	t := s.term
	e, err := t.api.Entries(at.entry.Namespace).Get(soon, at.entry.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.offers.end(at.entry)
		return nil
	}
	if err != nil || e.DeletionTimestamp != nil {
		return err
	}
	kind, reason, message, err := s.offered(soon, e, remote)
	if err != nil {
		return err
	}
	if reason != "" {
		s.queue.AddAfter(at, entryEvery)
		return t.notOffered(soon, e, reason, message)
	}
	if !slices.Contains(e.Finalizers, v1alpha1.Finalizer) {
		e.Finalizers = append(e.Finalizers, v1alpha1.Finalizer)
		if e, err = t.api.Entries(e.Namespace).Update(soon, e, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	taken, err := t.define(soon, kind, e)
	switch {
	case err != nil:
		return err
	case taken != "":
		return t.notOffered(soon, e, "NameTaken", taken)
	}
	s.offers.start(ctx, at.entry, kind, s)
	s.queue.AddAfter(at, entryEvery)
	status := *e.Status.DeepCopy()
	status.Resource = kind.Definition()
	set(&status.Conditions, v1alpha1.ConditionReady, true, reasonReady, fmt.Sprintf("the region serves %s", kind.Definition()))
	return t.saveEntry(soon, e, status)
}

// offered is the kind that an entry names on the service cluster, or why it cannot be offered.
func (s *site) offered(ctx context.Context, e *v1alpha1.CatalogEntry, remote *cluster.Cluster) (k catalog.Kind, reason, message string, err error) {
	c, err := s.term.api.ServiceClusters.Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case err != nil:
		return k, "", "", err
	case !s.term.connects(c) || c.Spec.KubeconfigSecret.Namespace != e.Namespace:
		return k, "NotTheProvider", fmt.Sprintf("the Secret of the service cluster %s is in another namespace: who has that namespace provides it", s.name), nil
	case remote == nil:
		return k, "ServiceClusterNotReady", fmt.Sprintf("nobody can connect to the service cluster %s now; its conditions say why", s.name), nil
	}
	crd, err := remote.Definition(ctx, e.Spec.CRD)
	switch {
	case apierrors.IsNotFound(err):
		return k, "CRDMissing", fmt.Sprintf("the service cluster %s has no CustomResourceDefinition %s", s.name, e.Spec.CRD), nil
	case err != nil:
		why := cluster.Explain(err)
		return k, why.Reason, fmt.Sprintf("the service cluster %s: %s", s.name, why.Message), nil
	}
	if k, err = catalog.KindOf(crd); err != nil || crd.GetName() != e.Spec.CRD {
		return k, "CRDRefused", fmt.Sprintf("the CustomResourceDefinition %s cannot be offered: %v", e.Spec.CRD, err), nil
	}
	return k, "", "", nil
}

// define makes the region's definition for an entry, or says who has its name. It returns once the
// kind is served.
func (t *term) define(ctx context.Context, k catalog.Kind, e *v1alpha1.CatalogEntry) (taken string, err error) {
	client, entry := t.api.Dynamic.Resource(definitions()), e.Namespace+"/"+e.Name
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
	if _, err := t.api.Dynamic.Resource(k.Offered()).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return "", fmt.Errorf("%s is not served yet: %w", k.Definition(), errWaiting)
	}
	return "", nil
}

// offers are the kinds of one service cluster that the region serves now, each with a watch of its
// instances.
type offers struct {
	mu  sync.Mutex
	of  map[types.NamespacedName]offer
	all sync.WaitGroup
}

type offer struct {
	kind catalog.Kind
	end  context.CancelFunc
}

// start begins to watch the instances of an entry, if nobody does yet.
func (o *offers) start(ctx context.Context, entry types.NamespacedName, k catalog.Kind, s *site) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.of[entry]
	switch {
	case ok && have.kind == k, ctx.Err() != nil:
		return
	case ok:
		have.end()
	case o.of == nil:
		o.of = map[types.NamespacedName]offer{}
	}
	ctx, cancel := context.WithCancel(ctx)
	o.of[entry] = offer{k, cancel}
	informer := instances(s, entry, k)
	o.all.Go(func() { informer.RunWithContext(ctx) })
}

// kind is what an entry offers, if the region serves it now.
func (o *offers) kind(entry types.NamespacedName) (catalog.Kind, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.of[entry]
	return have.kind, ok
}

func (o *offers) end(entry types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if have, ok := o.of[entry]; ok {
		have.end()
		delete(o.of, entry)
	}
}

// stop returns once nothing is watched any more. The contexts must be over.
func (o *offers) stop() {
	o.mu.Lock()
	for _, have := range o.of {
		have.end()
	}
	o.mu.Unlock()
	o.all.Wait()
}

// instances watches the instances of an entry, and has the site look at each that changes.
func instances(s *site, entry types.NamespacedName, k catalog.Kind) cache.SharedIndexInformer {
	client := s.term.api.Dynamic.Resource(k.Offered())
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, resync, cache.Indexers{})
	look := func(o any) {
		if m, ok := o.(metav1.Object); ok {
			s.queue.Add(item{entry: entry, instance: types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}})
		}
	}
	must(informer.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			delete(u.Object, "spec") // what is written is read anew
			delete(u.Object, "status")
		}
		return o, nil
	}))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	must(err)
	return informer
}
