package conformance

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func dryRunChecks() []check {
	const dryRuns = concepts + "#dry-run"
	return []check{
		{id: "dry-run.create", source: dryRuns, writes: true,
			convention: "a create with dryRun=All is answered as a create, and makes nothing", run: onTrial(checkDryCreate)},
		{id: "dry-run.unknown", source: dryRuns, writes: true,
			convention: "a dryRun that is not All is refused", run: onTrial(checkDryUnknown)},
		{id: "dry-run.change", source: dryRuns, writes: true,
			convention: "a patch and a delete with dryRun=All change nothing", run: onTarget("patch", checkDryChange)},
	}
}

var dryRun = url.Values{"dryRun": {"All"}}

func checkDryCreate(ctx context.Context, s *session, t *target) error {
	a, err := s.create(ctx, t, "dry", dryRun, nil)
	if err != nil {
		return err
	}
	o, err := a.object(http.StatusCreated)
	if err != nil {
		return err
	}
	if o.name() != s.name("dry") {
		return a.errorf("the answer is object %q; want what would have been made", o.name())
	}
	return s.absent(ctx, t, "dry", a)
}

// absent wants that an answered request has made nothing.
func (s *session) absent(ctx context.Context, t *target, suffix string, a *answer) error {
	o, err := s.read(ctx, t, s.name(suffix))
	if err == nil && o != nil {
		return a.errorf("the object was made: clients that try things out change the server")
	}
	return err
}

func checkDryUnknown(ctx context.Context, s *session, t *target) error {
	a, err := s.create(ctx, t, "dry-unknown", url.Values{"dryRun": {"Some"}}, nil)
	if err != nil {
		return err
	}
	if err := a.refused("", http.StatusBadRequest, http.StatusUnprocessableEntity); err != nil {
		return err
	}
	return s.absent(ctx, t, "dry-unknown", a)
}

func checkDryChange(ctx context.Context, s *session, t *target) error {
	o, err := s.fresh(ctx, t, "dry-change")
	if err != nil {
		return err
	}
	path := t.objectPath(t.namespace, o.name())
	patch, err := s.write(ctx, http.MethodPatch, path, typeMerge, dryRun, labelled("dry"))
	if err != nil {
		return err
	}
	if _, err := patch.object(http.StatusOK); err != nil {
		return err
	}
	del, err := s.delete(ctx, t, o.name(), o.uid(), true)
	if err != nil {
		return err
	}
	if _, err := del.object(http.StatusOK); err != nil {
		return err
	}
	now, err := s.read(ctx, t, o.name())
	switch {
	case err != nil:
		return err
	case now == nil || now.text("metadata", "deletionTimestamp") != "":
		return del.errorf("the object was deleted")
	case now.text("metadata", "labels", probeLabel) != "":
		return patch.errorf("the object was changed")
	}
	return nil
}

// labelled is a part of an object, for a patch.
func labelled(probe string) object {
	return object{"metadata": map[string]any{"labels": map[string]any{probeLabel: probe}}}
}

func fieldValidationChecks() []check {
	const validation = concepts + "#field-validation"
	return []check{
		{id: "field-validation.strict", source: validation, writes: true,
			convention: "a field that is not known is 400 with fieldValidation=Strict", run: onTrial(checkStrict)},
		{id: "field-validation.warn", source: validation, writes: true,
			convention: "a field that is not known is a Warning with fieldValidation=Warn", run: onTrial(checkWarn)},
		{id: "field-validation.ignore", source: validation, writes: true,
			convention: "a field that is not known is dropped without a word with fieldValidation=Ignore", run: onTrial(checkIgnore)},
	}
}

const unknownField = "xbUnknownField"

// validated creates, by dry run, an object with an unknown field.
func (s *session) validated(ctx context.Context, t *target, level string) (*answer, error) {
	return s.create(ctx, t, "field-"+strings.ToLower(level), url.Values{"dryRun": {"All"}, "fieldValidation": {level}}, func(o object) { o[unknownField] = "x" })
}

// keeps says that an answer shows a kind that keeps fields which its schema lacks.
func keeps(a *answer) bool {
	o, err := a.object(http.StatusCreated)
	return err == nil && o[unknownField] != nil
}

func checkStrict(ctx context.Context, s *session, t *target) error {
	a, err := s.validated(ctx, t, "Strict")
	if err != nil {
		return err
	}
	if keeps(a) {
		return unsaid("%s keeps unknown fields", t)
	}
	if err := a.refused(metav1.StatusReasonBadRequest, http.StatusBadRequest); err != nil {
		return err
	}
	if !strings.Contains(string(a.body), unknownField) {
		return a.errorf("the Status does not name the field %s: %s", unknownField, a.excerpt())
	}
	return nil
}

func checkWarn(ctx context.Context, s *session, t *target) error {
	a, err := s.validated(ctx, t, "Warn")
	if err != nil {
		return err
	}
	if _, err := a.object(http.StatusCreated); err != nil {
		return err
	}
	if !keeps(a) && !strings.Contains(strings.Join(a.header.Values("Warning"), " "), unknownField) {
		return a.errorf("there is no header Warning that names %s: %q", unknownField, a.header.Values("Warning"))
	}
	return nil
}

func checkIgnore(ctx context.Context, s *session, t *target) error {
	a, err := s.validated(ctx, t, "Ignore")
	if err != nil {
		return err
	}
	if _, err := a.object(http.StatusCreated); err != nil {
		return err
	}
	if strings.Contains(strings.Join(a.header.Values("Warning"), " "), unknownField) {
		return a.errorf("there is a Warning all the same: %q", a.header.Values("Warning"))
	}
	return nil
}
