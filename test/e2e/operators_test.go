package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// Two real operators, by their public modules.
var (
	kro         = program.Module{Path: "github.com/kubernetes-sigs/kro", Version: "v0.9.4"}
	certManager = program.Module{Path: "github.com/cert-manager/cert-manager", Version: "v1.21.2"}
)

// published are the files of the CRDs in a folder of a module.
func published(t testing.TB, of program.Module, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(source(t, of), folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crds := slices.DeleteFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err != nil || !strings.Contains(string(data), "kind: CustomResourceDefinition")
	})
	if len(crds) == 0 {
		t.Fatalf("%s@%s has no CRDs in %s", of.Path, of.Version, folder)
	}
	return crds
}

// source is the folder of the module's sources in the module cache.
func source(t testing.TB, of program.Module) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", of.Path+"@"+of.Version)
	cmd.Dir = t.TempDir() // outside of any module
	var info struct{ Dir, Error string }
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &info); err != nil || jsonErr != nil || info.Dir == "" {
		t.Fatalf("download %s@%s: %v %v %s", of.Path, of.Version, err, jsonErr, info.Error)
	}
	return info.Dir
}

// applyCRDs applies files and waits until what they define is served.
func applyCRDs(t testing.TB, s *server, files []string, flags ...string) {
	t.Helper()
	var named []string
	for _, file := range files {
		named = append(named, "-f", file)
	}
	s.kubectl(t, "", append(append([]string{"apply"}, named...), flags...)...)
	// kubectl wait fails at once if a definition has no conditions yet: repeat it.
	wait.Poll(t, 60*time.Second, "the definitions are established", func(context.Context) error {
		_, err := s.tryKubectl(t, "", append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, named...)...)
		return err
	})
}

// TestRealOperators runs kro's controller, unmodified, in the vendor's account.
// The tenant, whose API server is another, orders what the vendor offers.
func TestRealOperators(t *testing.T) {
	controller := kro.Install(t, "cmd/controller")
	w := newWorld(t)
	applyCRDs(t, w.vendor, published(t, kro, "helm/crds"))
	applyCRDs(t, w.tenant, published(t, certManager, "deploy/crds"), "--server-side")

	process.Spawn(t, w.net.vendor, "kro", []string{"KUBECONFIG=" + w.vendor.kubeconfig()}, controller,
		"--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:8079",
		"--leader-elect", "--leader-election-namespace=kube-system",
		// It ends itself where it cannot renew for so long; a restart of its server must fit in.
		"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s")
	rgd, err := os.ReadFile("testdata/rgd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.vendor.kubectl(t, string(rgd), "apply", "-f", "-")
	w.vendor.kubectl(t, "", "wait", "resourcegraphdefinition/database", "--for=condition=Ready", "--timeout=80s")

	databases := schema.GroupVersionResource{Group: "kro.run", Version: "v1alpha1", Resource: "databases"}
	w.tenant.serves(t, databases)
	_, dyn := w.tenant.clients(t)
	at := func(resource schema.GroupVersionResource) interface {
		Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
	} {
		return dyn.Resource(resource).Namespace("default")
	}
	w.tenant.kubectl(t, `
apiVersion: kro.run/v1alpha1
kind: Database
metadata: {name: orders}
spec: {name: orders, size: 3}
`, "apply", "-f", "-")
	w.tenant.kubectl(t, "", "wait", "database/orders", "--for=condition=Ready", "--timeout=80s")
	if got := w.tenant.kubectl(t, "", "get", "database", "orders", "-o", "jsonpath={.status.state} {.status.address}"); got != "ACTIVE orders.databases.example" {
		t.Errorf("the tenant sees the status %q of its database", got)
	}
	if got := w.tenant.kubectl(t, "", "get", "certificate", "orders-tls", "-o", "jsonpath={.spec.secretName} {.spec.dnsNames[0]}"); got != "orders-config-tls orders.databases.example" {
		t.Errorf("the tenant sees the certificate %q", got)
	}

	// The controller follows what the tenant wants, through a kill of its server.
	w.vendor.Kill()
	w.tenant.kubectl(t, "", "patch", "database", "orders", "--type=merge", "-p", `{"spec":{"size":5}}`)
	w.vendor.up(t)
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	wait.Poll(t, 90*time.Second, "the new size arrives", func(ctx context.Context) error {
		obj, err := at(configMaps).Get(ctx, "orders-config", metav1.GetOptions{})
		if err == nil && field(obj, "data", "size") != "5" {
			err = fmt.Errorf("it is %v", field(obj, "data", "size"))
		}
		return err
	})
	w.tenant.kubectl(t, "", "delete", "database", "orders", "--timeout=80s")
	if out := w.tenant.kubectl(t, "", "get", "certificates,configmaps", "-o", "name"); strings.Contains(out, "orders") {
		t.Errorf("after the deletion the tenant still has %s", out)
	}
}
