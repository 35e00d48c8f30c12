package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func watchWriteChecks() []check {
	const watches = concepts + "#efficient-detection-of-changes"
	return []check{
		{id: "watch.live", source: watches, writes: true,
			convention: "a watch gives each change as it happens, once and in order", run: onTarget("watch", checkLive)},
		{id: "watch.resume", source: watches, writes: true,
			convention: "a watch from an object's resourceVersion gives what came after it, and not what was before", run: onTarget("watch", checkResume)},
	}
}

// lifecycle creates, updates and deletes an object, and returns it as created.
func (s *session) lifecycle(ctx context.Context, t *target, suffix string) (object, error) {
	o, err := s.fresh(ctx, t, suffix)
	if err != nil {
		return nil, err
	}
	a, err := s.write(ctx, http.MethodPatch, t.objectPath(t.namespace, o.name()), typeMerge, nil, labelled("changed"))
	if err != nil {
		return nil, err
	}
	if _, err := a.object(http.StatusOK); err != nil {
		return nil, unsaid("nothing could be patched: %v", err)
	}
	if a, err = s.delete(ctx, t, o.name(), o.uid(), false); err != nil {
		return nil, err
	}
	if a.status != http.StatusOK && a.status != http.StatusAccepted {
		return nil, unsaid("nothing could be deleted: %d: %s", a.status, a.excerpt())
	}
	return o, nil
}

// follow reads a watch until the object is deleted, and wants these events, in
// this order, each of a newer object.
func (w *stream) follow(name string, want ...string) error {
	var seen []string
	last := ""
	for {
		e, err := w.next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: the watch ended after %v of %q; want %v", w.request, seen, name, want)
		}
		if err != nil {
			return err
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("%s: event ERROR: %s", w.request, e.Object.text("message"))
		}
		if e.Object.name() != name || e.Type == "BOOKMARK" {
			continue
		}
		seen = append(seen, e.Type)
		if len(seen) > len(want) || e.Type != want[len(seen)-1] {
			return fmt.Errorf("%s: got %v of %q; want %v", w.request, seen, name, want)
		}
		order, err := resourceversion.CompareResourceVersion(last, e.Object.resourceVersion())
		if last != "" && (err != nil || order > 0) {
			return fmt.Errorf("%s: %s is at resourceVersion %q, and what came before at %q", w.request, e.Type, e.Object.resourceVersion(), last)
		}
		last = e.Object.resourceVersion()
		if len(seen) == len(want) {
			return nil
		}
	}
}

const watchSeconds = 10

func checkLive(ctx context.Context, s *session, t *target) error {
	version, err := s.newest(ctx, &sample{resource: t.resource})
	if err != nil {
		return err
	}
	w, refusal, err := s.watch(ctx, t.path(t.namespace), watchSeconds, url.Values{"resourceVersion": {version}})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal.json(http.StatusOK, nil)
	}
	defer w.close()
	if _, err := s.lifecycle(ctx, t, "live"); err != nil {
		return err
	}
	return w.follow(s.name("live"), "ADDED", "MODIFIED", "DELETED")
}

func checkResume(ctx context.Context, s *session, t *target) error {
	o, err := s.lifecycle(ctx, t, "resume")
	if err != nil {
		return err
	}
	w, refusal, err := s.watch(ctx, t.path(t.namespace), watchSeconds, url.Values{"resourceVersion": {o.resourceVersion()}})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal.json(http.StatusOK, nil)
	}
	defer w.close()
	return w.follow(o.name(), "MODIFIED", "DELETED")
}
