package kubeconfig_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

func access(name, url string) kubeconfig.Access {
	return kubeconfig.Access{Name: name, URL: url, CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}
}

// TestWriteReplacesTheFile: nothing of the file before stays, its mode neither.
func TestWriteReplacesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deep", "config")
	for range 2 {
		if err := kubeconfig.Write(file, access("mine", "https://127.0.0.1:1")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil { // the next write must not keep that
			t.Fatal(err)
		}
	}
	if err := kubeconfig.Write(file, access("mine", "https://127.0.0.1:2")); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", fi.Mode(), err)
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Contexts) != 1 || cfg.CurrentContext != "mine" || cfg.Clusters["mine"].Server != "https://127.0.0.1:2" {
		t.Fatalf("kubeconfig %+v", cfg)
	}
	left, err := fs.Glob(os.DirFS(filepath.Dir(file)), "*")
	if err != nil || len(left) != 1 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

// TestMerge: the merged file has every context, with its cluster and its user.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, url := range map[string]string{"vendor": "https://127.0.0.1:1", "tenant": "https://127.0.0.1:2"} {
		files = append(files, filepath.Join(dir, name))
		if err := kubeconfig.Write(filepath.Join(dir, name), access(name, url)); err != nil {
			t.Fatal(err)
		}
	}
	all := filepath.Join(dir, "all")
	if err := kubeconfig.Merge(all, "tenant", files...); err != nil {
		t.Fatal(err)
	}
	for context, url := range map[string]string{"": "https://127.0.0.1:2", "vendor": "https://127.0.0.1:1", "tenant": "https://127.0.0.1:2"} {
		cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: all}, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
		if err != nil || cfg.Host != url || string(cfg.CertData) != "cert" {
			t.Errorf("context %q leads to %v, %v", context, cfg, err)
		}
	}
	if err := kubeconfig.Merge(all, "tenant", filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was merged")
	}
}
