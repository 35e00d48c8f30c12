package writes

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

// applyFirst applies an object that is not there yet.
func applyFirst(ctx context.Context, t *scratch.Target, suffix string) error {
	a, err := t.Apply(ctx, suffix, "first", "first", false)
	if err != nil {
		return err
	}
	if _, err := a.Object(http.StatusCreated); err != nil {
		return check.Skipf("nothing could be applied: %v", err)
	}
	return nil
}

func checkApply(ctx context.Context, t *scratch.Target) error {
	a, err := t.Apply(ctx, "applied", "first", "first", false)
	if err != nil {
		return err
	}
	if a.Status == http.StatusUnsupportedMediaType {
		return a.Errorf("the server has no server-side apply; kubectl apply --server-side and many controllers need it")
	}
	o, err := a.Object(http.StatusCreated)
	if err != nil {
		return err
	}
	entries, _ := o.At("metadata", "managedFields").([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if ask.Object(entry).Text("manager") == "first" && ask.Object(entry).Text("operation") == "Apply" {
			return nil
		}
	}
	return a.Errorf("metadata.managedFields does not name the manager %q with operation Apply", "first")
}

func checkApplyConflict(ctx context.Context, t *scratch.Target) error {
	if err := applyFirst(ctx, t, "apply-conflict"); err != nil {
		return err
	}
	a, err := t.Apply(ctx, "apply-conflict", "second", "second", false)
	if err != nil {
		return err
	}
	if a.Status == http.StatusOK {
		return a.Errorf("a field of another manager is overwritten")
	}
	if err := a.Refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	if !strings.Contains(string(a.Body), string(metav1.CauseTypeFieldManagerConflict)) {
		return a.Errorf("details.causes of the Status has no %s: %s", metav1.CauseTypeFieldManagerConflict, a.Excerpt())
	}
	forced, err := t.Apply(ctx, "apply-conflict", "second", "second", true)
	if err != nil {
		return err
	}
	o, err := forced.Object(http.StatusOK)
	if err == nil && scratch.Probe(o) != "second" {
		return forced.Errorf("the field is not changed though force is set")
	}
	return err
}

func checkApplyRemove(ctx context.Context, t *scratch.Target) error {
	if err := applyFirst(ctx, t, "apply-remove"); err != nil {
		return err
	}
	a, err := t.Apply(ctx, "apply-remove", "first", "", false)
	if err != nil {
		return err
	}
	o, err := a.Object(http.StatusOK)
	if err == nil && scratch.Probe(o) != "" {
		return a.Errorf("the label is still there")
	}
	return err
}

func checkApplyManager(ctx context.Context, t *scratch.Target) error {
	a, err := t.Apply(ctx, "apply-manager", "", "first", false)
	if err != nil {
		return err
	}
	return a.Refused("", http.StatusBadRequest, http.StatusUnprocessableEntity)
}
