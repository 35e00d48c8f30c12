package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// repository is the root of the product's sources.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// build builds a program from a module of this repository, or leaves it as it
// is where it is up to date.
func build(t testing.TB, name, module, pkg string, flags ...string) string {
	t.Helper()
	path := filepath.Join(repository(), ".tmp", "bin", name)
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir = filepath.Join(repository(), module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// XB is the binary under test: what XB_BIN names, or a build.
func XB(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("XB_BIN"); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			t.Fatalf("find the binary that XB_BIN names: %v", err)
		}
		if path, err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return build(t, "xb", ".", "./cmd/xb")
}

// kubeAPIServer is a kube-apiserver that knows its version, as released ones do.
func kubeAPIServer(t testing.TB) string {
	t.Helper()
	version := release(t)
	return build(t, "kube-apiserver@"+version, "test/suites", "k8s.io/kubernetes/cmd/kube-apiserver", "-ldflags", "-X k8s.io/component-base/version.gitVersion="+version)
}

func sampleAPIServer(t testing.TB) string {
	t.Helper()
	return build(t, "sample-apiserver", "test/gateway", "k8s.io/sample-apiserver")
}

// release is that of Kubernetes that the product embeds.
func release(t testing.TB) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = repository()
	out, err := list.Output()
	version := strings.TrimSpace(string(out))
	if err != nil || version == "" {
		t.Fatalf("find the release of Kubernetes that the product embeds: %v", err)
	}
	return version
}

// Kubectl is kubectl of that release, unmodified.
func Kubectl(t testing.TB) string {
	t.Helper()
	version := release(t)
	path := filepath.Join(repository(), ".tmp", "tools", "kubectl@"+version, "kubectl")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return build(t, filepath.Join("..", "tools", "kubectl@"+version, "kubectl"), ".", "k8s.io/kubernetes/cmd/kubectl", "-ldflags", "-X k8s.io/component-base/version.gitVersion="+version)
}
