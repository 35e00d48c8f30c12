// Package e2e tests xb from outside: it runs the binary as a user would, and
// knows nothing of what is inside. It never imports a package of the product.
//
// The binary is built once, or taken from the environment variable XB_BIN.
// What a test needs and this machine has not (root, network namespaces) skips
// it with a word, and is an error where CI=true. Programs are built from their
// public modules.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	var err error
	if xbBinary, err = findBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// xbBinary is the binary under test, an absolute path.
var xbBinary string

// repository is the root of the product's sources.
func repository() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
}

// findBinary is XB_BIN, or a build of cmd/xb.
func findBinary() (string, error) {
	if given := os.Getenv("XB_BIN"); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("find the binary that XB_BIN names: %w", err)
		}
		return filepath.Abs(path)
	}
	path := filepath.Join(repository(), ".tmp", "bin", "xb")
	build := exec.Command("go", "build", "-o", path, "./cmd/xb")
	build.Dir = repository()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/xb: %w\n%s", err, out)
	}
	return path, nil
}

// need skips the test where a thing is missing, and fails it in CI.
func need(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing in CI: %s", missing)
	}
	t.Skipf("skipped: %s", missing)
}

// A tool is a program in a public Go module, at one version.
type tool struct {
	module, version string
	pkg             string // below the module
}

var toolLocks sync.Map // tool -> *sync.Mutex

// install builds the program, unless an earlier run did, and returns its path.
func (c tool) install(t testing.TB) string {
	t.Helper()
	lock, _ := toolLocks.LoadOrStore(c, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	dir := filepath.Join(repository(), ".tmp", "tools", strings.ReplaceAll(c.module, "/", "_")+"@"+c.version)
	path := filepath.Join(dir, filepath.Base(c.pkg))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.Command("go", "install", c.module+"/"+c.pkg+"@"+c.version)
	build.Dir = t.TempDir() // outside of any module
	build.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("install %s/%s@%s: %v\n%s", c.module, c.pkg, c.version, err, out)
	}
	return path
}

// source is the folder of the module's sources in the module cache.
func (c tool) source(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", c.module+"@"+c.version)
	cmd.Dir = t.TempDir()
	var info struct{ Dir, Error string }
	out, err := cmd.Output()
	if jsonErr := unmarshal(out, &info); err != nil || jsonErr != nil || info.Dir == "" {
		t.Fatalf("download %s@%s: %v %v %s", c.module, c.version, err, jsonErr, info.Error)
	}
	return info.Dir
}
