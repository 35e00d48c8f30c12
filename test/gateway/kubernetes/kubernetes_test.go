package kubernetes

import (
	"bufio"
	_ "embed"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/apimachinery" // the specs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// files are those whose specs run, of k8s.io/kubernetes/test/e2e/apimachinery.
var files = []string{
	"discovery", "aggregated_discovery", "openapiv3", "crd_publish_openapi",
	"watch", "crd_watch", "watchlist", "chunking", "table_conversion", "server_version", "request_timeout",
	"crd_selectable_fields", "custom_resource_definition", "field_validation", "apply",
}

// skips has a line for each spec of these files that is not run, or that skips
// itself: a part of its name, a tab, and why.
//
//go:embed skips.txt
var skips string

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.TestContext.VerifyServiceAccount = false // no controller makes them
	framework.TestContext.Provider = "skeleton"
	framework.TestContext.KubeConfig = "set by the test"
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestKubernetes(t *testing.T) {
	w := world.Start(t)
	framework.TestContext.KubeConfig = w.Gateway.Kubeconfig
	framework.TestContext.KubectlPath = program.Need(t, "kubectl")
	framework.TestContext.Host = w.Gateway.URL

	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	suite.FocusFiles = []string{`/e2e/apimachinery/(` + strings.Join(files, "|") + `)\.go`}
	known := readSkips(t)
	suite.SkipStrings = nil
	for name := range known {
		suite.SkipStrings = append(suite.SkipStrings, regexp.QuoteMeta(name))
	}
	reporter.NoColor = true
	var report types.Report
	ginkgo.ReportAfterSuite("sum up", func(r types.Report) { report = r })
	ginkgo.RunSpecs(t, "Kubernetes through the gateway", suite, reporter)
	sumUp(t, report, known)
}

func readSkips(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(skips)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(why) == "" {
			t.Fatalf("skips.txt does not say why in %q", line)
		}
		known[name] = strings.TrimSpace(why)
	}
	return known
}

// sumUp says what was run, and fails for a skip that nobody justifies, or that
// skips nothing.
func sumUp(t *testing.T, report types.Report, known map[string]string) {
	t.Helper()
	ours := regexp.MustCompile(`/e2e/apimachinery/(` + strings.Join(files, "|") + `)\.go$`)
	passed, used := 0, map[string]bool{}
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt || !ours.MatchString(spec.FileName()) {
			continue
		}
		why := ""
		for name, reason := range known {
			if strings.Contains(spec.FullText(), name) {
				why, used[name] = reason, true
			}
		}
		switch {
		case spec.State.Is(types.SpecStatePassed):
			passed++
			t.Logf("passed  %6.1fs  %s", spec.RunTime.Seconds(), spec.FullText())
		case spec.State.Is(types.SpecStateSkipped) && why != "":
			t.Logf("skipped          %s: %s", spec.FullText(), why)
		case spec.State.Is(types.SpecStateSkipped):
			t.Errorf("skipped, and skips.txt does not say why: %s: %s", spec.FullText(), spec.Failure.Message)
		default:
			t.Errorf("%s  %s", spec.State, spec.FullText())
		}
	}
	for name := range known {
		if !used[name] {
			t.Errorf("skips.txt names %q, which is no spec", name)
		}
	}
	t.Logf("%d specs passed", passed)
	if passed < 50 {
		t.Errorf("only %d specs passed; want nearly all", passed)
	}
}
