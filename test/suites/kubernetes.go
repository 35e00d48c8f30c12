package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// kubernetesPackages are those whose tests start an etcd.
var kubernetesPackages = []string{
	"k8s.io/apiserver/pkg/storage/etcd3",
	"k8s.io/apiserver/pkg/storage/cacher",
	"k8s.io/apiserver/pkg/registry/generic/registry",
	"k8s.io/apiserver/pkg/storage/storagebackend/factory",
	"k8s.io/apiserver/pkg/reconcilers",
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource",
}

const (
	apiserver = "k8s.io/apiserver"
	// testserver is the one file of it that is replaced: the way its tests
	// start an etcd.
	testserver = "pkg/storage/etcd3/testserver/test_server.go"
	// scratch is kept out of git; like all paths here, it is relative to this
	// module.
	scratch = "../../.tmp/suites"
)

// kubernetesSuites are the suites on one journal. They run unmodified, from a
// copy of k8s.io/apiserver in which one file starts our store for them.
func kubernetesSuites(ctx context.Context, journal string) ([]target, error) {
	modfile, err := copyAPIServer(ctx)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", apiserver, err)
	}
	skips, err := readSkips("skips.txt")
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, pkg := range kubernetesPackages {
		t := target{name: journal, pkg: pkg, flags: []string{"-modfile=" + modfile}, env: []string{"XB_SUITE_JOURNAL=" + journal}}
		for _, s := range skips {
			if s.pkg == pkg && (s.journal == journal || s.journal == "*") {
				t.skips = append(t.skips, s)
			}
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// copyAPIServer copies k8s.io/apiserver out of the module cache, which must
// not be changed, and returns a go.mod by which go uses the copy.
func copyAPIServer(ctx context.Context) (modfile string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json", apiserver).Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", withStderr(err))
	}
	var module struct{ Dir, Version string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	if module.Dir == "" {
		if out, err := exec.CommandContext(ctx, "go", "mod", "download", apiserver).CombinedOutput(); err != nil {
			return "", fmt.Errorf("download the module: %w: %s", err, out)
		}
		return copyAPIServer(ctx)
	}
	dir := filepath.Join(scratch, "apiserver@"+module.Version)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := copyTree(dir, module.Dir); err != nil {
			return "", err
		}
	}
	for to, from := range map[string]string{
		filepath.Join(dir, testserver):   "testserver/testserver.go",
		filepath.Join(scratch, "go.mod"): "go.mod",
		filepath.Join(scratch, "go.sum"): "go.sum",
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return "", err
		}
	}
	modfile = filepath.Join(scratch, "go.mod")
	edit := exec.CommandContext(ctx, "go", "mod", "edit", "-replace="+apiserver+"="+dir, modfile)
	if out, err := edit.CombinedOutput(); err != nil {
		return "", fmt.Errorf("edit %s: %w: %s", modfile, err, out)
	}
	return modfile, nil
}

// copyTree copies a folder of the module cache, whole or not at all, and makes
// the copy writable.
func copyTree(to, from string) error {
	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.CopyFS(part, os.DirFS(from)); err != nil {
		return err
	}
	err := filepath.WalkDir(part, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		return err
	}
	return os.Rename(part, to)
}

// withStderr adds what a command said to its error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
