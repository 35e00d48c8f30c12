package writes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// lifecycle creates, updates and deletes an object, and returns it as created.
func lifecycle(ctx context.Context, t *scratch.Target, suffix string) (ask.Object, error) {
	o, err := t.Fresh(ctx, suffix)
	if err != nil {
		return nil, err
	}
	a, err := t.Patch(ctx, o.Name(), "changed", nil)
	if err != nil {
		return nil, err
	}
	if _, err := a.Object(http.StatusOK); err != nil {
		return nil, check.Skipf("nothing could be patched: %v", err)
	}
	if a, err = t.Delete(ctx, o.Name(), o.UID(), false); err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK && a.Status != http.StatusAccepted {
		return nil, check.Skipf("nothing could be deleted: %d: %s", a.Status, a.Excerpt())
	}
	return o, nil
}

// follow reads a watch until as many events of the object have come as are
// wanted. It wants these events, in this order, each of a newer object.
func follow(w *ask.Watch, name string, want ...string) error {
	var seen []string
	last := ""
	for len(seen) < len(want) {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return w.Errorf("the watch ended after %v of %q; want %v", seen, name, want)
		}
		if err != nil {
			return err
		}
		if e.Type == "ERROR" {
			return w.Errorf("event ERROR: %s", e.Object.Text("message"))
		}
		if e.Object.Name() != name || e.Type == "BOOKMARK" {
			continue
		}
		seen = append(seen, e.Type)
		if e.Type != want[len(seen)-1] {
			return w.Errorf("got %v of %q; want %v", seen, name, want)
		}
		now := e.Object.ResourceVersion()
		order, err := resourceversion.CompareResourceVersion(last, now)
		if last != "" && (err != nil || order > 0) {
			return w.Errorf("%s is at resourceVersion %q, and what came before at %q", e.Type, now, last)
		}
		last = now
	}
	return nil
}

// watchFrom opens a watch of the target's objects.
func watchFrom(ctx context.Context, t *scratch.Target, version string) (*ask.Watch, error) {
	const seconds = 10
	return t.Client().Watch(ctx, t.Collection(), seconds, url.Values{"resourceVersion": {version}})
}

func checkLive(ctx context.Context, t *scratch.Target) error {
	version, err := survey.Newest(ctx, t.Client(), t.Resource)
	if err != nil {
		return err
	}
	w, err := watchFrom(ctx, t, version)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := lifecycle(ctx, t, "live"); err != nil {
		return err
	}
	return follow(w, t.Named("live"), "ADDED", "MODIFIED", "DELETED")
}

func checkResume(ctx context.Context, t *scratch.Target) error {
	o, err := lifecycle(ctx, t, "resume")
	if err != nil {
		return err
	}
	w, err := watchFrom(ctx, t, o.ResourceVersion())
	if err != nil {
		return err
	}
	defer w.Close()
	return follow(w, o.Name(), "MODIFIED", "DELETED")
}
