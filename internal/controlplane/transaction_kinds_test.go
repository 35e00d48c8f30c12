package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// TestEveryKindIsThePlainRequest: for each kind that the server serves, the requests of an
// object's life have the same outcome in a transaction of one as alone, but for the status,
// which controllers write in between.
func TestEveryKindIsThePlainRequest(t *testing.T) {
	p := servers(t)
	samples := sampleObjects(t)
	for _, kind := range kindsOf(t, p.a) {
		name := kind.Name + "." + kind.Group
		sample, ok := samples[name]
		if !ok {
			t.Errorf("the server serves %s, and there is no object to test it with", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := sameOutcomes(t, p.a, lifeOf(kind, sample), namespace(t, p.a), namespace(t, p.a), withoutStatus)
			if all[0].code != http.StatusCreated {
				t.Fatalf("the sample is refused: %s", all[0].body)
			}
		})
	}
}

// kindsOf returns what the server lets clients create, patch and delete, but for the kinds that
// tests define, and for events, which no transaction takes.
func kindsOf(t *testing.T, s *server) (kinds []metav1.APIResource) {
	t.Helper()
	lists, err := s.client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			writable := slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "patch") && slices.Contains(r.Verbs, "delete")
			if !writable || strings.HasSuffix(gv.Group, "xbernetes.dev") || r.Kind == "Event" {
				continue
			}
			r.Group, r.Version = gv.Group, gv.Version
			kinds = append(kinds, r)
		}
	}
	return kinds
}

// lifeOf are the requests about one object, some of which fail.
func lifeOf(kind metav1.APIResource, sample string) []attempt {
	gv := schema.GroupVersion{Group: kind.Group, Version: kind.Version}
	all := "/apis/" + gv.String()
	if kind.Group == "" {
		all = "/api/v1"
	}
	name, at := "$CLUSTER", ""
	if kind.Namespaced {
		all, name, at = all+"/namespaces/$NS", "one", `,"namespace":"$NS"`
	}
	switch kind.Kind { // names that say what the object is about
	case "CustomResourceDefinition":
		name = "things.$CLUSTER.example"
	case "APIService":
		name = "v1.other.$CLUSTER.example"
	}
	all += "/" + kind.Name
	object := func(meta, rest string) string {
		return `{"apiVersion":"` + gv.String() + `","kind":"` + kind.Kind + `","metadata":{"name":"` + name + `"` + at + meta + `}` + rest + `}`
	}
	one, none := all+"/"+name, `{"kind":"DeleteOptions","apiVersion":"v1"}`
	patch := func(as v1alpha1.PatchType, body string) attempt {
		return attempt{verb: v1alpha1.Patch, path: one, kind: kind.Kind, patchType: as, body: body}
	}
	life := []attempt{
		{verb: v1alpha1.Create, path: all, body: object("", sample)},
		{verb: v1alpha1.Create, path: all, body: object("", sample)},
		{verb: v1alpha1.Update, path: one, body: object(`,"labels":{"a":"b"}`, sample)},
		patch(v1alpha1.MergePatch, `{"metadata":{"labels":{"a":"c"}}}`),
		patch(v1alpha1.StrategicPatch, `{"metadata":{"labels":{"d":"e"}}}`),
		patch(v1alpha1.JSONPatch, `[{"op":"add","path":"/metadata/annotations","value":{"f":"g"}}]`),
		patch(v1alpha1.MergePatch, `{"metadata":{"labels":{"not ok":"b"}}}`),
		patch(v1alpha1.MergePatch, `{"metadata":{"name":"other"}}`),
		{verb: v1alpha1.Apply, path: one, query: "fieldManager=shop&force=true", body: object(`,"labels":{"a":"h"}`, sample),
			more: func(o *v1alpha1.Operation) { o.FieldManager, o.Force = "shop", true }},
		{verb: v1alpha1.Delete, path: one, kind: kind.Kind, body: none},
	}
	if kind.Kind != "CustomResourceDefinition" && kind.Kind != "Namespace" { // these have finalizers for a while
		life = append(life, attempt{verb: v1alpha1.Delete, path: one, kind: kind.Kind, body: none})
	}
	return life
}

// sampleObjects are the fields beside metadata of an object of each kind, by resource.group. What
// they select is of a group that nobody serves.
func sampleObjects(t *testing.T) map[string]string {
	request, certificate := pems(t)
	const rules = `[{"operations":["CREATE"],"apiGroups":["none.example"],"apiVersions":["v1"],"resources":["nothing"]}]`
	const webhooks = `,"webhooks":[{"name":"w.none.example","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Ignore","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":` + rules + `}]`
	const matches = `"matchConstraints":{"resourceRules":` + rules + `}`
	const admission, rbac, certificates, flow = ".admissionregistration.k8s.io", ".rbac.authorization.k8s.io", ".certificates.k8s.io", ".flowcontrol.apiserver.k8s.io"
	role := `,"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`
	return map[string]string{
		"configmaps.":      `,"data":{"k":"v"}`,
		"namespaces.":      ``,
		"resourcequotas.":  `,"spec":{"hard":{"count/secrets":"9"}}`,
		"secrets.":         `,"stringData":{"k":"v"}`,
		"serviceaccounts.": `,"automountServiceAccountToken":false`,
		"mutatingadmissionpolicies" + admission: `,"spec":{` + matches + `,"reinvocationPolicy":"Never","failurePolicy":"Ignore",
			"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"None\"}]"}}]}`,
		"mutatingadmissionpolicybindings" + admission:   `,"spec":{"policyName":"none.example"}`,
		"mutatingwebhookconfigurations" + admission:     webhooks,
		"validatingadmissionpolicies" + admission:       `,"spec":{` + matches + `,"failurePolicy":"Ignore","validations":[{"expression":"true"}]}`,
		"validatingadmissionpolicybindings" + admission: `,"spec":{"policyName":"none.example","validationActions":["Deny"]}`,
		"validatingwebhookconfigurations" + admission:   webhooks,
		"customresourcedefinitions.apiextensions.k8s.io": `,"spec":{"group":"$CLUSTER.example","scope":"Namespaced","names":{"kind":"Thing","listKind":"ThingList","plural":"things","singular":"thing"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}`,
		"apiservices.apiregistration.k8s.io":               `,"spec":{"group":"other.$CLUSTER.example","version":"v1","groupPriorityMinimum":100,"versionPriority":10}`,
		"certificatesigningrequests" + certificates:        `,"spec":{"request":"` + base64.StdEncoding.EncodeToString(request) + `","signerName":"none.example/nobody","usages":["client auth"]}`,
		"clustertrustbundles" + certificates:               `,"spec":{"trustBundle":` + quoted(t, string(certificate)) + `}`,
		"leases.coordination.k8s.io":                       `,"spec":{"holderIdentity":"me","leaseDurationSeconds":10}`,
		"flowschemas" + flow:                               `,"spec":{"matchingPrecedence":9000,"priorityLevelConfiguration":{"name":"exempt"}}`,
		"prioritylevelconfigurations" + flow:               `,"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}`,
		"clusterrolebindings" + rbac:                       `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[]`,
		"clusterroles" + rbac:                              role,
		"rolebindings" + rbac:                              `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[]`,
		"roles" + rbac:                                     role,
		"storageversionmigrations.storagemigration.k8s.io": `,"spec":{"resource":{"group":"none.example","resource":"nothing"}}`,
	}
}

// pems are a request for a certificate and a certificate.
func pems(t *testing.T) (request, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	r, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "nobody"}}, key)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nobody"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	c, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal(text)
	must(t, err)
	return string(out)
}

// withoutStatus returns an object without its status, and without who wrote that.
func withoutStatus(t *testing.T, body string) string {
	t.Helper()
	var object map[string]any
	must(t, json.Unmarshal([]byte(body), &object))
	if object["kind"] == "Status" {
		return body
	}
	delete(object, "status")
	if meta, ok := object["metadata"].(map[string]any); ok {
		writers, _ := meta["managedFields"].([]any)
		meta["managedFields"] = slices.DeleteFunc(writers, func(w any) bool { return w.(map[string]any)["subresource"] == "status" })
	}
	out, err := json.Marshal(object)
	must(t, err)
	return string(out)
}
