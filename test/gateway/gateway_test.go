// Package gateway tests xb gateway from outside: it runs the binary as a user
// would, before real API servers. It never imports a package of the product.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

var (
	flunders = schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}
	widgets  = schema.GroupVersionResource{Group: "example.xbernetes.dev", Version: "v1", Resource: "widgets"}
)

// widgetCRD is served by xb server.
const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.xbernetes.dev}
spec:
  group: example.xbernetes.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wg]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        description: A widget, which the xb server keeps.
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 0, description: How large the widget is.}
              color: {type: string}
          status:
            type: object
            properties:
              size: {type: integer}
`

func widget(name string, size int) string {
	return fmt.Sprintf("apiVersion: example.xbernetes.dev/v1\nkind: Widget\nmetadata: {name: %s, namespace: default}\nspec: {size: %d}\n", name, size)
}

func flunder(name, reference string) string {
	return fmt.Sprintf("apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: %s, namespace: default}\nspec: {reference: %q, referenceType: Flunder}\n", name, reference)
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\ndata: {value: %q}\n", name, value)
}

// TestThreeServers works with three servers as if they were one.
func TestThreeServers(t *testing.T) {
	w := world.Start(t)
	w.XB.Kubectl(t, widgetCRD, "apply", "-f", "-")
	wait.Poll(t, time.Minute, "all groups are in the gateway's discovery", func(context.Context) error {
		typed, _ := w.Gateway.Clients(t)
		for _, gv := range []string{"v1", "apps/v1", flunders.GroupVersion().String(), widgets.GroupVersion().String()} {
			if _, err := typed.Discovery().ServerResourcesForGroupVersion(gv); err != nil {
				return fmt.Errorf("%s: %w", gv, err)
			}
		}
		return nil
	})
	for _, step := range []struct {
		name string
		run  func(*testing.T, *world.World)
	}{
		{"kubectl", kubectl},
		{"kubectl watch", kubectlWatch},
		{"validate", validate},
		{"informers", sharedInformers},
		{"controller-runtime", controllerRuntime},
		{"comes and goes", comesAndGoes},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, w) })
	}
}

// prints fails the test unless kubectl at the gateway prints all of these.
func prints(t *testing.T, w *world.World, want []string, stdin string, args ...string) {
	t.Helper()
	got, err := w.Gateway.TryKubectl(t, stdin, args...)
	if err != nil {
		t.Errorf("%v\n%s", err, got)
		return
	}
	for _, s := range want {
		if !strings.Contains(got, s) {
			t.Errorf("kubectl %s prints:\n%s\nwant %q in it", strings.Join(args, " "), got, s)
		}
	}
}

func refuses(t *testing.T, w *world.World, want []string, stdin string, args ...string) {
	t.Helper()
	out, err := w.Gateway.TryKubectl(t, stdin, args...)
	if err == nil {
		t.Errorf("kubectl %s succeeds: %s; want an error", strings.Join(args, " "), out)
		return
	}
	for _, s := range want {
		if !strings.Contains(out+err.Error(), s) {
			t.Errorf("kubectl %s says %v; want %q in it", strings.Join(args, " "), err, s)
		}
	}
}

func kubectl(t *testing.T, w *world.World) {
	prints(t, w, []string{"flunders", "fischers", "widgets", "deployments", "configmaps"}, "", "api-resources")
	prints(t, w, []string{"wardle.example.com/v1alpha1", "wardle.example.com/v1beta1", "example.xbernetes.dev/v1", "apps/v1"}, "", "api-versions")
	// A definition of a moment ago takes a while to be described, without a gateway too.
	took := wait.Poll(t, time.Minute, "widgets are described", func(context.Context) error {
		_, err := w.Gateway.TryKubectl(t, "", "explain", "widgets.spec.size")
		return err
	})
	t.Logf("widgets were described after %v", took.Round(time.Millisecond))
	prints(t, w, []string{"How large the widget is.", "<integer>"}, "", "explain", "widgets.spec.size")
	prints(t, w, []string{"A name of another flunder or fischer"}, "", "explain", "flunder.spec.reference", "--api-version=wardle.example.com/v1alpha1")
	prints(t, w, []string{"desired pods"}, "", "explain", "deployment.spec.replicas")

	all := widget("first", 1) + "---\n" + flunder("first", "other") + "---\n" + configMap("first", "one")
	prints(t, w, []string{"widget.example.xbernetes.dev/first created", "flunder.wardle.example.com/first created", "configmap/first created"}, all, "apply", "-f", "-")
	prints(t, w, []string{"first unchanged"}, all, "apply", "-f", "-")
	prints(t, w, []string{"widget.example.xbernetes.dev/first", "flunder.wardle.example.com/first", "configmap/first"}, "", "get", "widgets,flunders,configmaps", "-o", "name")
	prints(t, w, []string{"NAME", "first"}, "", "get", "wg")

	// Each is at its own server, and there only.
	if out := w.XB.Kubectl(t, "", "get", "widgets", "-o", "name"); !strings.Contains(out, "first") {
		t.Errorf("xb server has %s", out)
	}
	if out, err := w.Core.TryKubectl(t, "", "get", "widgets"); err == nil {
		t.Errorf("the core server has widgets: %s", out)
	}

	apply := func(manager string, more ...string) []string {
		return append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, more...)
	}
	for _, kind := range []struct {
		resource, one, two string
	}{
		{"widget", widget("applied", 1), widget("applied", 2)},
		{"flunder", flunder("applied", "a"), flunder("applied", "b")},
		{"configmap", configMap("applied", "a"), configMap("applied", "b")},
	} {
		prints(t, w, []string{"serverside-applied"}, kind.one, apply("one")...)
		refuses(t, w, []string{"conflict", `"one"`}, kind.two, apply("two")...)
		prints(t, w, []string{"serverside-applied"}, kind.two, apply("two", "--force-conflicts")...)
		prints(t, w, []string{"serverside-applied (server dry run)"}, kind.one, apply("one", "--force-conflicts", "--dry-run=server")...)
		prints(t, w, []string{"manager: two", "operation: Apply"}, "", "get", kind.resource, "applied", "-o", "yaml", "--show-managed-fields")
		refuses(t, w, []string{"unknown field"}, strings.Replace(strings.Replace(strings.Replace(kind.one, "spec: {", "spec: {colour: red, ", 1), "data: {", "dada: {a: b}\ndata: {", 1), "applied", "wrong", 1), "create", "--validate=strict", "-f", "-")
		prints(t, w, []string{"deleted"}, "", "delete", kind.resource, "applied")
		refuses(t, w, []string{"NotFound", `"applied" not found`}, "", "get", kind.resource, "applied")
	}
	prints(t, w, []string{"deleted"}, "", "delete", "widget/first", "flunder/first", "configmap/first")
	prints(t, w, []string{"admin"}, "", "auth", "whoami")
	prints(t, w, []string{"yes"}, "", "auth", "can-i", "create", "flunders")
}

// kubectlWatch reads `get -w` at the gateway while objects change at the servers.
func kubectlWatch(t *testing.T, w *world.World) {
	for _, kind := range []struct {
		server        *world.Server
		resource, one string
		two, path     string
	}{
		{w.XB, "widgets", widget("watched", 1), widget("watched", 2), "{.spec.size}"},
		{w.Sample, "flunders.v1alpha1.wardle.example.com", flunder("watched", "1"), flunder("watched", "2"), "{.spec.reference}"},
		{w.Core, "configmaps", configMap("watched", "1"), configMap("watched", "2"), "{.data.value}"},
	} {
		kind.server.Kubectl(t, kind.one, "apply", "-f", "-")
		p := process.Spawn(t, nil, "watch-"+kind.resource, []string{"KUBECONFIG=" + w.Gateway.Kubeconfig}, program.Need(t, "kubectl"), "get", kind.resource, "watched", "-w", "--output-watch-events", "-o", `jsonpath={.type}{.object`+kind.path[1:len(kind.path)-1]+`}{"\n"}`)
		want := func(lines ...string) {
			t.Helper()
			wait.Poll(t, time.Minute, kind.resource+" are watched", func(context.Context) error {
				if err := p.Alive(); err != nil {
					return err
				}
				got := slices.DeleteFunc(strings.Split(p.Printed(10), "\n"), func(line string) bool { return strings.HasPrefix(line, "Warning: ") })
				if !slices.Equal(got, lines) {
					return fmt.Errorf("kubectl printed %q; want %q", got, lines)
				}
				return nil
			})
		}
		want("ADDED1")
		kind.server.Kubectl(t, kind.two, "apply", "-f", "-")
		want("ADDED1", "MODIFIED2")
		kind.server.Kubectl(t, "", "delete", kind.resource, "watched")
		want("ADDED1", "MODIFIED2", "DELETED2")
		p.Kill()
	}
}

// validate holds the gateway itself to the conventions, with objects of each server.
func validate(t *testing.T, w *world.World) {
	for _, object := range []string{configMap("any", "a"), flunder("any", "a"), widget("any", 1)} {
		file := filepath.Join(t.TempDir(), "object.yaml")
		world.WriteFile(t, file, object)
		out, err := process.Run(t, nil, nil, "", program.Need(t, "xb"), "gateway", "validate", "--kubeconfig", w.Gateway.Kubeconfig, "--write", "-n", "default", "--object", file)
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		} else {
			lines := strings.Split(strings.TrimSpace(out), "\n")
			t.Log(lines[len(lines)-1])
		}
	}
}

// sharedInformers runs client-go's informers, typed and dynamic, at the gateway.
func sharedInformers(t *testing.T, w *world.World) {
	typed, dyn := w.Gateway.Clients(t)
	core := informers.NewSharedInformerFactory(typed, 0)
	others := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0)
	configMaps := core.Core().V1().ConfigMaps()
	flunderInformer, widgetInformer := others.ForResource(flunders), others.ForResource(widgets)
	synced := []cache.InformerSynced{configMaps.Informer().HasSynced, flunderInformer.Informer().HasSynced, widgetInformer.Informer().HasSynced}
	core.Start(t.Context().Done())
	others.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), synced...) {
		t.Fatal("the informers do not sync")
	}
	for i := range 20 {
		name := fmt.Sprintf("informed-%d", i)
		w.Gateway.Kubectl(t, widget(name, i)+"---\n"+flunder(name, "a")+"---\n"+configMap(name, "a"), "create", "-f", "-")
		if i == 2 {
			break
		}
	}
	see := func(what string, want int) {
		t.Helper()
		wait.Poll(t, time.Minute, what, func(context.Context) error {
			counts := []int{}
			for _, informer := range []cache.SharedIndexInformer{configMaps.Informer(), flunderInformer.Informer(), widgetInformer.Informer()} {
				n := 0
				err := cache.ListAll(informer.GetStore(), labels.Everything(), func(o any) {
					if m, ok := o.(metav1.Object); ok && strings.HasPrefix(m.GetName(), "informed-") {
						n++
					}
				})
				if err != nil {
					return err
				}
				counts = append(counts, n)
			}
			if !slices.Equal(counts, []int{want, want, want}) {
				return fmt.Errorf("the informers have %v objects; want %d each", counts, want)
			}
			return nil
		})
	}
	see("what is created is in the informers", 3)
	w.Gateway.Kubectl(t, "", "delete", "widget/informed-0", "flunder/informed-0", "configmap/informed-0")
	see("what is deleted goes from the informers", 2)
	w.Gateway.Kubectl(t, "", "delete", "widget/informed-1", "flunder/informed-1", "configmap/informed-1", "widget/informed-2", "flunder/informed-2", "configmap/informed-2")
	see("all is gone", 0)
}

// controllerRuntime runs a controller-runtime program, unmodified, that makes a
// ConfigMap at one server for every widget at another.
func controllerRuntime(t *testing.T, w *world.World) {
	program := filepath.Join(t.TempDir(), "controller")
	if out, err := exec.Command("go", "build", "-o", program, "./controller").CombinedOutput(); err != nil {
		t.Fatalf("build the controller: %v\n%s", err, out)
	}
	process.Spawn(t, nil, "controller", []string{"KUBECONFIG=" + w.Gateway.Kubeconfig}, program)
	w.Gateway.Kubectl(t, widget("controlled", 7), "create", "-f", "-")
	_, dyn := w.Gateway.Clients(t)
	made := func(size int64) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := dyn.Resource(widgets).Namespace("default").Get(ctx, "controlled", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if have, _, _ := unstructured.NestedInt64(got.Object, "status", "size"); have != size {
				return fmt.Errorf("its status says size %d", have)
			}
			return nil
		}
	}
	wait.Poll(t, time.Minute, "the widget has a status", made(7))
	if got := w.Core.Kubectl(t, "", "get", "configmap", "controlled", "-o", "jsonpath={.data.size}"); got != "7" {
		t.Errorf("the ConfigMap at the core server says size %q", got)
	}
	w.Gateway.Kubectl(t, "", "patch", "widget", "controlled", "--type=merge", "-p", `{"spec":{"size":8}}`)
	wait.Poll(t, time.Minute, "the widget's status follows", made(8))
	// The finalizer has the ConfigMap removed first.
	w.Gateway.Kubectl(t, "", "delete", "widget", "controlled", "--timeout=60s")
	if out, err := w.Core.TryKubectl(t, "", "get", "configmap", "controlled"); err == nil {
		t.Errorf("the ConfigMap is still there: %s", out)
	}
}

// appearsWithin is what is promised of a server that is added or removed while
// the gateway runs.
const appearsWithin = 2 * time.Second

// comesAndGoes removes a server and adds it again, while the gateway runs, and
// measures how long it takes until callers see it.
func comesAndGoes(t *testing.T, w *world.World) {
	_, dyn := w.Gateway.Clients(t)
	typed, _ := w.Gateway.Clients(t)
	served := func(ctx context.Context) error {
		if _, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		groups, err := typed.Discovery().ServerGroups()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == flunders.Group }) {
			return errors.New("discovery does not have the group")
		}
		return nil
	}
	gone := func(ctx context.Context) error {
		groups, err := typed.Discovery().ServerGroups()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == flunders.Group }) {
			return errors.New("discovery still has the group")
		}
		if _, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return errors.New("it still answers")
		}
		return nil
	}
	for range 5 {
		w.Write(t, w.CoreEntry(t), w.XBEntry(t))
		out := wait.Poll(t, appearsWithin, "the server is gone", gone)
		w.Write(t, w.CoreEntry(t), w.SampleEntry(t), w.XBEntry(t))
		in := wait.Poll(t, appearsWithin, "the server is back", served)
		t.Logf("removed after %v, added after %v", out.Round(time.Millisecond), in.Round(time.Millisecond))
	}
}
