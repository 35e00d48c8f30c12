package access

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// byService names the index of objects by the Service that they belong to.
const byService = "service"

// Informer is a cache of the objects of one kind in one API, kept up to date by a watch.
// Objects that it returns are shared: the caller must not change them.
type Informer[T plan.Object] struct {
	informer cache.SharedIndexInformer
	told     cache.ResourceEventHandlerRegistration // of InformerOptions.Changed; nil if there is no such function
}

// InformerOptions says what an informer reads, and which functions it calls.
type InformerOptions[T plan.Object] struct {
	Namespace string // "" is all
	Labels    string // selector; "" is any
	// Service returns the Services that an object belongs to, for Of.
	Service func(T) []types.NamespacedName
	// Slim removes the fields that nobody needs from an object before it is kept.
	Slim func(T)
	// Changed is called with every object that is added, changed or deleted; initial
	// says that the object is part of the first list. An object that is listed again
	// unchanged is not a change.
	Changed func(obj T, initial bool)
	// Asked is called with the outcome of each list request and each start of a watch.
	// A request that failed is repeated.
	Asked func(error)
}

// NewInformer makes an informer of objects of example's type. It reads nothing before Run.
func NewInformer[T plan.Object](a *API, example T, o InformerOptions[T]) (*Informer[T], error) {
	client, resource, err := a.Resource(example)
	if err != nil {
		return nil, err
	}
	lw := listen(cache.NewFilteredListWatchFromClient(client, resource, o.Namespace, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = o.Labels, fields.Everything().String()
	}), o.Asked)
	indexers := cache.Indexers{}
	if o.Service != nil {
		indexers[byService] = func(obj any) ([]string, error) {
			var keys []string
			for _, s := range o.Service(obj.(T)) {
				keys = append(keys, s.String())
			}
			return keys, nil
		}
	}
	var read cache.ListerWatcher = lw
	if a.inJSON(example) {
		read = atOnce{lw}
	}
	informer := cache.NewSharedIndexInformerWithOptions(read, example, cache.SharedIndexInformerOptions{
		Indexers: indexers, ObjectDescription: fmt.Sprintf("%s of %s", resource, a.Config.Host),
	})
	if err := informer.SetTransform(func(obj any) (any, error) {
		if t, ok := obj.(T); ok {
			t.SetManagedFields(nil)
			if o.Slim != nil {
				o.Slim(t)
			}
		}
		return obj, nil
	}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	// Asked has the failures already; the default handler would log them a second time.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	in := &Informer[T]{informer: informer}
	if o.Changed != nil {
		if in.told, err = informer.AddEventHandler(handler(o.Changed)); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
	}
	return in, nil
}

// atOnce reads the first list in one response, just as fresh as a stream of objects. In
// JSON, each object of a stream would be parsed four times.
type atOnce struct{ *cache.ListWatch }

// ListWithContext asks for the latest state. An informer by itself accepts what the API
// server has cached, which may be old, and a Service that is missing from a peer's list
// is taken to be deleted.
func (l atOnce) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit = "", "", 0
	return l.ListWatch.ListWithContext(ctx, options)
}

// IsWatchListSemanticsUnSupported tells the informer to list rather than stream.
func (atOnce) IsWatchListSemanticsUnSupported() bool { return true }

// listen calls asked with the outcome of each list and each start of a watch, because a
// reflector does not report all of their failures.
func listen(lw *cache.ListWatch, asked func(error)) *cache.ListWatch {
	if asked == nil {
		asked = func(error) {}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			found, err := lw.ListWithContext(ctx, options)
			asked(err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, options)
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older server refuses to stream; a list follows
				asked(err)
			}
			// If the first watch fails with one of these two errors, a reflector sleeps
			// for up to a minute and does not notice that ctx ends. After any other
			// error it lists, fails again, and waits in a way that ends with ctx.
			if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
				err = errors.New(err.Error())
			}
			return w, err
		},
	}
}

// Follow calls do with the name, NAMESPACE/NAME, of each object that appears (there is
// true) or disappears. It calls do after the informer shows the change.
func (in *Informer[T]) Follow(do func(name string, there bool)) error {
	tell := func(obj any, there bool) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil { // every object has a name
			do(name, there)
		}
	}
	_, err := in.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj, true) },
		DeleteFunc: func(obj any) { tell(obj, false) },
	})
	return err
}

func handler[T plan.Object](changed func(T, bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) { changed(obj.(T), initial) },
		UpdateFunc: func(before, now any) {
			// A watch that starts again lists objects that are known already.
			if before.(T).GetResourceVersion() != now.(T).GetResourceVersion() {
				changed(now.(T), false)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if t, ok := obj.(T); ok {
				changed(t, false)
			}
		},
	}
}

// Run reads and watches until ctx ends.
func (in *Informer[T]) Run(ctx context.Context) { in.informer.RunWithContext(ctx) }

// Synced reports whether the first list is complete and Changed was called with all of it.
func (in *Informer[T]) Synced() bool {
	return in.informer.HasSynced() && (in.told == nil || in.told.HasSynced())
}

// Get returns the object of that name, or nil.
func (in *Informer[T]) Get(namespace, name string) T {
	var none T
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, ok, err := in.informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return none
	}
	return obj.(T)
}

// Of returns the objects that belong to a Service.
func (in *Informer[T]) Of(service types.NamespacedName) []T {
	found, err := in.informer.GetIndexer().ByIndex(byService, service.String())
	if err != nil {
		return nil // the index is missing only if InformerOptions.Service was nil
	}
	all := make([]T, len(found))
	for i, obj := range found {
		all[i] = obj.(T)
	}
	return all
}

// Each calls do for every object.
func (in *Informer[T]) Each(do func(T)) {
	for _, obj := range in.informer.GetStore().List() {
		do(obj.(T))
	}
}

// Len returns the number of objects.
func (in *Informer[T]) Len() int {
	return len(in.informer.GetStore().ListKeys())
}

// Shows reports whether the informer has an object at the version that was written, or newer.
func (in *Informer[T]) Shows(written T) bool {
	now := in.Get(written.GetNamespace(), written.GetName())
	if any(now) == any(*new(T)) {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(now.GetResourceVersion(), written.GetResourceVersion())
	return err != nil || order >= 0
}

// Lacks reports whether an object that was deleted is gone from the informer.
func (in *Informer[T]) Lacks(deleted T) bool {
	now := in.Get(deleted.GetNamespace(), deleted.GetName())
	return any(now) == any(*new(T)) || now.GetUID() != deleted.GetUID() || now.GetDeletionTimestamp() != nil
}
