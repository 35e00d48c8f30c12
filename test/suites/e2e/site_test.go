package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/test/images/agnhost/crd-conversion-webhook/converter"
	"k8s.io/kubernetes/test/images/agnhost/webhook"
)

// byURL are tests of ours, each of which makes the checks of one spec of
// Kubernetes that cannot run as it is. specs.txt says which.
var byURL = map[string]func(*testing.T, *site){
	"webhooksAreDiscovered":          webhooksAreDiscovered,
	"denyConfigMaps":                 denyConfigMaps,
	"denyCustomResources":            denyCustomResources,
	"failClosed":                     failClosed,
	"mutateInOrder":                  mutateInOrder,
	"configurationsAreExempt":        configurationsAreExempt,
	"mutateCustomResources":          mutateCustomResources,
	"denyDefinitions":                denyDefinitions,
	"mutateAfterStorageMoves":        mutateAfterStorageMoves,
	"mutateAndPrune":                 mutateAndPrune,
	"honorTimeout":                   honorTimeout,
	"changeValidating":               changeValidating,
	"changeMutating":                 changeMutating,
	"listValidating":                 listValidating,
	"listMutating":                   listMutating,
	"matchConditionsOfValidating":    func(t *testing.T, s *site) { matchConditions(t, s, validating) },
	"matchConditionsOfMutating":      func(t *testing.T, s *site) { matchConditions(t, s, mutating) },
	"badMatchConditionsOfValidating": func(t *testing.T, s *site) { badMatchConditions(t, s, validating) },
	"badMatchConditionsOfMutating":   func(t *testing.T, s *site) { badMatchConditions(t, s, mutating) },
	"mutateAllButOne":                mutateAllButOne,
	"convert":                        convert,
	"convertMixedList":               convertMixedList,
	"selectByField":                  selectByField,
	"listInChunks":                   listInChunks,
	"listPastCompaction":             listPastCompaction,
}

// slow waits until an API server compacts, five minutes or ten.
const slow = "listPastCompaction"

// TestByURLIsListed: specs.txt and byURL name the same tests.
func TestByURLIsListed(t *testing.T) {
	l, err := parse(listed)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := slices.Sorted(maps.Keys(byURL)), slices.Sorted(maps.Values(l.byURL)); !slices.Equal(want, got) {
		t.Errorf("specs.txt names %v; want each of %v once", got, want)
	}
}

// runByURL runs them side by side, each under the name of its spec.
func runByURL(t *testing.T, c cluster) {
	t.Helper()
	l, err := parse(listed)
	if err != nil {
		t.Fatal(err)
	}
	wanted, _ := wantedSpecs(t)
	backend := startWebhooks(t)
	made, asked := newClients(t, c.servers[0]), newClients(t, c.servers[len(c.servers)-1])
	for spec, name := range l.byURL {
		if !wanted.MatchString(spec) {
			continue
		}
		if testing.Short() && name == slow {
			t.Logf("left out of a short run: %s", spec)
			continue
		}
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			byURL[name](t, &site{made: made, asked: asked, namespace: newNamespace(t, made), webhooks: backend})
		})
	}
}

// A site is where one such test runs. What it sets up through one server it
// checks through another, if there is another.
type site struct {
	made, asked clients
	namespace   string // its own; its label "site" is its name
	webhooks    webhooks
}

type clients struct {
	kube        kubernetes.Interface
	dynamic     dynamic.Interface
	definitions apiextensions.Interface
}

func newClients(t *testing.T, config *rest.Config) clients {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients{kube, dyn, definitions}
}

func newNamespace(t *testing.T, c clients) string {
	t.Helper()
	name := "by-url-" + strings.ToLower(rand.Text()[:10])
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": name}}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// eventually asks until try returns nil.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// webhooks are the admission and conversion webhooks that Kubernetes' specs
// deploy in a pod, at a URL of this process.
type webhooks struct {
	url string
	ca  []byte
}

func startWebhooks(t *testing.T) webhooks {
	t.Helper()
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("webhooks", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{certFile: certificate, keyFile: key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	registerAdmission(certFile, keyFile)

	mux := http.NewServeMux()
	mux.Handle("/", http.DefaultServeMux)
	mux.HandleFunc("/crdconvert", converter.ServeExampleConvert)
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return webhooks{url: server.URL, ca: certificate}
}

var admission sync.Once

// registerAdmission makes http.DefaultServeMux serve Kubernetes' admission
// webhooks. Only their command does that, and it then listens on every address
// of the machine: given a port that does not exist, it panics before.
func registerAdmission(certFile, keyFile string) {
	admission.Do(func() {
		defer func() {
			if err := recover(); err == nil || !strings.Contains(fmt.Sprint(err), "invalid port") {
				panic(fmt.Sprintf("Kubernetes' webhook command ended otherwise than for its port: %v", err))
			}
		}()
		for flag, value := range map[string]string{"port": "-1", "tls-cert-file": certFile, "tls-private-key-file": keyFile} {
			if err := webhook.CmdWebhook.Flags().Set(flag, value); err != nil {
				panic(err)
			}
		}
		webhook.CmdWebhook.Run(webhook.CmdWebhook, nil)
	})
}

// A definition is a custom resource of a site.
type definition struct {
	name     string
	group    string
	resource string
	kind     string
}

// group is the one that Kubernetes' conversion webhook knows.
const group = "stable.example.com"

// define makes a custom resource and waits until all its versions are served.
func (s *site) define(t *testing.T, conversion *apiextensionsv1.CustomResourceConversion, versions ...apiextensionsv1.CustomResourceDefinitionVersion) definition {
	t.Helper()
	unique := strings.ReplaceAll(s.namespace, "-", "")
	d := definition{name: unique + "s." + group, group: group, resource: unique + "s", kind: "Kind" + unique}
	crds := s.made.definitions.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), d.object(conversion, versions), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := crds.Delete(context.Background(), d.name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the definition: %v", err)
		}
	})
	for _, c := range []clients{s.made, s.asked} {
		for _, v := range versions {
			eventually(t, d.name+" is served at "+v.Name, func(ctx context.Context) error {
				_, err := d.at(c, s.namespace, v.Name).List(ctx, metav1.ListOptions{})
				return err
			})
		}
	}
	return d
}

func (d definition) object(conversion *apiextensionsv1.CustomResourceConversion, versions []apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: d.group, Scope: apiextensionsv1.NamespaceScoped, Versions: versions, Conversion: conversion,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: d.resource, Singular: strings.ToLower(d.kind), Kind: d.kind, ListKind: d.kind + "List"},
		},
	}
}

func (d definition) at(c clients, namespace, version string) dynamic.ResourceInterface {
	return c.dynamic.Resource(schema.GroupVersionResource{Group: d.group, Version: version, Resource: d.resource}).Namespace(namespace)
}

// instance is an object with these fields.
func (d definition) instance(version, name string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: maps.Clone(fields)}
	object.SetAPIVersion(d.group + "/" + version)
	object.SetKind(d.kind)
	object.SetName(name)
	return object
}

// version is one of a definition, of objects with these string fields, or, if
// there are none, with any.
func version(name string, stored bool, fields ...string) apiextensionsv1.CustomResourceDefinitionVersion {
	properties := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	anything := true
	if len(fields) == 0 {
		properties.XPreserveUnknownFields = &anything
	}
	for _, field := range fields {
		if properties.Properties == nil {
			properties.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		}
		properties.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: properties}}
}
