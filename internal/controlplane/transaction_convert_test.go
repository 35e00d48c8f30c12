package controlplane

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// TestTransactionOfOneConverts: writes in a version that is not the stored one go through the
// conversion webhook of their definition in a transaction as they do alone, errors included.
func TestTransactionOfOneConverts(t *testing.T) {
	p := servers(t)
	barrels := defineBarrels(t, p.a)
	const all = "/apis/test.xbernetes.dev/v2/namespaces/$NS/barrels"
	barrel := func(rest string) string {
		return `{"apiVersion":"test.xbernetes.dev/v2","kind":"Barrel","metadata":{"name":"one","namespace":"$NS"` + rest + `}`
	}
	one := all + "/one"
	patch := func(as v1alpha1.PatchType, body string) attempt {
		return attempt{verb: v1alpha1.Patch, path: one, kind: "Barrel", patchType: as, body: body}
	}
	requests := []attempt{
		{verb: v1alpha1.Create, path: all, body: barrel(`},"spec":{"millilitres":2000}`)},
		{verb: v1alpha1.Create, path: all, body: barrel(`},"spec":{"millilitres":2000}`)},
		{verb: v1alpha1.Update, path: one, body: barrel(`,"resourceVersion":"$RV"},"spec":{"millilitres":3000}`)},
		{verb: v1alpha1.Update, path: one, body: barrel(`,"resourceVersion":"$RV"},"spec":{"millilitres":1}`)}, // no whole litre
		patch(v1alpha1.MergePatch, `{"spec":{"millilitres":4000}}`),
		patch(v1alpha1.JSONPatch, `[{"op":"test","path":"/spec/millilitres","value":4000},{"op":"replace","path":"/spec/millilitres","value":5000}]`),
		patch(v1alpha1.JSONPatch, `[{"op":"test","path":"/spec/litres","value":5}]`),
		{verb: v1alpha1.Apply, path: one, query: "fieldManager=shop&force=true", body: barrel(`},"spec":{"millilitres":6000}`),
			more: func(o *v1alpha1.Operation) { o.FieldManager, o.Force = "shop", true }},
		{verb: v1alpha1.Delete, path: one, kind: "Barrel", body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
	}
	alone, within := namespace(t, p.a), namespace(t, p.a)
	sameOutcomes(t, p.a, requests[:len(requests)-1], alone, within, asIs)
	for _, ns := range []string{alone, within} {
		stored, err := p.a.dynamic.Resource(barrels).Namespace(ns).Get(t.Context(), "one", metav1.GetOptions{})
		must(t, err)
		if litres, _, _ := unstructured.NestedInt64(stored.Object, "spec", "litres"); litres != 6 {
			t.Errorf("in the stored version, the barrel in %s is %v, want 6 litres", ns, stored.Object["spec"])
		}
	}
	sameOutcomes(t, p.a, requests[len(requests)-1:], alone, within, asIs)
}

// defineBarrels defines a kind with two versions, and returns the stored one: v1 counts in
// litres, v2 in millilitres. A webhook converts, and refuses what is no whole litre.
func defineBarrels(t *testing.T, s *server) schema.GroupVersionResource {
	t.Helper()
	webhook := httptest.NewTLSServer(http.HandlerFunc(convertBarrels)) // until the process ends: the servers convert what is left
	version := func(name, field string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{field: {Type: "integer"}}}
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
		}}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "barrels.test.xbernetes.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.xbernetes.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "barrels", Singular: "barrel", Kind: "Barrel"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", "litres", true), version("v2", "millilitres", false)},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{
					URL: &webhook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
				},
			}},
		},
	}
	client, err := apiextensionsclientset.NewForConfig(s.config)
	must(t, err)
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{})
	must(t, err)
	stored := schema.GroupVersionResource{Group: "test.xbernetes.dev", Version: "v1", Resource: "barrels"}
	for _, version := range []string{"v1", "v2"} {
		served(t, stored.GroupResource().WithVersion(version), s)
	}
	return stored
}

// convertBarrels answers a ConversionReview.
func convertBarrels(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, from := range review.Request.Objects {
		to, err := convertBarrel(from.Raw, review.Request.DesiredAPIVersion)
		if err != nil {
			answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: to})
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the server asks again if it has no answer
}

func convertBarrel(text []byte, version string) (*unstructured.Unstructured, error) {
	barrel := new(unstructured.Unstructured)
	if err := barrel.UnmarshalJSON(text); err != nil || barrel.GetAPIVersion() == version {
		return barrel, err
	}
	barrel.SetAPIVersion(version)
	spec, _ := barrel.Object["spec"].(map[string]any)
	if litres, ok := spec["litres"].(int64); ok {
		barrel.Object["spec"] = map[string]any{"millilitres": 1000 * litres}
	}
	if millilitres, ok := spec["millilitres"].(int64); ok {
		if millilitres%1000 != 0 {
			return nil, fmt.Errorf("%d millilitres are no whole litre", millilitres)
		}
		barrel.Object["spec"] = map[string]any{"litres": millilitres / 1000}
	}
	return barrel, nil
}
