package writes

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

func checkUpdate(ctx context.Context, t *scratch.Target) error {
	before, err := t.Fresh(ctx, "updated")
	if err != nil {
		return err
	}
	a, err := t.Put(ctx, before, "new")
	if err != nil {
		return err
	}
	after, err := a.Object(http.StatusOK)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(before.ResourceVersion(), after.ResourceVersion())
	switch {
	case err != nil:
		return a.Errorf("resourceVersion was %q, and is %q: %w", before.ResourceVersion(), after.ResourceVersion(), err)
	case order >= 0:
		return a.Errorf("resourceVersion was %s, and is %s after the change; want a larger one", before.ResourceVersion(), after.ResourceVersion())
	case before.UID() != after.UID():
		return a.Errorf("uid was %s, and is %s", before.UID(), after.UID())
	case before.Text("metadata", "creationTimestamp") != after.Text("metadata", "creationTimestamp"):
		return a.Errorf("creationTimestamp has changed")
	case scratch.Probe(after) != "new":
		return a.Errorf("the change is not in the answer")
	}
	return nil
}

func checkConflict(ctx context.Context, t *scratch.Target) error {
	old, err := t.Fresh(ctx, "conflict")
	if err != nil {
		return err
	}
	if a, err := t.Put(ctx, old, "first"); err != nil {
		return err
	} else if _, err := a.Object(http.StatusOK); err != nil {
		return check.Skipf("nothing could be updated: %v", err)
	}
	a, err := t.Put(ctx, old, "second")
	if err != nil {
		return err
	}
	if a.Status == http.StatusOK {
		return a.Errorf("the update with the resourceVersion before the last is taken: one of two writers is lost")
	}
	if err := a.Refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	now, err := t.Read(ctx, old.Name())
	if err == nil && scratch.Probe(now) != "first" {
		return a.Errorf("the object was changed all the same")
	}
	return err
}
