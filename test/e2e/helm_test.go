package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// Helm, unmodified, from its public module.
var helm = program.Module{Path: "helm.sh/helm/v3", Version: "v3.22.0"}

// TestHelm takes a chart of custom resources through a release's whole life.
func TestHelm(t *testing.T) {
	binary := helm.Install(t, "cmd/helm")
	s := newServer(t, nil, "server", "", nil)
	s.up(t)
	s.kubectl(t, "", "apply", "-f", widgetFile(t))
	s.serves(t, widgets)
	chart, err := filepath.Abs("testdata/chart")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	release := func(args ...string) string {
		t.Helper()
		out, err := process.Run(t, nil, []string{"KUBECONFIG=" + s.kubeconfig(), "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}, "", append([]string{binary}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	sizes := func(want string) {
		t.Helper()
		got := s.kubectl(t, "", "get", "wg", "-l", "app.kubernetes.io/managed-by=Helm", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.size} {end}`)
		if strings.TrimSpace(got) != want {
			t.Errorf("there are the widgets %q; want %q", got, want)
		}
	}

	release("install", "mine", chart, "--wait", "--timeout=60s")
	sizes("mine-counter=2 mine-shelf=4")
	s.prints(t, []string{"known default"}, "", "get", "configmap", "mine-prices", "-o", "jsonpath={.data.widgets} {.data.namespace}")
	s.prints(t, []string{"v1."}, "", "get", "wg", "mine-counter", "-o", "jsonpath={.spec.note}")

	release("upgrade", "mine", chart, "--set", "size=5", "--set", "shelf=false", "--wait", "--timeout=60s")
	sizes("mine-counter=5")

	release("rollback", "mine", "1", "--wait", "--timeout=60s")
	sizes("mine-counter=2 mine-shelf=4")
	history := release("history", "mine")
	for _, want := range []string{"Install complete", "Upgrade complete", "Rollback to 1"} {
		if !strings.Contains(history, want) {
			t.Errorf("history prints:\n%s\nwant %q in it", history, want)
		}
	}

	release("uninstall", "mine", "--wait", "--timeout=60s")
	sizes("")
	s.refuses(t, []string{"NotFound"}, "", "get", "configmap", "mine-prices")
	if list := release("list", "--all", "--short"); strings.TrimSpace(list) != "" {
		t.Errorf("after the uninstallation there is still %s", list)
	}
}
