package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/xbernetes/xbernetes/test/lab/program"
)

// suite is what the linked specs are called together; ginkgo looks for a focus
// in this name and the spec's.
const suite = "Kubernetes"

// procs is how many specs run at a time. Most of them wait most of the time.
const procs = 4

// only is the environment variable for a pattern of names: no other specs run.
const only = "XB_SPECS"

// TestOneServer is a server on a file journal.
func TestOneServer(t *testing.T) {
	runAll(t, oneServer(t))
}

// TestTwoServers is two servers on one bucket, each of which gets every other
// connection, while one of them runs the controllers.
func TestTwoServers(t *testing.T) {
	runAll(t, twoServers(t))
}

func runAll(t *testing.T, c cluster) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, cluster){"specs": runSpecs, "by URL": runByURL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// runSpecs runs the specs of the list against a cluster, and holds what comes
// of them against the list.
func runSpecs(t *testing.T, c cluster) {
	t.Helper()
	l, err := parse(listed)
	if err != nil {
		t.Fatalf("read specs.txt: %v", err)
	}
	wanted, some := wantedSpecs(t)
	if some {
		l = l.only(wanted)
	}
	names := l.runs()
	if len(names) == 0 {
		return // only tests by URL are wanted
	}
	report := ginkgo(t, c, names)
	if some {
		report = slices.DeleteFunc(report, func(s types.SpecReport) bool { return !slices.Contains(names, s.FullText()) })
	}
	sumUp(t, l.judge(report))
}

// wantedSpecs is the pattern of those that are wanted, if it is not all.
func wantedSpecs(t *testing.T) (wanted *regexp.Regexp, some bool) {
	t.Helper()
	pattern := os.Getenv(only)
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("%s: %v", only, err)
	}
	return wanted, pattern != ""
}

// ginkgo runs these specs, some at a time and those that must be alone alone,
// and returns what it says of every spec that is linked.
func ginkgo(t *testing.T, c cluster, names []string) []types.SpecReport {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program.Need(t, "ginkgo"),
		"--procs="+strconv.Itoa(procs), "--timeout=1h", "--no-color", "--silence-skips",
		"--output-dir="+dir, "--json-report=report.json", "--focus="+focus(suite, names),
		program.NeedTest(t, "test/suites", "./e2e/specs"), "--", "--kubeconfig="+c.kubeconfig, "--kubectl-path="+program.Need(t, "kubectl"))
	cmd.Env = append(os.Environ(), "HOME="+dir) // for what kubectl keeps
	out, failed := cmd.CombinedOutput()
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatalf("ginkgo wrote no report: %v: %v\n%s", err, failed, out)
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("ginkgo's report has %d suites: %v", len(reports), err)
	}
	return reports[0].SpecReports
}

// sumUp makes a subtest of every spec that ran, and says what was left out.
func sumUp(t *testing.T, j judgement) {
	t.Helper()
	for _, spec := range append(j.passed, j.failed...) {
		t.Run(spec.FullText(), func(t *testing.T) {
			t.Logf("%s after %.1f s", spec.State, spec.RunTime.Seconds())
		})
	}
	for _, name := range slices.Sorted(maps.Keys(j.wrong)) {
		t.Run(name, func(t *testing.T) { t.Error(j.wrong[name]) })
	}
	left := 0
	for _, why := range slices.Sorted(maps.Keys(j.leftOut)) {
		names := j.leftOut[why]
		left += len(names)
		t.Logf("left out, %s:", why)
		for _, name := range names {
			t.Logf("    %s", name)
		}
	}
	t.Attr("left-out", strconv.Itoa(left))
	t.Logf("%d specs passed, %d failed as specs.txt says, %d are left out", len(j.passed), len(j.failed), left)
}
