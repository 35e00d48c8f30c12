package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// The programs that can be built, by the folder of the module that pins them,
// below the repository.
var sources = map[string]struct{ module, pkg string }{
	"xb":                      {".", "./cmd/xb"},
	"etcd":                    {"bench/etcd", "go.etcd.io/etcd/server/v3"},
	"kube-apiserver":          {"test/servicesync", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"kube-controller-manager": {"test/servicesync", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	"kube-proxy":              {"test/servicesync", "k8s.io/kubernetes/cmd/kube-proxy"},
	"coredns":                 {"test/servicesync", "./coredns"},
}

var building sync.Mutex

// Program is the path of a program, which is built if it was not before; the
// first of Kubernetes' takes minutes. xb is built anew each time, unless
// XB_BIN names one.
func Program(ctx context.Context, name string) (string, error) {
	building.Lock()
	defer building.Unlock()
	if given := os.Getenv("XB_BIN"); name == "xb" && given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("find the binary that XB_BIN names: %w", err)
		}
		return filepath.Abs(path)
	}
	source, ok := sources[name]
	if !ok {
		return "", fmt.Errorf("there is no program %s to build", name)
	}
	path := filepath.Join(Repository(), ".tmp", "bin", name)
	if _, err := os.Stat(path); err == nil && name != "xb" {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, source.pkg)
	cmd.Dir = filepath.Join(Repository(), source.module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// Repository is the root of this project's sources.
func Repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
