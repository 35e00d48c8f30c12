package controlplane

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/transaction/client"
	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// attempt is one request in both ways that there are to send it. In its texts $NS stands
// for a namespace, $CLUSTER for a name that is unique in the cluster, and $RV for the version that the object has.
type attempt struct {
	verb        v1alpha1.Verb
	path        string // of the plain request; objects of the transaction are named by kind
	kind        string // of the object, if targetOf does not know it
	query       string // of the plain request
	body        string // the object or the patch
	patchType   v1alpha1.PatchType
	subresource string
	more        func(*v1alpha1.Operation)
}

var methods = map[v1alpha1.Verb]string{
	v1alpha1.Create: http.MethodPost, v1alpha1.Update: http.MethodPut, v1alpha1.Patch: http.MethodPatch,
	v1alpha1.Apply: http.MethodPatch, v1alpha1.Delete: http.MethodDelete,
}

var contentTypes = map[v1alpha1.PatchType]string{
	v1alpha1.MergePatch: "application/merge-patch+json", v1alpha1.JSONPatch: "application/json-patch+json",
	v1alpha1.StrategicPatch: "application/strategic-merge-patch+json",
}

// outcome is an answer without what differs from one time to the next.
type outcome struct {
	code     int
	body     string
	warnings []string
}

// TestTransactionOfOneIsThePlainRequest: for each verb, on built-in and custom kinds, a
// transaction of one operation gives the object, the errors and the warnings of the
// plain request, byte by byte but for versions, times and UIDs.
func TestTransactionOfOneIsThePlainRequest(t *testing.T) {
	p := servers(t)
	crates := kind(t, p.a, "crate")
	for name, requests := range plainRequests(crates.GroupVersion().String()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sameOutcomes(t, p.a, requests, namespace(t, p.a), namespace(t, p.a), asIs)
		})
	}
}

// sameOutcomes sends requests alone in one namespace, and each as a transaction of one in
// another, and ends the test where the outcomes differ in more than what but takes from a
// body. It returns the outcomes.
func sameOutcomes(t *testing.T, s *server, requests []attempt, alone, within string, but func(t *testing.T, body string) string) (all []outcome) {
	t.Helper()
	for i, r := range requests {
		want, got := plain(t, s, r, alone), single(t, s, r, within)
		want.body, got.body = but(t, want.body), but(t, got.body)
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Fatalf("request %d, %s %s:\nalone:                %d %s %q\nwithin a transaction: %d %s %q", i, r.verb, r.path,
				want.code, want.body, want.warnings, got.code, got.body, got.warnings)
		}
		all = append(all, want)
	}
	return all
}

func asIs(_ *testing.T, body string) string { return body }

// plainRequests are sequences of requests for one object, some of which fail.
func plainRequests(custom string) map[string][]attempt {
	maps, one := "/api/v1/namespaces/$NS/configmaps", "/api/v1/namespaces/$NS/configmaps/one"
	cm := func(rest string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"$NS"` + rest + `}`
	}
	crates, crate := "/apis/"+custom+"/namespaces/$NS/crates", "/apis/"+custom+"/namespaces/$NS/crates/one"
	cr := func(rest string) string {
		return `{"apiVersion":"` + custom + `","kind":"Crate","metadata":{"name":"one","namespace":"$NS"` + rest + `}`
	}
	manager := func(name string, force bool) func(*v1alpha1.Operation) {
		return func(o *v1alpha1.Operation) { o.FieldManager, o.Force = name, force }
	}
	strict := func(level string) func(*v1alpha1.Operation) {
		return func(o *v1alpha1.Operation) { o.FieldValidation = level }
	}
	return map[string][]attempt{
		"configmaps": {
			{verb: v1alpha1.Create, path: maps, body: cm(`,"labels":{"a":"b"}},"data":{"k":"v"}`)},
			{verb: v1alpha1.Create, path: maps, body: cm(`},"data":{"k":"v"}`)},
			{verb: v1alpha1.Create, path: maps, body: cm(`,"labels":{"not ok":"b"}}`)},
			{verb: v1alpha1.Create, path: maps, body: cm(`},"dta":{}`), query: "fieldValidation=Strict", more: strict("Strict")},
			{verb: v1alpha1.Update, path: one, body: cm(`},"dta":{},"data":{"k":"w"}`), query: "fieldValidation=Warn", more: strict("Warn")},
			{verb: v1alpha1.Update, path: one, body: cm(`,"resourceVersion":"1"},"data":{"k":"x"}`)},
			{verb: v1alpha1.Update, path: one, body: cm(`,"resourceVersion":"$RV"},"data":{"k":"x"}`)},
			{verb: v1alpha1.Update, path: one, body: cm(`},"data":{"k":"x"}`)}, // changes nothing
			{verb: v1alpha1.Update, path: maps + "/two", body: strings.Replace(cm(`}`), "one", "two", 1)},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.MergePatch, body: `{"data":{"k":null,"l":"1"}}`},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.StrategicPatch, body: `{"data":{"m":"2"}}`},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.JSONPatch, body: `[{"op":"replace","path":"/data/m","value":"3"}]`},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.JSONPatch, body: `[{"op":"test","path":"/data/m","value":"4"}]`},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.JSONPatch, body: `{"op":"test"}`},
			{verb: v1alpha1.Patch, path: maps + "/two", patchType: v1alpha1.MergePatch, body: `{}`},
			{verb: v1alpha1.Apply, path: one, query: "fieldManager=shop", more: manager("shop", false), body: cm(`},"data":{"m":"5"}`)},
			{verb: v1alpha1.Apply, path: one, query: "fieldManager=shop&force=true", more: manager("shop", true), body: cm(`},"data":{"m":"5"}`)},
			{verb: v1alpha1.Apply, path: one, body: cm(`},"data":{"m":"5"}`)},
			{verb: v1alpha1.Delete, path: one, body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"another"}}`,
				more: func(o *v1alpha1.Operation) { o.Preconditions = &v1alpha1.Preconditions{UID: "another"} }},
			{verb: v1alpha1.Delete, path: one, body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
			{verb: v1alpha1.Delete, path: one, body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
			{verb: v1alpha1.Apply, path: one, query: "fieldManager=shop", more: manager("shop", false), body: cm(`},"data":{"m":"5"}`)},
		},
		"generated names": {
			{verb: v1alpha1.Create, path: maps, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"one-","namespace":"$NS"}}`},
		},
		"custom": {
			{verb: v1alpha1.Create, path: crates, body: cr(`},"spec":{"size":1},"status":{"seen":true},"pruned":{}`)},
			{verb: v1alpha1.Create, path: crates, body: cr(`,"labels":{"not ok":"b"}},"spec":{}`)},
			{verb: v1alpha1.Update, path: crate, body: cr(`},"spec":{"size":2}`)}, // no resourceVersion
			{verb: v1alpha1.Update, path: crate, body: cr(`,"resourceVersion":"$RV"},"spec":{"size":2}`)},
			{verb: v1alpha1.Update, path: crate + "/status", subresource: "status", body: cr(`,"resourceVersion":"$RV"},"status":{"seen":false}`)},
			{verb: v1alpha1.Patch, path: crate, patchType: v1alpha1.StrategicPatch, body: `{"spec":{"size":3}}`},
			{verb: v1alpha1.Patch, path: crate, patchType: v1alpha1.MergePatch, body: `{"spec":{"size":3},"status":{"seen":true}}`},
			{verb: v1alpha1.Patch, path: crate + "/status", subresource: "status", patchType: v1alpha1.MergePatch, body: `{"status":{"seen":true}}`},
			{verb: v1alpha1.Apply, path: crate, query: "fieldManager=shop", more: manager("shop", false), body: cr(`},"spec":{"size":4}`)},
			{verb: v1alpha1.Apply, path: crate, query: "fieldManager=shop&force=true", more: manager("shop", true), body: cr(`},"spec":{"size":4}`)},
			{verb: v1alpha1.Delete, path: crate, body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
		},
		"finalizers": {
			{verb: v1alpha1.Create, path: maps, body: cm(`,"finalizers":["test.xbernetes.dev/held"]}`)},
			{verb: v1alpha1.Delete, path: one, query: "propagationPolicy=Background", body: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`,
				more: func(o *v1alpha1.Operation) { o.PropagationPolicy = metav1.DeletePropagationBackground }},
			{verb: v1alpha1.Patch, path: one, patchType: v1alpha1.MergePatch, body: `{"metadata":{"finalizers":null}}`},
		},
		"secrets": {
			{verb: v1alpha1.Create, path: "/api/v1/namespaces/$NS/secrets", body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one","namespace":"$NS"},"stringData":{"a":"b"},"immutable":true}`},
			{verb: v1alpha1.Patch, path: "/api/v1/namespaces/$NS/secrets/one", patchType: v1alpha1.MergePatch, body: `{"stringData":{"a":"c"}}`},
			{verb: v1alpha1.Delete, path: "/api/v1/namespaces/$NS/secrets/one", body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
		},
		"roles": {
			{verb: v1alpha1.Create, path: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/roles", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"one","namespace":"$NS"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`},
			{verb: v1alpha1.Create, path: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/roles", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"two","namespace":"$NS"},"rules":[{"verbs":[]}]}`},
		},
		"cluster scope": {
			{verb: v1alpha1.Create, path: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$CLUSTER"}}`},
			{verb: v1alpha1.Patch, path: "/api/v1/namespaces/$CLUSTER", patchType: v1alpha1.StrategicPatch, body: `{"metadata":{"labels":{"a":"b"}}}`},
			{verb: v1alpha1.Delete, path: "/api/v1/namespaces/$CLUSTER", body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
			{verb: v1alpha1.Create, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wrong"},"spec":{"group":"x.example","scope":"Cluster","names":{"kind":"A","plural":"as"},"versions":[]}}`},
		},
		"immortal": {
			{verb: v1alpha1.Delete, path: "/api/v1/namespaces/default", body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
		},
	}
}

// filled fills in what a text stands for.
func filled(text, ns, version string) string {
	return strings.NewReplacer("$NS", ns, "$CLUSTER", ns+"-c", "$RV", version).Replace(text)
}

// versionNow reads the version of the object that r is about.
func versionNow(t *testing.T, s *server, r attempt, ns string) string {
	if !strings.Contains(r.body, "$RV") {
		return ""
	}
	raw, err := s.client.CoreV1().RESTClient().Get().AbsPath(strings.TrimSuffix(filled(r.path, ns, ""), "/status")).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object.ResourceVersion
}

// plain sends r by itself.
func plain(t *testing.T, s *server, r attempt, ns string) outcome {
	version := versionNow(t, s, r, ns)
	target, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	target.Path, target.RawQuery = filled(r.path, ns, ""), r.query
	q, err := http.NewRequestWithContext(t.Context(), methods[r.verb], target.String(), strings.NewReader(filled(r.body, ns, version)))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", rest.DefaultKubernetesUserAgent())
	if r.verb == v1alpha1.Patch {
		q.Header.Set("Content-Type", contentTypes[r.patchType])
	}
	if r.verb == v1alpha1.Apply {
		q.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	c, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	o := outcome{code: resp.StatusCode, body: alike(t, body.Bytes(), ns)}
	warnings, _ := utilnet.ParseWarningHeaders(resp.Header.Values("Warning"))
	for _, w := range warnings {
		o.warnings = append(o.warnings, w.Text)
	}
	return o
}

// single sends r as a transaction of one operation.
func single(t *testing.T, s *server, r attempt, ns string) outcome {
	version := versionNow(t, s, r, ns)
	body := &runtime.RawExtension{Raw: []byte(filled(r.body, ns, version))}
	o := v1alpha1.Operation{Verb: r.verb, Subresource: r.subresource, PatchType: r.patchType}
	switch r.verb {
	case v1alpha1.Patch, v1alpha1.Delete:
		o.Target = targetOf(filled(r.path, ns, ""))
		o.Target.Kind = cmp.Or(r.kind, o.Target.Kind)
		if r.verb == v1alpha1.Patch {
			o.Patch = body
		}
	default:
		o.Object = body
	}
	if r.more != nil {
		r.more(&o)
	}
	c, err := client.New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.Do(t.Context(), o)
	if err != nil {
		var told *apierrors.StatusError
		if !errors.As(err, &told) {
			t.Fatal(err)
		}
		return outcome{code: int(told.ErrStatus.Code), body: alike(t, withoutPlace(t, told.ErrStatus), ns)}
	}
	result := status.Results[0]
	return outcome{int(result.Code), alike(t, result.Object.Raw, ns), result.Warnings}
}

// targetOf names the object at a path.
func targetOf(path string) *v1alpha1.Target {
	kinds := map[string]string{"configmaps": "ConfigMap", "crates": "Crate", "secrets": "Secret", "namespaces": "Namespace"}
	parts := strings.Split(strings.TrimSuffix(path, "/status"), "/")[2:]
	if parts[0] != "v1" {
		parts = append([]string{parts[0] + "/" + parts[1]}, parts[2:]...)
	}
	target := &v1alpha1.Target{APIVersion: parts[0], Name: parts[len(parts)-1], Kind: kinds[parts[len(parts)-2]]}
	if len(parts) > 3 {
		target.Namespace = parts[2]
	}
	return target
}

var place = regexp.MustCompile(`^nothing was changed: spec\.operations\[0\] \(\w+ \w+ "[^"]*"\): `)

// withoutPlace takes from a Status what says which operation it is about.
func withoutPlace(t *testing.T, status metav1.Status) []byte {
	t.Helper()
	message := place.ReplaceAllString(status.Message, "")
	causes := status.Details.Causes
	if message == status.Message || len(causes) == 0 || causes[len(causes)-1].Field != "spec.operations[0]" {
		t.Fatalf("the error does not say which operation it is about: %+v", status)
	}
	status.Message, status.Details.Causes = message, causes[:len(causes)-1]
	if status.Details.Name == "" && status.Details.Kind == "" && len(status.Details.Causes) == 0 && status.Details.RetryAfterSeconds == 0 {
		status.Details = nil
	}
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What differs from one time to the next: the values of fields, and names and UIDs in texts.
var (
	differingFields = regexp.MustCompile(`"(resourceVersion|uid|creationTimestamp|deletionTimestamp|time)":"[^"]*"`)
	differingTexts  = regexp.MustCompile(`one-[a-z0-9]{5}|[0-9a-f]{8}-[0-9a-f-]{27}`)
)

// alike returns an answer without what differs from one time to the next.
func alike(t *testing.T, body []byte, ns string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if d, ok := fields["details"].(map[string]any); ok && len(d) == 0 {
		delete(fields, "details")
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	text = differingTexts.ReplaceAll(differingFields.ReplaceAll(text, []byte(`"$1":""`)), nil)
	return strings.NewReplacer(ns+"-c", "$CLUSTER", ns, "$NS").Replace(string(text))
}
