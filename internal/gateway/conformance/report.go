package conformance

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
)

// An Outcome is the result of a check.
type Outcome string

// The outcomes. A check that is skipped says nothing against a server.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// A Result is what one check has found.
type Result struct {
	// ID names the check, and stays the same between releases.
	ID string `json:"id"`
	// Convention says what a server does that follows it.
	Convention string `json:"convention"`
	// Source is the URL of the page that states the convention.
	Source string `json:"source"`
	// Outcome is the result of the check.
	Outcome Outcome `json:"outcome"`
	// Reason says how the server breaks the convention, or why the check was
	// skipped; empty if it has passed.
	Reason string `json:"reason,omitempty"`
	// Resources are those that the check asked, as name.version.group.
	Resources []string `json:"resources,omitempty"`
}

// A Report is what a run has found.
type Report struct {
	// Server is the URL of what was checked.
	Server string `json:"server"`
	// Version is what the server calls itself; empty if it does not say.
	Version string `json:"version,omitempty"`
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Wrote is true if the run was allowed to write.
	Wrote bool `json:"wrote"`
	// Results has one entry for each check, in the order they ran in.
	Results []Result `json:"results"`
}

// Count is how many checks have this outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// Conformant reports whether a check passed and none failed.
func (r *Report) Conformant() bool { return r.Count(Fail) == 0 && r.Count(Pass) > 0 }

// Summary is one sentence, for a condition's message: what failed, by name.
func (r *Report) Summary() string {
	const most = 5
	var failed []string
	for _, result := range r.Results {
		if result.Outcome == Fail {
			failed = append(failed, result.ID)
		}
	}
	counts := fmt.Sprintf("%d checks passed, %d failed, %d were skipped", r.Count(Pass), len(failed), r.Count(Skip))
	switch {
	case len(failed) == 0:
		return counts
	case len(failed) > most:
		return fmt.Sprintf("%s: %s and %d more", counts, strings.Join(failed[:most], ", "), len(failed)-most)
	default:
		return counts + ": " + strings.Join(failed, ", ")
	}
}

// WriteText prints the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Server)
	if r.Version != "" {
		fmt.Fprintf(&b, " (%s)", r.Version)
	}
	b.WriteString("\n\n")
	var reasons []string
	skipped := map[string][]string{} // reason -> ids
	for _, result := range r.Results {
		if result.Outcome == Skip {
			if skipped[result.Reason] == nil {
				reasons = append(reasons, result.Reason)
			}
			skipped[result.Reason] = append(skipped[result.Reason], result.ID)
			continue
		}
		fmt.Fprintf(&b, "%-4s  %s: %s\n", strings.ToUpper(string(result.Outcome)), result.ID, result.Convention)
		if result.Outcome == Fail {
			fmt.Fprintf(&b, "      %s\n      see %s\n", strings.ReplaceAll(result.Reason, "\n", "\n      "), result.Source)
		}
	}
	for _, reason := range reasons {
		fmt.Fprintf(&b, "SKIP  %s:\n      %s\n", strings.Join(skipped[reason], ", "), reason)
	}
	verdict := "follows the conventions that were checked"
	if !r.Conformant() {
		verdict = "does not follow the conventions"
	}
	fmt.Fprintf(&b, "\n%s; the server %s.\n", r.Summary(), verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// resultOf is the result of a check with this finding.
func resultOf[S any](c check.Check[S], f check.Finding) Result {
	r := Result{ID: c.ID, Convention: c.Convention, Source: c.Source, Outcome: Pass, Resources: f.Resources}
	var skipped check.Skipped
	switch {
	case errors.As(f.Err, &skipped):
		r.Outcome, r.Reason = Skip, skipped.Error()
	case f.Err != nil:
		r.Outcome, r.Reason = Fail, f.Err.Error()
	}
	return r
}
