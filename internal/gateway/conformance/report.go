package conformance

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// An Outcome is what a check came to.
type Outcome string

// The outcomes. A check that is skipped says nothing against a server.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// A Result is what one check found.
type Result struct {
	// ID names the check, and stays the same between releases.
	ID string `json:"id"`
	// Convention is what a server does that follows it.
	Convention string `json:"convention"`
	// Source is the URL of where the convention is written.
	Source string `json:"source"`
	// Outcome is what the check came to.
	Outcome Outcome `json:"outcome"`
	// Reason says what was seen, or why nothing was looked at; empty if the
	// check has passed.
	Reason string `json:"reason,omitempty"`
	// Resources are those that were looked at, as name.version.group.
	Resources []string `json:"resources,omitempty"`
}

// A Report is what a run found.
type Report struct {
	// Server is the URL of what was checked.
	Server string `json:"server"`
	// Version is what the server calls itself; empty if it does not say.
	Version string `json:"version,omitempty"`
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Wrote says that the run was allowed to write.
	Wrote bool `json:"wrote"`
	// Results has one entry for each check, in the order they ran in.
	Results []Result `json:"results"`
}

// Count is how many checks had this outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// Conformant says that something was checked and that nothing failed.
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

// A finding is what one check has to say.
type finding struct {
	outcome   Outcome
	reason    string
	resources []string
}

func pass() finding { return finding{outcome: Pass} }

func fail(err error) finding { return finding{outcome: Fail, reason: err.Error()} }

func skip(format string, args ...any) finding {
	return finding{outcome: Skip, reason: fmt.Sprintf(format, args...)}
}

// notSaid is an error that speaks of what could not be checked, and not of a
// convention that is broken.
type notSaid string

func (e notSaid) Error() string { return string(e) }

func unsaid(format string, args ...any) error { return notSaid(fmt.Sprintf(format, args...)) }

// judge is the finding that an error amounts to.
func judge(err error) finding {
	var silent notSaid
	switch {
	case err == nil:
		return pass()
	case errors.As(err, &silent):
		return skip("%s", silent)
	default:
		return fail(err)
	}
}

// judgeAll is the finding that several errors amount to: a broken convention
// fails the check, whatever else could not be checked.
func judgeAll(all []error) finding {
	broken := slices.DeleteFunc(slices.Clone(all), func(err error) bool { return err == nil || judge(err).outcome == Skip })
	if len(broken) > 0 {
		return fail(errors.Join(broken...))
	}
	return judge(errors.Join(all...))
}

// each asks the same of several resources. One that breaks the convention
// fails the check; it passes if at least one could be asked.
func each(resources []*sample, ask func(*sample) error) finding {
	const most = 5
	var f finding
	var broken, silent []string
	for _, r := range resources {
		one := judge(ask(r))
		switch one.outcome {
		case Fail:
			broken = append(broken, r.String()+": "+one.reason)
		case Skip:
			silent = append(silent, r.String()+": "+one.reason)
			continue
		case Pass:
		}
		f.resources = append(f.resources, r.String())
	}
	switch {
	case len(broken) > most:
		f.outcome, f.reason = Fail, strings.Join(broken[:most], "\n")+fmt.Sprintf("\nand %d more", len(broken)-most)
	case len(broken) > 0:
		f.outcome, f.reason = Fail, strings.Join(broken, "\n")
	case len(f.resources) > 0:
		f.outcome = Pass
	case len(silent) > 0:
		f.outcome, f.reason = Skip, silent[0]
	default:
		f.outcome, f.reason = Skip, "there is no resource that the caller may list; grant get, list and watch to see more"
	}
	return f
}
