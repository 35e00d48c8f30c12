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
	// checkTimeout is how long the check of one server may take.
	checkTimeout = 5 * time.Minute
	// checkInterval is how often a server of the same version is checked again.
	checkInterval = 24 * time.Hour
)

// checked is the outcome of a check of a server's conformance.
type checked struct {
	report *conformance.Report
	err    error // why the server could not be checked; nil if it could
}

// validate checks the server's conformance, by reads only: once its discovery is known,
// whenever its version changes, and once a day. One server is checked at a time: the member
// that checks holds turn.
func (m *member) validate(ctx context.Context, server *v1alpha1.RemoteAPIServer, log *slog.Logger, turn chan struct{}) {
	var last string
	var due time.Time
	for {
		if d := m.known().document; d != nil && (string(d.Version) != last || !time.Now().Before(due)) {
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
			last, due = string(d.Version), time.Now().Add(checkInterval)
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
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	config := m.conn.Load().client(server.Name)
	through := &waverer{RoundTripper: config.Transport}
	config.Transport = through
	return through.outcome(conformance.Run(ctx, config, conformance.Options{
		OpenAPIPath: strings.TrimSuffix(cmp.Or(server.Spec.OpenAPIPath, "/openapi"), "/") + "/v2",
	}))
}

// waverer notes whether a server could not be reached or did not answer during a check. If
// so, the check's findings say nothing about the server. Only one goroutine may use it.
type waverer struct {
	http.RoundTripper
	err error // of the last request that was not answered; nil if all were
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

// outcome is the outcome of a check whose requests went through v.
func (v *waverer) outcome(report *conformance.Report, err error) checked {
	if err == nil && v.err != nil && !report.Conformant() {
		err = fmt.Errorf("the server did not answer every request of the check: %w", v.err)
	}
	return checked{report, err}
}

// take notes the outcome of a check. If the server could not be checked, the last
// verdict stays.
func (f *found) take(c *checked) {
	if c.err == nil || f.checked == nil || f.checked.err != nil {
		f.checked = c
	}
}

// conformant makes the condition Conformant.
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

// admitted says whether the server is known to be conformant.
func (f found) admitted() bool {
	return f.checked != nil && f.checked.err == nil && f.checked.report.Conformant()
}
