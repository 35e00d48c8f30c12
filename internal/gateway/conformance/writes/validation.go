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

const unknownField = "xbUnknownField"

// validated creates, by dry run, an object with an unknown field.
func validated(ctx context.Context, t *scratch.Target, level string) (*ask.Answer, error) {
	query := scratch.DryRun()
	query.Set("fieldValidation", level)
	return t.Create(ctx, "field-"+strings.ToLower(level), query, func(o ask.Object) { o[unknownField] = "x" })
}

// keeps reports whether the created object has the unknown field: some kinds
// keep fields that their schema lacks.
func keeps(a *ask.Answer) bool {
	o, err := a.Object(http.StatusCreated)
	return err == nil && o[unknownField] != nil
}

// warned reports whether a Warning names the unknown field.
func warned(a *ask.Answer) bool {
	return strings.Contains(strings.Join(a.Header.Values("Warning"), " "), unknownField)
}

func checkStrict(ctx context.Context, t *scratch.Target) error {
	a, err := validated(ctx, t, "Strict")
	if err != nil {
		return err
	}
	if keeps(a) {
		return check.Skipf("%s keeps unknown fields", t)
	}
	if err := a.Refused(metav1.StatusReasonBadRequest, http.StatusBadRequest); err != nil {
		return err
	}
	if !strings.Contains(string(a.Body), unknownField) {
		return a.Errorf("the Status does not name the field %s: %s", unknownField, a.Excerpt())
	}
	return nil
}

func checkWarn(ctx context.Context, t *scratch.Target) error {
	a, err := validated(ctx, t, "Warn")
	if err != nil {
		return err
	}
	if _, err := a.Object(http.StatusCreated); err != nil {
		return err
	}
	if !keeps(a) && !warned(a) {
		return a.Errorf("there is no header Warning that names %s: %q", unknownField, a.Header.Values("Warning"))
	}
	return nil
}

func checkIgnore(ctx context.Context, t *scratch.Target) error {
	a, err := validated(ctx, t, "Ignore")
	if err != nil {
		return err
	}
	if _, err := a.Object(http.StatusCreated); err != nil {
		return err
	}
	if warned(a) {
		return a.Errorf("there is a Warning all the same: %q", a.Header.Values("Warning"))
	}
	return nil
}
