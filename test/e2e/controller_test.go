package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/test/lab/process"
)

// TestControllerRuntime runs one controller-runtime program in each account:
// one of them leads, for the objects of both.
func TestControllerRuntime(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "widgetcontroller")
	if out, err := exec.Command("go", "build", "-o", binary, "./widgetcontroller").CombinedOutput(); err != nil {
		t.Fatalf("build the controller: %v\n%s", err, out)
	}
	w := newWorld(t)
	w.vendor.kubectl(t, widgetCRD, "apply", "-f", "-")
	controllers := map[string]*process.Process{}
	for _, s := range []*server{w.vendor, w.tenant} {
		s.serves(t, widgets)
		controllers[s.name] = process.Spawn(t, s.in, s.name+"-controller", []string{"KUBECONFIG=" + s.kubeconfig()}, binary, "--name="+s.name)
	}
	_, atVendor := w.vendor.clients(t)
	_, atTenant := w.tenant.clients(t)
	tenants := atTenant.Resource(widgets).Namespace("default")
	made := func(name string, size int64) *unstructured.Unstructured {
		return awaitObject(t, tenants, name, name+" is made", func(obj *unstructured.Unstructured) bool {
			return field(obj, "status", "phase") == "Made" && field(obj, "status", "size") == size
		})
	}
	create := func(name string, size int64) {
		if _, err := tenants.Create(t.Context(), newWidget(name, size), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	create("first", 3)
	first := made("first", 3)
	leader := fmt.Sprint(field(first, "status", "owner"))
	if controllers[leader] == nil {
		t.Fatalf("the widget was made by %q, which does not exist", leader)
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	child := awaitObject(t, atTenant.Resource(configMaps).Namespace("default"), "first", "the ConfigMap", func(obj *unstructured.Unstructured) bool {
		return field(obj, "data", "size") == "3"
	})
	if owners := child.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != first.GetUID() || !*owners[0].Controller {
		t.Errorf("the ConfigMap is owned by %v; want the widget, %s", owners, first.GetUID())
	}
	w.tenant.kubectl(t, "", "patch", "wg", "first", "--type=merge", "-p", `{"spec":{"size":4}}`)
	made("first", 4)

	// The other takes over, and with it the status says another name.
	controllers[leader].Kill()
	create("second", 5)
	second := made("second", 5)
	if heir := fmt.Sprint(field(second, "status", "owner")); heir == leader || controllers[heir] == nil {
		t.Errorf("after the kill of %s the widget was made by %s", leader, heir)
	}

	// The finalizer holds the widget until it is released; then the garbage
	// collector takes the ConfigMap.
	w.tenant.kubectl(t, "", "delete", "wg", "first", "--timeout=60s")
	awaitObject(t, atVendor.Resource(configMaps).Namespace("default"), "released-first", "the release at the vendor", func(obj *unstructured.Unstructured) bool {
		return field(obj, "data", "uid") == string(first.GetUID())
	})
	w.vendor.kubectl(t, "", "wait", "configmap/first", "--for=delete", "--timeout=80s")
	if left := w.tenant.kubectl(t, "", "get", "wg,configmaps", "-o", "name"); strings.Contains(left, "/first\n") || !strings.Contains(left, "/second\n") {
		t.Errorf("there are left: %s", left)
	}
}
