package objects

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/xbernetes/xbernetes/api/region/client"
)

const (
	// lookAgain is the least time between two looks of a watch. A look that takes long is
	// followed by a rest of ten times as long.
	lookAgain = 2 * time.Second
	// patience is for how many looks in a row no region may answer before a watch ends.
	patience = 5
)

// Watch implements rest.Watcher. It lists the names again and again, and tells of what has
// changed. A watch from a resourceVersion whose state is not the one that is found at first
// is too old: nobody knows what has changed since.
func (s *storage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	address := callerOf(ctx).Address
	if !s.bounds.watches.Enter(address) {
		return nil, apierrors.NewTooManyRequests("too many watches are open, in all or for this caller: try again later", 10)
	}
	leave := true
	defer func() {
		if leave {
			s.bounds.watches.Leave(address)
		}
	}()
	all, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	w := &watcher{storage: s, events: make(chan watch.Event), selects: selectorOf(options), seen: map[string]client.Owned{}, bookmarks: options.AllowWatchBookmarks}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	state := versionOfAll(all)
	switch from := options.ResourceVersion; {
	case initial, from == "" && options.SendInitialEvents == nil, from == "0":
	case from != "" && from != state.String():
		return nil, apierrors.NewResourceExpired("the names have changed since that resourceVersion: list them again")
	default:
		w.know(all)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	leave = false
	go func() {
		defer s.bounds.watches.Leave(address)
		defer w.cancel()
		defer close(w.events)
		w.run(ctx, all, initial)
	}()
	return w, nil
}

// watcher tells of changes. Its goroutine ends with its context or with Stop.
type watcher struct {
	storage   *storage
	events    chan watch.Event
	selects   func(object) bool
	cancel    context.CancelFunc
	bookmarks bool

	// The state that clients were told of; it belongs to the goroutine.
	seen  map[string]client.Owned // by name
	state version                 // of seen
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// know takes names for told.
func (w *watcher) know(all []client.Owned) {
	for _, o := range all {
		w.seen[o.Name] = o
	}
	w.state = versionOfAll(all)
}

// run tells of all names, or what has changed of them, until nobody listens.
func (w *watcher) run(ctx context.Context, all []client.Owned, initial bool) {
	if !w.tell(ctx, all) || initial && !w.bookmark(ctx, true) {
		return
	}
	failed := 0
	rest := lookAgain
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		start := time.Now()
		next, err := w.storage.names(ctx)
		rest = max(lookAgain, 10*time.Since(start))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = 0
			before := w.state
			if !w.tell(ctx, next) || w.bookmarks && w.state != before && !w.bookmark(ctx, false) {
				return
			}
		case passes(err) && failed < patience:
			failed++
		default:
			w.fail(ctx, err)
			return
		}
	}
}

// passes says whether an error may be gone at the next look.
func passes(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
}

// tell tells of what has changed since the last time; it is false if nobody listens.
func (w *watcher) tell(ctx context.Context, all []client.Owned) bool {
	left := map[string]bool{}
	for _, o := range all {
		left[o.Name] = true
		was, known := w.seen[o.Name]
		if known && versionOf(was) == versionOf(o) {
			continue
		}
		if known && was.Operation != o.Operation { // it was deleted and created meanwhile
			if !w.gone(ctx, was) {
				return false
			}
			known = false
		}
		if known {
			w.state -= versionOf(was)
		}
		w.state += versionOf(o)
		w.seen[o.Name] = o
		event := watch.Added
		if known {
			event = watch.Modified
		}
		if !w.send(ctx, event, w.storage.make(o)) {
			return false
		}
	}
	for name, was := range w.seen {
		if !left[name] && !w.gone(ctx, was) {
			return false
		}
	}
	return true
}

func (w *watcher) gone(ctx context.Context, was client.Owned) bool {
	w.state -= versionOf(was)
	delete(w.seen, was.Name)
	return w.send(ctx, watch.Deleted, w.storage.make(was))
}

// send tells of an object in the state after its event: a watch can go on from there.
func (w *watcher) send(ctx context.Context, event watch.EventType, o object) bool {
	if !w.selects(o) {
		return true
	}
	o.SetResourceVersion(w.state.String())
	return w.put(ctx, watch.Event{Type: event, Object: o})
}

func (w *watcher) bookmark(ctx context.Context, initial bool) bool {
	o := w.storage.object().(object)
	o.SetResourceVersion(w.state.String())
	if initial {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w.put(ctx, watch.Event{Type: watch.Bookmark, Object: o})
}

func (w *watcher) fail(ctx context.Context, err error) {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	w.put(ctx, watch.Event{Type: watch.Error, Object: runtime.Object(&status.ErrStatus)})
}

func (w *watcher) put(ctx context.Context, e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
