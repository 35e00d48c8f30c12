package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// kubectlInPath is the environment in which a shell finds kubectl.
func kubectlInPath(t testing.TB) string {
	t.Helper()
	dir := t.TempDir() // with nothing else in it
	if err := os.Symlink(program.Need(t, "kubectl"), filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")
}

// widgets is the resource of the CRD that most tests use.
var widgets = schema.GroupVersionResource{Group: "example.xbernetes.dev", Version: "v1", Resource: "widgets"}

// widgetCRD has a schema, a default, validation by CEL, a status and a scale
// subresource, printer columns, short names and a selectable field.
const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.xbernetes.dev
spec:
  group: example.xbernetes.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wg], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
    selectableFields:
    - jsonPath: .spec.color
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        description: A widget, which a vendor makes for a tenant.
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 0, maximum: 100000, default: 1, description: How large the widget is.}
              color: {type: string, default: grey}
              note: {type: string}
              tags: {type: array, items: {type: string}}
            x-kubernetes-validations:
            - rule: self.color != 'pink' || self.size > 3
              message: a pink widget is larger than 3
          status:
            type: object
            properties:
              size: {type: integer}
              phase: {type: string}
              owner: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    message: {type: string}
                    observedGeneration: {type: integer}
                    lastTransitionTime: {type: string, format: date-time}
`

// widgetFile is a file that holds the CRD.
func widgetFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte(widgetCRD), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newWidget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"size": size},
	}}
}

// field reads a field of an object, nil if it is not there.
func field(obj *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return v
}

func setField(obj *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(obj.Object, value, path...); err != nil {
		panic(err)
	}
}

// serves waits until a resource can be listed and discovered: a CRD that was
// made a moment ago takes a while to be served.
func (s *server) serves(t testing.TB, resource schema.GroupVersionResource) {
	t.Helper()
	typed, dyn := s.clients(t)
	wait.Poll(t, 60*time.Second, s.name+"'s server serves "+resource.Resource, func(ctx context.Context) error {
		if _, err := dyn.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		_, all, err := typed.Discovery().ServerGroupsAndResources()
		for _, list := range all {
			if list.GroupVersion == resource.GroupVersion().String() && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }) {
				return nil
			}
		}
		return errors.Join(errors.New("it is not in the discovery"), err)
	})
}

// awaitObject waits until an object satisfies want, and returns it.
func awaitObject(t testing.TB, objects dynamic.ResourceInterface, name, what string, want func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	var obj *unstructured.Unstructured
	wait.Poll(t, 60*time.Second, what, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if obj, err = objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !want(obj) {
			shown, _ := json.Marshal(obj)
			return fmt.Errorf("it is %s", shown)
		}
		return nil
	})
	return obj
}
