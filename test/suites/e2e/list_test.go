package e2e

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2/types"
)

// listed is what is expected of every spec that is linked.
//
//go:embed specs.txt
var listed string

// A list is specs.txt.
type list struct {
	passes  map[string]bool   // by full name
	fails   map[string]string // by full name: why
	byURL   map[string]string // by full name: the test of ours that makes its checks
	leftOut []rule            // the first that fits holds
}

// A rule leaves out the specs that have a part of their names in common, or a
// file or folder of k8s.io/kubernetes/test/e2e.
type rule struct{ part, why string }

func (r rule) fits(spec types.SpecReport) bool {
	_, file, _ := strings.Cut(spec.FileName(), "/test/e2e/")
	isPath := strings.HasSuffix(r.part, "/") || strings.HasSuffix(r.part, ".go")
	return isPath && strings.HasPrefix(file, r.part) || !isPath && strings.Contains(spec.FullText(), r.part)
}

// parse reads a list, as specs.txt describes it. It refuses two lines of one
// name.
func parse(text string) (list, error) {
	l := list{passes: map[string]bool{}, fails: map[string]string{}, byURL: map[string]string{}}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, "\t")
		name, why, _ := strings.Cut(rest, "\t")
		if seen[name] {
			return list{}, fmt.Errorf("it has a second line for %q", name)
		}
		seen[name] = true
		switch {
		case name == "" || strings.Contains(why, "\t") || (word == "pass") != (why == ""):
			return list{}, fmt.Errorf("%q is not: pass NAME, fail NAME WHY, url NAME TEST, or out PART WHY, with tabs between", line)
		case word == "pass":
			l.passes[name] = true
		case word == "fail":
			l.fails[name] = why
		case word == "url":
			l.byURL[name] = why
		case word == "out":
			l.leftOut = append(l.leftOut, rule{name, why})
		default:
			return list{}, fmt.Errorf("%q begins with none of pass, fail, url and out", line)
		}
	}
	return l, nil
}

// runs are the names of the specs to run.
func (l list) runs() []string {
	names := slices.Collect(maps.Keys(l.passes))
	return append(names, slices.Collect(maps.Keys(l.fails))...)
}

// only is the part of a list that is about these specs.
func (l list) only(wanted *regexp.Regexp) list {
	unwanted := func(name string) bool { return !wanted.MatchString(name) }
	maps.DeleteFunc(l.passes, func(name string, _ bool) bool { return unwanted(name) })
	maps.DeleteFunc(l.fails, func(name, _ string) bool { return unwanted(name) })
	return list{passes: l.passes, fails: l.fails}
}

// focus is a pattern of ginkgo's for these specs and no others.
func focus(suite string, names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^" + regexp.QuoteMeta(suite) + " (?:" + strings.Join(quoted, "|") + ")$"
}

// A judgement is what came of a run. Whatever is wrong is in wrong, by name.
type judgement struct {
	passed  []types.SpecReport
	failed  []types.SpecReport  // as expected
	leftOut map[string][]string // names, by the reason
	wrong   map[string]string   // what is wrong, by the name of a spec or by the line
}

// judge compares what the specs did with what is expected of them. Every spec
// must have a line, and every line a spec.
func (l list) judge(specs []types.SpecReport) judgement {
	j := judgement{leftOut: map[string][]string{}, wrong: map[string]string{}}
	used := map[string]bool{}
	for _, spec := range specs {
		name := spec.FullText()
		switch {
		case spec.LeafNodeType != types.NodeTypeIt:
			if spec.State.Is(types.SpecStateFailureStates) {
				j.wrong[spec.LeafNodeType.String()] = spec.Failure.Message
			}
			continue
		case l.passes[name]:
			used[name] = true
			if spec.State.Is(types.SpecStatePassed) {
				j.passed = append(j.passed, spec)
			} else {
				j.wrong[name] = fmt.Sprintf("%s, and should pass: %s", spec.State, story(spec))
			}
		case l.fails[name] != "":
			used[name] = true
			if spec.State.Is(types.SpecStateFailureStates) {
				j.failed = append(j.failed, spec)
			} else {
				j.wrong[name] = fmt.Sprintf("%s, and specs.txt says that it fails: %s", spec.State, l.fails[name])
			}
		case l.byURL[name] != "":
			used[name] = true
		default:
			i := slices.IndexFunc(l.leftOut, func(r rule) bool { return r.fits(spec) })
			if i < 0 {
				j.wrong[name] = "no line of specs.txt speaks of it"
				continue
			}
			used[l.leftOut[i].part] = true
			j.leftOut[l.leftOut[i].why] = append(j.leftOut[l.leftOut[i].why], name)
		}
	}
	for _, line := range l.lines() {
		if !used[line] {
			j.wrong[line] = "specs.txt speaks of it, and no spec is called so, or an earlier line has them all"
		}
	}
	return j
}

// story is why a spec failed, and the end of what it said before.
func story(spec types.SpecReport) string {
	const end = 8 << 10
	said := spec.CapturedGinkgoWriterOutput
	return fmt.Sprintf("%s\nat %s\nwhich said, at the end:\n%s", spec.Failure.Message, spec.Failure.Location, said[max(0, len(said)-end):])
}

// lines are the names and parts of names that the list speaks of.
func (l list) lines() []string {
	lines := append(l.runs(), slices.Collect(maps.Keys(l.byURL))...)
	for _, r := range l.leftOut {
		lines = append(lines, r.part)
	}
	return lines
}

func TestList(t *testing.T) {
	l, err := parse(listed)
	if err != nil {
		t.Fatalf("read specs.txt: %v", err)
	}
	t.Logf("%d specs pass, %d fail, %d are tests of ours, %d rules leave out the others", len(l.passes), len(l.fails), len(l.byURL), len(l.leftOut))
	for _, text := range []string{"pass", "pass\t", "passes\tx", "passes\tx\twhy", "pass\tx\twhy", "fail\tx\twhy\tmore", "fail\tx", "fail\tx\t", "out\t\twhy", "url\tx", "pass\tx\nfail\tx\twhy"} {
		if _, err := parse(text); err == nil {
			t.Errorf("a list of %q is read; want an error", text)
		}
	}
}

// TestJudge: each way in which a run can differ from the list is seen.
func TestJudge(t *testing.T) {
	l, err := parse("# a comment\n\npass\tgood\nfail\tbad\ta bug\nurl\thook\tourHook\nout\tpods\tno pods\nout\tpodsandmore\tnever used\npass\tgone\n")
	if err != nil {
		t.Fatal(err)
	}
	spec := func(name string, state types.SpecState) types.SpecReport {
		return types.SpecReport{LeafNodeText: name, LeafNodeType: types.NodeTypeIt, State: state}
	}
	for _, c := range []struct {
		good, bad types.SpecState
		wrong     []string
	}{
		{types.SpecStatePassed, types.SpecStateFailed, nil},
		{types.SpecStateFailed, types.SpecStateTimedout, []string{"good"}},
		{types.SpecStateSkipped, types.SpecStatePanicked, []string{"good"}},
		{types.SpecStatePassed, types.SpecStatePassed, []string{"bad"}},
		{types.SpecStatePassed, types.SpecStateSkipped, []string{"bad"}},
	} {
		got := l.judge([]types.SpecReport{
			spec("good", c.good), spec("bad", c.bad), spec("with pods", types.SpecStateSkipped), spec("new", types.SpecStateSkipped), spec("hook", types.SpecStateSkipped),
			{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
		})
		want := append([]string{"new", "gone", "podsandmore"}, c.wrong...)
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got.wrong))); diff != "" {
			t.Errorf("%v, %v: wrong (-want +got):\n%s", c.good, c.bad, diff)
		}
		if diff := cmp.Diff(map[string][]string{"no pods": {"with pods"}}, got.leftOut); diff != "" {
			t.Errorf("%v, %v: left out (-want +got):\n%s", c.good, c.bad, diff)
		}
	}
}

func TestFocus(t *testing.T) {
	pattern := regexp.MustCompile(focus("Kubernetes", []string{"[sig-x] a (b)", "c"}))
	for name, want := range map[string]bool{"Kubernetes [sig-x] a (b)": true, "Kubernetes c": true, "Kubernetes cc": false, "c": false, "Kubernetes [sig-x] a b": false} {
		if got := pattern.MatchString(name); got != want {
			t.Errorf("%q matches: %v, want %v", name, got, want)
		}
	}
}
