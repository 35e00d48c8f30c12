package conformance

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func applyChecks() []check {
	return []check{
		{id: "apply.create", source: applyPage, writes: true,
			convention: "an apply creates what is not there, and notes the manager of its fields", run: onTarget("patch", checkApply)},
		{id: "apply.conflict", source: applyPage + "#conflicts", writes: true,
			convention: "an apply of a field that another manager holds is 409, with its cause, unless forced", run: onTarget("patch", checkApplyConflict)},
		{id: "apply.remove", source: applyPage, writes: true,
			convention: "a field that its only manager applies no more is removed", run: onTarget("patch", checkApplyRemove)},
		{id: "apply.manager", source: applyPage + "#managers", writes: true,
			convention: "an apply without fieldManager is refused", run: onTarget("patch", checkApplyManager)},
	}
}

// apply applies the object, with the probe label or without.
func (s *session) apply(ctx context.Context, t *target, suffix, manager, probe string, force bool) (*answer, error) {
	query := url.Values{}
	if manager != "" {
		query.Set("fieldManager", manager)
	}
	if force {
		query.Set("force", "true")
	}
	s.made = append(s.made, made{t, s.name(suffix)})
	return s.write(ctx, http.MethodPatch, t.objectPath(t.namespace, s.name(suffix)), typeApply, query, s.object(t, suffix, probe))
}

// first applies an object that is not there yet.
func (s *session) first(ctx context.Context, t *target, suffix string) error {
	a, err := s.apply(ctx, t, suffix, "first", "first", false)
	if err != nil {
		return err
	}
	if _, err := a.object(http.StatusCreated); err != nil {
		return unsaid("nothing could be applied: %v", err)
	}
	return nil
}

func checkApply(ctx context.Context, s *session, t *target) error {
	a, err := s.apply(ctx, t, "applied", "first", "first", false)
	if err != nil {
		return err
	}
	if a.status == http.StatusUnsupportedMediaType {
		return a.errorf("the server has no server-side apply; kubectl apply --server-side and many controllers need it")
	}
	o, err := a.object(http.StatusCreated)
	if err != nil {
		return err
	}
	entries, _ := o.at("metadata", "managedFields").([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if object(entry).text("manager") == "first" && object(entry).text("operation") == "Apply" {
			return nil
		}
	}
	return a.errorf("metadata.managedFields does not name the manager %q with operation Apply", "first")
}

func checkApplyConflict(ctx context.Context, s *session, t *target) error {
	if err := s.first(ctx, t, "apply-conflict"); err != nil {
		return err
	}
	a, err := s.apply(ctx, t, "apply-conflict", "second", "second", false)
	if err != nil {
		return err
	}
	if a.status == http.StatusOK {
		return a.errorf("a field of another manager is overwritten")
	}
	if err := a.refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	if !strings.Contains(string(a.body), string(metav1.CauseTypeFieldManagerConflict)) {
		return a.errorf("details.causes of the Status has no %s: %s", metav1.CauseTypeFieldManagerConflict, a.excerpt())
	}
	forced, err := s.apply(ctx, t, "apply-conflict", "second", "second", true)
	if err != nil {
		return err
	}
	o, err := forced.object(http.StatusOK)
	if err == nil && o.text("metadata", "labels", probeLabel) != "second" {
		return forced.errorf("the field is not changed though force is set")
	}
	return err
}

func checkApplyRemove(ctx context.Context, s *session, t *target) error {
	if err := s.first(ctx, t, "apply-remove"); err != nil {
		return err
	}
	a, err := s.apply(ctx, t, "apply-remove", "first", "", false)
	if err != nil {
		return err
	}
	o, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if o.text("metadata", "labels", probeLabel) != "" {
		return a.errorf("the label is still there")
	}
	return nil
}

func checkApplyManager(ctx context.Context, s *session, t *target) error {
	a, err := s.apply(ctx, t, "apply-manager", "", "first", false)
	if err != nil {
		return err
	}
	return a.refused("", http.StatusBadRequest, http.StatusUnprocessableEntity)
}
