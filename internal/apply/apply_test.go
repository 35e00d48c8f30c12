package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

// kinds knows ConfigMaps and Namespaces.
func kinds() Server {
	v1 := schema.GroupVersion{Version: "v1"}
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(v1.WithKind("Namespace"), meta.RESTScopeRoot)
	return Server{Mapper: m, Namespace: "given"}
}

// folder has files of these names and texts.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	one  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
	two  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two","namespace":"other"}}`
	list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: three}}\n- {apiVersion: v1, kind: Namespace, metadata: {name: shop, namespace: ignored}}\n"
)

// TestRead: files, folders, several documents, lists and standard input; namespaces come
// first, and what says no namespace gets the one given.
func TestRead(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "# nothing\n---\n" + one + "---\n" + two, "b.json": two, "c.yml": list, "d.txt": "no manifest", "sub/e.yaml": one})
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"a folder":               {Options{Files: []string{dir}}, "[/shop given/one other/two other/two given/three]"},
		"with folders in it":     {Options{Files: []string{dir}, Recursive: true}, "[/shop given/one other/two other/two given/three given/one]"},
		"a file and the input":   {Options{Files: []string{filepath.Join(dir, "b.json"), "-"}, In: strings.NewReader(list)}, "[/shop other/two given/three]"},
		"a file that is no yaml": {Options{Files: []string{filepath.Join(dir, "d.txt")}}, "read "},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			objects, err := read(c.o, kinds())
			if err != nil {
				got = err.Error()
			} else {
				var names []string
				for _, o := range objects {
					names = append(names, o.GetNamespace()+"/"+o.GetName())
				}
				got = fmt.Sprint(names)
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestReadRefuses: one sentence that names the file.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"kind: ConfigMap\nmetadata: {name: x}":           "an object has no apiVersion or no kind",
		"apiVersion: v1\nkind: ConfigMap":                "a ConfigMap has no metadata.name",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: x}": `Pod "x": the server serves no kind Pod in v1`,
		"apiVersion: v9\nkind: Pod\nmetadata: {name: x}": `Pod "x": the server serves no kind Pod in v9`,
		"- a\n- b":  "",
		"# nothing": "the files hold no objects",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ": "",
	} {
		dir := folder(t, map[string]string{"x.yaml": text})
		_, err := read(Options{Files: []string{dir}}, kinds())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestReadRefusesWhatIsTooLong: a file is read whole or not at all. What is cut off would be
// deleted, if it belonged to an apply set.
func TestReadRefusesWhatIsTooLong(t *testing.T) {
	long := one + "---\n# " + strings.Repeat("x", maxManifest) + "\n---\n" + two
	dir := folder(t, map[string]string{"x.yaml": long})
	for name, o := range map[string]Options{"a file": {Files: []string{dir}}, "the input": {Files: []string{"-"}, In: strings.NewReader(long)}} {
		if objects, err := read(o, kinds()); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
			t.Errorf("%s: %d objects, %v; want that it is too long", name, len(objects), err)
		}
	}
}

// TestID is the example that kubectl's own tests have.
func TestID(t *testing.T) {
	if got, want := idOf("test", "my-set"), "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1"; got != want {
		t.Errorf("the ID is %s, want %s", got, want)
	}
}

// TestDiff: what changes is shown, but for what the server sets and the values of Secrets.
func TestDiff(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, resourceVersion: \"%d\", managedFields: [%d]}\ndata: {same: c2FtZQ==, other: %s}\n"
	got, err := diff("secret/s", object(fmt.Sprintf(secret, 1, 1, "b2xk")), object(fmt.Sprintf(secret, 2, 2, "bmV3")))
	if want := `--- secret/s (now)
+++ secret/s (after)
@@ -1,6 +1,6 @@
 apiVersion: v1
 data:
-  other: (hidden, now)
+  other: (hidden, after)
   same: (hidden)
 kind: Secret
 metadata:
`; got != want || err != nil {
		t.Errorf("got\n%s\nwant\n%s (%v)", got, want, err)
	}
	for name, o := range map[string][2]*unstructured.Unstructured{"created": {nil, object(one)}, "deleted": {object(one), nil}} {
		got, err := diff("configmap/one", o[0], o[1])
		if sign := map[string]string{"created": "+", "deleted": "-"}[name]; !strings.Contains(got, "\n"+sign+"kind: ConfigMap\n") || err != nil {
			t.Errorf("%s: got\n%s (%v)", name, got, err)
		}
	}
}

// TestWait: it waits for what the status lacks, and says it when time is over.
func TestWait(t *testing.T) {
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "shop", "generation": int64(1)}, "spec": map[string]any{"replicas": int64(1)},
	}}
	to := kinds()
	to.Mapper.(*meta.DefaultRESTMapper).Add(schema.GroupVersion{Group: "apps", Version: "v1"}.WithKind("Deployment"), meta.RESTScopeNamespace)
	api := fake.NewSimpleDynamicClient(runtime.NewScheme(), deployment)
	to.API = api
	applied := Report{Objects: []Done{
		{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", Change: "created"},
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old", Change: "deleted"},
	}}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	var said strings.Builder
	err := Wait(ctx, to, applied, &said)
	if err == nil || !strings.Contains(err.Error(), "this is not ready: deployment/web: ") || said.String() != "configmap/old is gone\n" {
		t.Errorf("a deployment without a status: %v, and said %q", err, said.String())
	}
	ready := deployment.DeepCopy()
	ready.Object["status"] = map[string]any{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1),
		"conditions": []any{map[string]any{"type": "Available", "status": "True"}}}
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	if _, err := api.Resource(resource).Namespace("shop").Update(t.Context(), ready, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	said.Reset()
	if err := Wait(t.Context(), to, applied, &said); err != nil || said.String() != "deployment/web is ready\nconfigmap/old is gone\n" {
		t.Errorf("a deployment that is ready: %v, and said %q", err, said.String())
	}
}
