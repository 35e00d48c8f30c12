package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance"
)

const (
	// validateTime is how long the checks of one server may take.
	validateTime = 5 * time.Minute
	// validateEvery is how often a server is checked again, though it calls
	// itself the same version.
	validateEvery = 24 * time.Hour
)

// checked is what a check of a server's conformance came to.
type checked struct {
	report *conformance.Report
	err    error // it could not be checked
}

// validate holds the server to the conventions: when it has told its discovery
// first, whenever it calls itself another version, and once a day. It only
// reads. One server at a time is checked.
func (m *member) validate(ctx context.Context, server *v1alpha1.RemoteAPIServer, log *slog.Logger, turn chan struct{}) {
	var last string
	var due time.Time
	for {
		if d := m.look().document; d != nil && (string(d.Version) != last || !time.Now().Before(due)) {
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return
			}
			result := m.check(ctx, server)
			<-turn
			if ctx.Err() != nil {
				return
			}
			last, due = string(d.Version), time.Now().Add(validateEvery)
			if result.err != nil {
				due = time.Now().Add(time.Minute)
				log.Warn("conformance could not be checked", "error", result.err)
			} else {
				log.Info("conformance checked", "conformant", result.report.Conformant(), "summary", result.report.Summary())
			}
			m.note(func(f *found) { f.take(&result) })
		}
		if !pause(ctx, 500*time.Millisecond, nil) {
			return
		}
	}
}

func (m *member) check(ctx context.Context, server *v1alpha1.RemoteAPIServer) checked {
	ctx, cancel := context.WithTimeout(ctx, validateTime)
	defer cancel()
	config := m.way.Load().client(server.Name)
	way := &waverer{RoundTripper: config.Transport}
	config.Transport = way
	return way.outcome(conformance.Run(ctx, config, conformance.Options{
		OpenAPIPath: strings.TrimSuffix(cmp.Or(server.Spec.OpenAPIPath, "/openapi"), "/") + "/v2",
	}))
}

// waverer notes that a server could not be reached or did not answer: what a
// check finds then says nothing of the server. One goroutine uses it.
type waverer struct {
	http.RoundTripper
	err error // the last of them
}

func (v *waverer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := v.RoundTripper.RoundTrip(r)
	for _, reason := range []backend.Reason{backend.NoEndpoint, backend.Unreachable, backend.Broken, backend.NoAnswer} {
		if apierrors.HasStatusCause(err, metav1.CauseType(reason)) {
			v.err = err
		}
	}
	return resp, err
}

// outcome is what a check came to that was made on this way.
func (v *waverer) outcome(report *conformance.Report, err error) checked {
	if err == nil && v.err != nil && !report.Conformant() {
		err = fmt.Errorf("the server did not answer all the time: %w", v.err)
	}
	return checked{report, err}
}

// take takes the outcome of a check in. One that could not be made says nothing
// against the verdict of the last that was.
func (f *found) take(c *checked) {
	if c.err == nil || f.checked == nil || f.checked.err != nil {
		f.checked = c
	}
}

// conformant is the condition of that name.
func conformant(o observation) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionConformant, Status: metav1.ConditionUnknown}
	switch checked := o.found.checked; {
	case checked == nil:
		c.Reason, c.Message = "NotChecked", "The server has not been checked yet."
	case checked.err != nil:
		c.Reason, c.Message = "CheckFailed", clip(checked.err.Error())
	case checked.report.Conformant():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Passed", clip(checked.report.Summary()+".")
	default:
		c.Status, c.Reason = metav1.ConditionFalse, "Failed"
		c.Message = clip(fmt.Sprintf("%s. For the whole report: xb gateway validate, or /servers/%s/conformance at the gateway.", checked.report.Summary(), o.server.Name))
	}
	return c
}

// admitted says whether a server may hold groups, where only conformant ones may.
func (f found) admitted() bool {
	return f.checked != nil && f.checked.err == nil && f.checked.report.Conformant()
}
