package servicesync

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	gosync "sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

const (
	mcsSuite   = "sigs.k8s.io/mcs-api/conformance"
	mcsVersion = "v0.5.0"
)

// leftOut are the specs that do not run, by a label of theirs, and why.
var leftOut = map[string]string{
	"Connectivity": "it runs nc in a pod, and no pod of the lab has programs",
	"DNS":          "it runs nslookup in a pod; TestClustersetName asks CoreDNS the same",
}

// TestMCSConformance runs the conformance suite of the Multi-Cluster Services
// API on two clusters.
func TestMCSConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it takes minutes")
	}
	suite := buildMCSSuite(t)
	all := clusters(t)[:2]
	if cluster.CanHaveNodes() == nil {
		nodes(t) // a node that refuses what the suite wants to run in pods; one that is not there takes minutes
	}
	startAll(t, nil, []string{"--exported-only"}, all...)
	ctx, stop := context.WithCancel(t.Context())
	var pods gosync.WaitGroup
	for _, c := range all {
		pods.Go(func() {
			if err := c.RunPods(ctx, "mcs-conformance-"); err != nil {
				t.Error(err)
			}
		})
	}
	defer pods.Wait()
	defer stop()
	report := filepath.Join(t.TempDir(), "report.xml")
	cmd := exec.CommandContext(t.Context(), suite, "-kubeconfig", mergedKubeconfig(t, all), "-contexts", all[0].Name+","+all[1].Name,
		"-ginkgo.label-filter", labelFilter(), "-ginkgo.junit-report", report, "-ginkgo.no-color", "-ginkgo.v")
	cmd.Dir = t.TempDir() // it writes a report of its own
	log, err := os.Create(filepath.Join(world.lab.Dir, "mcs-conformance.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	passed, skipped := readJUnit(t, report)
	t.Logf("%d specs passed; left out: %s", passed, strings.Join(skipped, "; "))
	if err != nil {
		out, _ := os.ReadFile(log.Name())
		t.Errorf("the suite ended with %v:\n%s", err, tail(string(out), 150))
	}
	if passed < 14 {
		t.Errorf("%d specs ran and passed; the suite has 14 that are required", passed)
	}
}

func labelFilter() string {
	var not []string
	for label := range leftOut {
		// What is required runs, whatever its labels.
		not = append(not, "(Required || !"+label+")")
	}
	return strings.Join(not, " && ")
}

// buildMCSSuite builds the suite from its module, or from a checkout of
// kubernetes-sigs/mcs-api that MCS_API names.
func buildMCSSuite(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(program.Repository(), ".tmp", "mcs-conformance")
	binary := filepath.Join(dir, "conformance@"+mcsVersion)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	source := os.Getenv("MCS_API")
	if source == "" {
		source = moduleSource(t)
	} else {
		source = filepath.Join(source, "conformance")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		// A module apart: the suite replaces the API's module by a folder beside
		// its own, which only its own go.mod may.
		"go.mod": fmt.Sprintf("module scratch\n\ngo 1.26.0\n\nrequire %s %s\n\nreplace %s => %s\n", mcsSuite, mcsVersion, mcsSuite, source),
		"doc.go": fmt.Sprintf("package scratch\n\nimport _ %q\n", mcsSuite),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"test", "-c", "-o", binary, mcsSuite}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the suite: go %v: %v\n%s", args, err, out)
		}
	}
	return binary
}

// moduleSource is the suite in the module cache. Where it cannot be had, the
// test is skipped with the reason.
func moduleSource(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", mcsSuite+"@"+mcsVersion)
	cmd.Dir = t.TempDir()
	var info struct{ Dir, Error string }
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &info); jsonErr != nil || info.Dir == "" {
		process.Need(t, fmt.Errorf("the module %s@%s cannot be had here: %w; set MCS_API to a checkout of kubernetes-sigs/mcs-api at conformance/%s",
			mcsSuite, mcsVersion, errors.Join(err, errors.New(info.Error)), mcsVersion))
	}
	return info.Dir
}

// mergedKubeconfig has a context for each cluster.
func mergedKubeconfig(t *testing.T, all []*cluster.Cluster) string {
	t.Helper()
	rules := clientcmd.ClientConfigLoadingRules{}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, c := range all {
		one := filepath.Join(t.TempDir(), c.Name)
		if err := c.WriteKubeconfigAs(one, c.Name+"-admin", c.Config.Host, c.Config.BearerToken); err != nil {
			t.Fatal(err)
		}
		rules.Precedence = append(rules.Precedence, one)
	}
	merged, err := rules.Load()
	if err == nil {
		err = clientcmd.WriteToFile(*merged, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// readJUnit counts the specs that passed, and names those left out.
func readJUnit(t *testing.T, path string) (passed int, skipped []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name   string `xml:"name,attr"`
				Status string `xml:"status,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			switch c.Status {
			case "passed":
				if strings.HasPrefix(c.Name, "[It]") {
					passed++
				}
			case "skipped", "pending":
				skipped = append(skipped, c.Name)
			}
		}
	}
	return passed, skipped
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
