// Package checkperf runs etcdctl check perf on xb etcd with a file journal.
package checkperf

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

// loads is the variable that names other loads than s: s, m, l and xl, with
// commas between them. Each takes a minute.
const loads = "XB_SUITE_LOADS"

// TestCheckPerf asks etcd's own judgement. What it measured is logged, not
// asserted: etcdctl holds it against what etcd wants of a cluster of that size.
func TestCheckPerf(t *testing.T) {
	given := os.Getenv(loads)
	if given == "" {
		given = "s"
	}
	etcdctl := program.Need(t, "etcdctl")
	for load := range strings.SplitSeq(given, ",") {
		t.Run(load, func(t *testing.T) {
			xb := xbetcd.Start(t, nil, xbetcd.FileJournal(t))
			out, err := exec.CommandContext(t.Context(), etcdctl, "--endpoints", xb.Endpoint, "check", "perf", "--load", load).CombinedOutput()
			said := bytes.Join(verdicts.FindAll(out, -1), []byte("\n"))
			if err != nil {
				t.Fatalf("etcdctl check perf: %v\n%s", err, said)
			}
			t.Logf("%s", said)
		})
	}
}

// verdicts is what etcdctl says beside its progress bar.
var verdicts = regexp.MustCompile(`(PASS|FAIL|Error).*`)
