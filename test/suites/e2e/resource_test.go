package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/dynamic"
)

// conversion is by Kubernetes' own webhook: hostPort in v1 is host and port in v2.
func (s *site) conversion() *apiextensionsv1.CustomResourceConversion {
	url := s.webhooks.url + "/crdconvert"
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: s.webhooks.ca},
			ConversionReviewVersions: []string{"v1", "v1beta1"},
		},
	}
}

// fieldsOf are an object's own, at either version.
func fieldsOf(object *unstructured.Unstructured) map[string]any {
	fields := maps.Clone(object.Object)
	for _, k := range []string{"apiVersion", "kind", "metadata"} {
		delete(fields, k)
	}
	return fields
}

var (
	inV1 = map[string]any{"hostPort": "localhost:8080"}
	inV2 = map[string]any{"host": "localhost", "port": "8080"}
)

func convert(t *testing.T, s *site) {
	d := s.define(t, s.conversion(), version("v1", true, "hostPort"), version("v2", false, "host", "port"))
	if _, err := d.at(s.made, s.namespace, "v1").Create(t.Context(), d.instance("v1", "one", inV1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := d.at(s.asked, s.namespace, "v2").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(inV2, fieldsOf(got)); diff != "" {
		t.Errorf("the object at v2 (-want +got):\n%s", diff)
	}
}

// convertMixedList: one object is stored at v1, the other at v2.
func convertMixedList(t *testing.T, s *site) {
	d := s.define(t, s.conversion(), version("v1", true, "hostPort"), version("v2", false, "host", "port"))
	if _, err := d.at(s.made, s.namespace, "v1").Create(t.Context(), d.instance("v1", "one", inV1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.made.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), d.name, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an object is made while the server changes over", func(ctx context.Context) error {
		_, err := d.at(s.made, s.namespace, "v1").Create(ctx, d.instance("v1", "two", inV1), metav1.CreateOptions{})
		return err
	})
	for at, want := range map[string]map[string]any{"v1": inV1, "v2": inV2} {
		list, err := d.at(s.asked, s.namespace, at).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]map[string]any{}
		for _, object := range list.Items {
			got[object.GetName()] = fieldsOf(&object)
			if object.GetAPIVersion() != d.group+"/"+at {
				t.Errorf("a list at %s has %s at %s", at, object.GetName(), object.GetAPIVersion())
			}
		}
		if diff := cmp.Diff(map[string]map[string]any{"one": want, "two": want}, got); diff != "" {
			t.Errorf("the list at %s (-want +got):\n%s", at, diff)
		}
	}
}

// selectByField: lists and watches by the fields of either version, of objects
// that come, change and go.
func selectByField(t *testing.T, s *site) {
	v1, v2 := version("v1", true, "hostPort"), version("v2", false, "host", "port")
	v1.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".hostPort"}}
	v2.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".host"}, {JSONPath: ".port"}}
	d := s.define(t, s.conversion(), v1, v2)

	selections := []struct {
		version, selector string
		want              []string // of the objects made
	}{
		{"v2", "host=host1", []string{"a", "b"}},
		{"v2", "host=host1,port=80", []string{"a"}},
		{"v1", "hostPort=host1:80", []string{"a"}},
		{"v1", "hostPort=host1:8080", []string{"b"}},
	}
	var watches []watch.Interface
	for _, c := range selections {
		w, err := d.at(s.asked, s.namespace, c.version).Watch(t.Context(), metav1.ListOptions{FieldSelector: c.selector})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches = append(watches, w)
	}
	objects := d.at(s.made, s.namespace, "v2")
	for name, fields := range map[string]map[string]any{"a": {"host": "host1", "port": "80"}, "b": {"host": "host1", "port": "8080"}, "c": {"host": "host2"}} {
		if _, err := objects.Create(t.Context(), d.instance("v2", name, fields), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range selections {
		if got := namesBy(t, d.at(s.asked, s.namespace, c.version), c.selector); !slices.Equal(got, c.want) {
			t.Errorf("a list at %s of %s has %v; want %v", c.version, c.selector, got, c.want)
		}
		awaitEvents(t, watches[i], watch.Added, c.want)
	}
	if err := objects.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "host=host1,port=80"}); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Patch(t.Context(), "b", types.MergePatchType, []byte(`{"host":"host2"}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, c := range selections {
		if got := namesBy(t, d.at(s.asked, s.namespace, c.version), c.selector); len(got) > 0 {
			t.Errorf("a list at %s of %s has %v, which are gone or changed", c.version, c.selector, got)
		}
		awaitEvents(t, watches[i], watch.Deleted, c.want)
	}
}

// namesBy are the names that a list has by a field selector.
func namesBy(t *testing.T, objects dynamic.ResourceInterface, selector string) []string {
	t.Helper()
	list, err := objects.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, object := range list.Items {
		names = append(names, object.GetName())
	}
	return names
}

// awaitEvents takes from a watch one event of that type for each of the names,
// and fails at any other.
func awaitEvents(t *testing.T, w watch.Interface, want watch.EventType, names []string) {
	t.Helper()
	late := time.After(time.Minute)
	for missing := slices.Clone(names); len(missing) > 0; {
		select {
		case e, open := <-w.ResultChan():
			object, ok := e.Object.(*unstructured.Unstructured)
			if !open || !ok {
				t.Fatalf("a watch ended with %v; want %s of %v", e, want, missing)
			}
			i := slices.Index(missing, object.GetName())
			if e.Type != want || i < 0 {
				t.Fatalf("a watch shows %s of %s; want %s of %v", e.Type, object.GetName(), want, missing)
			}
			missing = slices.Delete(missing, i, i+1)
		case <-late:
			t.Fatalf("a watch does not show %s of %v", want, missing)
		}
	}
}

const chunked = 400 // objects

// fill makes Secrets with numbers for names.
func fill(t *testing.T, s *site) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(20)
	for i := range chunked {
		g.Go(func() error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(i), Labels: map[string]string{"chunked": "yes"}}}
			_, err := s.made.kube.CoreV1().Secrets(s.namespace).Create(t.Context(), secret, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func secretName(i int) string { return fmt.Sprintf("secret-%04d", i) }

// page reads a page, which must continue with the secret of number found, and
// says how many there are.
func page(t *testing.T, s *site, limit int64, token string, found int) *corev1.SecretList {
	t.Helper()
	list, err := s.asked.kube.CoreV1().Secrets(s.namespace).List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
	if err != nil {
		t.Fatal(err)
	}
	for i, secret := range list.Items {
		if secret.Name != secretName(found+i) {
			t.Fatalf("a page continues with %s; want %s", secret.Name, secretName(found+i))
		}
	}
	found += len(list.Items)
	remaining := list.RemainingItemCount
	switch {
	case int64(len(list.Items)) > limit:
		t.Errorf("a page of at most %d has %d", limit, len(list.Items))
	case list.Continue == "" && (remaining != nil || found != chunked):
		t.Errorf("the last page ends at %d of %d, and %v remain", found, chunked, remaining)
	case list.Continue != "" && (remaining == nil || int(*remaining)+found != chunked):
		t.Errorf("a page ends at %d of %d, and %v remain", found, chunked, remaining)
	}
	return list
}

// readOn reads the pages from token on, which must be of one state.
func readOn(t *testing.T, s *site, limit int64, list *corev1.SecretList, found int) {
	t.Helper()
	for list.Continue != "" {
		next := page(t, s, limit, list.Continue, found)
		if next.ResourceVersion != list.ResourceVersion {
			t.Errorf("a page is of %s, the one before of %s", next.ResourceVersion, list.ResourceVersion)
		}
		found += len(next.Items)
		list = next
	}
}

func listInChunks(t *testing.T, s *site) {
	fill(t, s)
	for range 3 {
		list := page(t, s, 17, "", 0)
		readOn(t, s, 17, list, len(list.Items))
	}
	if all := page(t, s, chunked+1, "", 0); len(all.Items) != chunked {
		t.Errorf("a list has %d of %d", len(all.Items), chunked)
	}
}

// listPastCompaction reads a second page until its state is compacted away,
// which takes as long as an API server's compaction does: five minutes, or twice
// that.
func listPastCompaction(t *testing.T, s *site) {
	fill(t, s)
	const limit = chunked / 10
	first := page(t, s, limit, "", 0)
	var token string
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Second, 2*storagebackend.DefaultCompactInterval+time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := s.asked.kube.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{Limit: limit, Continue: first.Continue})
		status, ok := err.(apierrors.APIStatus)
		if !apierrors.IsResourceExpired(err) || !ok {
			return false, err
		}
		token = status.Status().Continue
		return true, nil
	})
	if err != nil || token == "" {
		t.Fatalf("after %s the list gets %v, with the token %s; want it expired, with a token to go on", first.ResourceVersion, err, strconv.Quote(token))
	}
	second := page(t, s, limit, token, limit)
	if second.ResourceVersion == first.ResourceVersion {
		t.Errorf("the second page is of %s too, which is gone", first.ResourceVersion)
	}
	readOn(t, s, limit, second, 2*limit)
}
