package servicesync

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// byService is the index of objects by the Service that they belong to.
const byService = "service"

// view is what is known of one kind of object of one API: a cache that a watch
// keeps. What it returns is shared, and not to be changed.
type view[T model.Object] struct {
	informer cache.SharedIndexInformer
	told     cache.ResourceEventHandlerRegistration // nil: nobody is
}

// viewOptions are what views differ in.
type viewOptions[T model.Object] struct {
	namespace string // "" is all
	labels    string // selector; "" is any
	// service names the Services that an object belongs to, for of.
	service func(T) []types.NamespacedName
	// slim drops what nobody needs, before it is kept.
	slim func(T)
	// changed is told of every change; initial says that it is part of the first
	// list. A change of nothing but the list that it came by is not told.
	changed func(obj T, initial bool)
	// asked is told how each list and watch began: nil, or the error. What failed
	// is tried again.
	asked func(error)
}

// newView makes a view of objects like example; it reads from run on.
func newView[T model.Object](a *api, example T, o viewOptions[T]) (*view[T], error) {
	client, resource, err := a.place(example)
	if err != nil {
		return nil, err
	}
	lw := listen(cache.NewFilteredListWatchFromClient(client, resource, o.namespace, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = o.labels, fields.Everything().String()
	}), o.asked)
	indexers := cache.Indexers{}
	if o.service != nil {
		indexers[byService] = func(obj any) ([]string, error) {
			var keys []string
			for _, s := range o.service(obj.(T)) {
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
		Indexers: indexers, ObjectDescription: fmt.Sprintf("%s of %s", resource, a.config.Host),
	})
	if err := informer.SetTransform(func(obj any) (any, error) {
		if t, ok := obj.(T); ok {
			t.SetManagedFields(nil)
			if o.slim != nil {
				o.slim(t)
			}
		}
		return obj, nil
	}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	// What fails is told already; the default would log it as well.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	v := &view[T]{informer: informer}
	if o.changed != nil {
		if v.told, err = informer.AddEventHandler(handler(o.changed)); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
	}
	return v, nil
}

// atOnce reads the first list in one answer, as new as a stream would be. Streamed,
// each object is an answer of its own, and in JSON each of those is gone through
// four times.
type atOnce struct{ *cache.ListWatch }

// ListWithContext asks for what there is now: an informer would be content with
// what the API server has in its cache, and what a peer lacks is taken to be gone.
func (l atOnce) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit = "", "", 0
	return l.ListWatch.ListWithContext(ctx, options)
}

// IsWatchListSemanticsUnSupported is asked by the informer.
func (atOnce) IsWatchListSemanticsUnSupported() bool { return true }

// listen tells asked how lists and watches begin; a reflector keeps some of
// their failures to itself.
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
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older server: a list comes next
				asked(err)
			}
			// A reflector that takes a refusal of its first watch for a passing one
			// sleeps for up to a minute whether or not ctx ends. After any other
			// error it lists, is refused again, and waits as ctx has it.
			if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
				err = errors.New(err.Error())
			}
			return w, err
		},
	}
}

// roll is the names of a view's objects as its handlers were told of them, which
// is after the view shows it.
type roll struct {
	mu    sync.Mutex
	names map[string]bool // NAMESPACE/NAME
}

func (r *roll) set(obj any, there bool) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return // every object has a name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if there {
		r.names[name] = true
	} else {
		delete(r.names, name)
	}
}

// count is how many there are, and whether name is among them.
func (r *roll) count(name string) (n int, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names), r.names[name]
}

// keep keeps a roll of the objects, and calls changed after each that comes or goes.
func (v *view[T]) keep(r *roll, changed func()) error {
	_, err := v.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.set(obj, true); changed() },
		DeleteFunc: func(obj any) { r.set(obj, false); changed() },
	})
	return err
}

func handler[T model.Object](changed func(T, bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) { changed(obj.(T), initial) },
		UpdateFunc: func(before, now any) {
			// A watch that begins anew lists what is known already.
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

// run reads until ctx ends.
func (v *view[T]) run(ctx context.Context) { v.informer.RunWithContext(ctx) }

// synced reports that the first list is complete, and all of it was told.
func (v *view[T]) synced() bool {
	return v.informer.HasSynced() && (v.told == nil || v.told.HasSynced())
}

// get is the object of that name, or nil.
func (v *view[T]) get(namespace, name string) T {
	var none T
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, ok, err := v.informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return none
	}
	return obj.(T)
}

// of are the objects that belong to a Service.
func (v *view[T]) of(service types.NamespacedName) []T {
	found, err := v.informer.GetIndexer().ByIndex(byService, service.String())
	if err != nil {
		return nil // there is the index
	}
	all := make([]T, len(found))
	for i, obj := range found {
		all[i] = obj.(T)
	}
	return all
}

// each calls do for every object.
func (v *view[T]) each(do func(T)) {
	for _, obj := range v.informer.GetStore().List() {
		do(obj.(T))
	}
}

// len is how many objects there are.
func (v *view[T]) len() int {
	return len(v.informer.GetStore().ListKeys())
}

// shows reports whether the view has an object as it was written, or newer.
func (v *view[T]) shows(written T) bool {
	now := v.get(written.GetNamespace(), written.GetName())
	if any(now) == any(*new(T)) {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(now.GetResourceVersion(), written.GetResourceVersion())
	return err != nil || order >= 0
}

// lacks reports whether an object that was deleted is gone from the view.
func (v *view[T]) lacks(deleted T) bool {
	now := v.get(deleted.GetNamespace(), deleted.GetName())
	return any(now) == any(*new(T)) || now.GetUID() != deleted.GetUID() || now.GetDeletionTimestamp() != nil
}
