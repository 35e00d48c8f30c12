package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/test/lab/process"
)

// TestAtomicApply: xb apply changes all or nothing, also as a plugin of kubectl, and deletes
// what left the set.
func TestAtomicApply(t *testing.T) {
	s := newServer(t, nil, "server", "", nil)
	s.up(t)
	client, _ := s.clients(t)
	dir := t.TempDir()
	manifest := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	xb := func(want string, fails bool, args ...string) {
		t.Helper()
		out, err := process.Run(t, s.in, []string{"KUBECONFIG=" + s.kubeconfig()}, "", append([]string{xbBinary}, args...)...)
		if fails {
			out = ""
		}
		if err != nil {
			out += err.Error()
		}
		if (err != nil) != fails || !strings.Contains(out, want) {
			t.Errorf("xb %s: %s; want %q", strings.Join(args, " "), out, want)
		}
	}
	there := func(name string) bool {
		t.Helper()
		_, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	manifest("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stock, namespace: shop}\ndata: {left: \"9\"}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	manifest("b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: not_a_name, namespace: shop}\n")
	apply := []string{"apply", "--atomic", "-f", dir, "--set", "app"}
	xb(`nothing was changed: spec.operations[4] (apply ConfigMap "shop/not_a_name")`, true, apply...)
	if there("stock") {
		t.Error("a part was applied")
	}
	manifest("b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: shop}\n")
	xb("namespace/shop created\nconfigmap/stock created\nconfigmap/extra created\n", false, apply...)
	xb("configmap/extra unchanged\n", false, apply...)
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	xb("configmap/extra deleted (server dry run)\n", false, append(apply, "--dry-run")...)
	if !there("extra") {
		t.Error("a dry run deleted something")
	}
	manifest("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stock, namespace: shop}\ndata: {left: \"8\"}\n")
	xb("-  left: \"9\"\n+  left: \"8\"\n", false, append(apply, "--dry-run", "--diff")...)
	xb("configmap/stock changed\nconfigmap/extra deleted\nnamespace/shop deleted\n", false, apply...)
	xb("configmap/stock unchanged\n", false, append(apply, "--wait")...)
	xb("say --atomic", true, "apply", "-f", dir)

	plugin := filepath.Join(t.TempDir(), "kubectl-xb")
	if err := os.Symlink(xbBinary, plugin); err != nil {
		t.Fatal(err)
	}
	manifest("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n")
	out, err := process.Run(t, s.in, []string{"KUBECONFIG=" + s.kubeconfig(), "PATH=" + filepath.Dir(plugin) + ":" + os.Getenv("PATH")}, "", "kubectl", "xb", "apply", "--atomic", "-f", dir)
	if err != nil || out != "configmap/plain created\n" {
		t.Errorf("kubectl xb apply: %s, %v", out, err)
	}
}
