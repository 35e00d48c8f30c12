// Package program builds the programs that tests and benchmarks run, each once
// for all of them. It never runs one.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The programs that can be built, by the folder of the module that pins them,
// below the repository.
var sources = map[string]struct {
	module, pkg string
	released    bool // it is told which release of Kubernetes it is, as released ones know
}{
	"xb":                      {".", "./cmd/xb", false},
	"etcd":                    {"bench/etcd", "go.etcd.io/etcd/server/v3", false},
	"kine":                    {"bench/kine", "github.com/k3s-io/kine", false},
	"t4":                      {"bench/t4", "github.com/t4db/t4/cmd/t4", false},
	"benchmark":               {"bench/etcdtool", "go.etcd.io/etcd/v3/tools/benchmark", false},
	"nats-server":             {".", "github.com/nats-io/nats-server/v2", false},
	"etcdctl":                 {"test/suites", "go.etcd.io/etcd/etcdctl/v3", false},
	"ginkgo":                  {"test/suites", "github.com/onsi/ginkgo/v2/ginkgo", false},
	"kubectl":                 {"test/suites", "k8s.io/kubernetes/cmd/kubectl", true},
	"kube-apiserver":          {"test/suites", "k8s.io/kubernetes/cmd/kube-apiserver", true},
	"kube-controller-manager": {"test/suites", "k8s.io/kubernetes/cmd/kube-controller-manager", true},
	"kube-proxy":              {"test/suites", "k8s.io/kubernetes/cmd/kube-proxy", true},
	"coredns":                 {"test/servicesync", "./coredns", false},
	"sample-apiserver":        {"test/suites", "k8s.io/sample-apiserver", false},
}

// built holds what this process has built, by the path of the program.
var built struct {
	sync.Mutex
	paths map[string]bool
}

// Path builds a program unless it is up to date, and returns its absolute path.
// The first of Kubernetes' programs takes minutes. If XB_BIN names a binary, it
// is taken for xb.
func Path(ctx context.Context, name string) (string, error) {
	if given := os.Getenv("XB_BIN"); name == "xb" && given != "" {
		found, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("find the binary that XB_BIN names: %w", err)
		}
		return filepath.Abs(found)
	}
	source, ok := sources[name]
	if !ok {
		return "", fmt.Errorf("there is no program %s to build", name)
	}
	args := []string{"build"}
	if source.released {
		version, err := release()
		if err != nil {
			return "", err
		}
		args = append(args, "-ldflags", "-X k8s.io/component-base/version.gitVersion="+version)
	}
	file := filepath.Join(Repository(), ".tmp", "bin", name)
	return file, compile(ctx, filepath.Join(Repository(), source.module), file, os.Environ(), append(args, "-o", file, source.pkg)...)
}

// Need is Path for a test, which fails if the program cannot be built.
func Need(t testing.TB, name string) string {
	t.Helper()
	file, err := Path(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// NeedTest builds the tests of a package of a module, which is named by its
// folder below the repository, and returns the path of the program.
func NeedTest(t testing.TB, module, pkg string) string {
	t.Helper()
	file := filepath.Join(Repository(), ".tmp", "bin", path.Base(pkg)+".test")
	if err := compile(t.Context(), filepath.Join(Repository(), module), file, os.Environ(), "test", "-c", "-vet=off", "-o", file, pkg); err != nil {
		t.Fatal(err)
	}
	return file
}

// A Module is a public Go module at one version.
type Module struct{ Path, Version string }

// Install builds a program of the module, unless an earlier run did, and returns
// its path. pkg is below the module.
func (m Module) Install(t testing.TB, pkg string) string {
	t.Helper()
	dir := filepath.Join(Repository(), ".tmp", "tools", strings.ReplaceAll(m.Path, "/", "_")+"@"+m.Version)
	file := filepath.Join(dir, path.Base(pkg))
	if _, err := os.Stat(file); err == nil {
		return file // a version of a module does not change
	}
	// Outside of any module.
	if err := compile(t.Context(), t.TempDir(), file, append(os.Environ(), "GOBIN="+dir), "install", m.Path+"/"+pkg+"@"+m.Version); err != nil {
		t.Fatal(err)
	}
	return file
}

// compile has go write the file, once in this process, and one program at a time
// among all processes: two that build the same would do the work twice.
func compile(ctx context.Context, dir, file string, env []string, args ...string) error {
	built.Lock()
	defer built.Unlock()
	if built.paths[file] {
		return nil
	}
	unlock, err := lockBuilds()
	if err != nil {
		return err
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(file), err, out)
	}
	if built.paths == nil {
		built.paths = map[string]bool{}
	}
	built.paths[file] = true
	return nil
}

func lockBuilds() (unlock func(), err error) {
	dir := filepath.Join(Repository(), ".tmp", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return func() { lock.Close() }, nil
}

// release is that of Kubernetes that the product embeds.
var release = sync.OnceValues(func() (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = Repository()
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the release of Kubernetes that the product embeds: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Repository is the root of this project's sources.
func Repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
