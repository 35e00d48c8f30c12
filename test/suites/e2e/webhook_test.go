package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// The two kinds of configuration. Their webhooks have the same fields, as far
// as they matter here.
const (
	validating = "validatingwebhookconfigurations"
	mutating   = "mutatingwebhookconfigurations"
)

var kinds = map[string]string{validating: "ValidatingWebhookConfiguration", mutating: "MutatingWebhookConfiguration"}

// marker is the label of the ConfigMaps by which a configuration is known to be
// in force: each has a webhook that denies those with its name, and the others
// leave them alone.
const marker = "marker"

type operation = admissionregistrationv1.OperationType

// hook is a webhook at a path for operations on a resource in the site.
func (s *site) hook(path, group, resource string, operations ...operation) admissionregistrationv1.ValidatingWebhook {
	url := s.webhooks.url + path
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	return admissionregistrationv1.ValidatingWebhook{
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.webhooks.ca},
		SideEffects:             &none,
		FailurePolicy:           &fail,
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"site": s.namespace}},
		ObjectSelector:          &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: marker, Operator: metav1.LabelSelectorOpDoesNotExist}}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}},
	}
}

// configuration is an object of that kind. Its webhooks are named by their
// order, after which comes the one for the markers.
func (s *site) configuration(kind, name string, hooks ...admissionregistrationv1.ValidatingWebhook) *unstructured.Unstructured {
	ready := s.hook("/always-deny", "", "configmaps", "CREATE")
	ready.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{marker: name}}
	var list []any
	for i, hook := range append(hooks, ready) {
		hook.Name = fmt.Sprintf("hook-%d.example.com", i)
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&hook)
		if err != nil {
			panic(err)
		}
		list = append(list, fields)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"webhooks": list}}
	object.SetAPIVersion(admissionregistrationv1.SchemeGroupVersion.String())
	object.SetKind(kinds[kind])
	object.SetName(name)
	object.SetLabels(map[string]string{"site": s.namespace})
	return object
}

func configurations(c clients, kind string) dynamic.ResourceInterface {
	return c.dynamic.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(kind))
}

// register makes a configuration, and returns once it is in force where the
// site asks.
func (s *site) register(t *testing.T, kind, name string, hooks ...admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	if _, err := configurations(s.made, kind).Create(t.Context(), s.configuration(kind, name, hooks...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations(s.made, kind).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete the configuration: %v", err)
		}
	})
	s.awaitInForce(t, name)
}

func (s *site) awaitInForce(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the configuration is in force", func(ctx context.Context) error {
		err := s.tryMarker(ctx, name)
		if err == nil {
			return errors.New("a marker is not denied yet")
		}
		if !strings.Contains(err.Error(), "this webhook denies all requests") {
			return err
		}
		return nil
	})
}

// awaitGone waits until a configuration is not in force any more.
func (s *site) awaitGone(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the configuration is gone", func(ctx context.Context) error { return s.tryMarker(ctx, name) })
}

// tryMarker asks for a marker of a configuration, by dry run.
func (s *site) tryMarker(ctx context.Context, name string) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "marker-", Labels: map[string]string{marker: name}}}
	_, err := s.asked.kube.CoreV1().ConfigMaps(s.namespace).Create(ctx, configMap, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// create asks for a ConfigMap with these keys and values.
func (s *site) create(ctx context.Context, namespace, name string, data ...string) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	if name == "" {
		configMap.GenerateName = "any-"
	}
	for i := 0; i < len(data); i += 2 {
		configMap.Data[data[i]] = data[i+1]
	}
	return s.asked.kube.CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{})
}

func wantDenied(t *testing.T, what string, err error, because string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), because) {
		t.Errorf("%s gets %v; want it denied because %q", what, err, because)
	}
}

func webhooksAreDiscovered(t *testing.T, s *site) {
	groups, err := s.asked.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == admissionregistrationv1.GroupName && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == "v1" })
	}) {
		t.Errorf("discovery has no %s/v1: %v", admissionregistrationv1.GroupName, groups.Groups)
	}
	resources, err := s.asked.kube.Discovery().ServerResourcesForGroupVersion(admissionregistrationv1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{validating, mutating} {
		if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == want }) {
			t.Errorf("discovery has no %s: %v", want, resources.APIResources)
		}
	}
}

const unwantedConfigMap = "the configmap contains unwanted key and value"

func denyConfigMaps(t *testing.T, s *site) {
	elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-exempt"}}
	if _, err := s.made.kube.CoreV1().Namespaces().Create(t.Context(), elsewhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.register(t, validating, s.namespace, s.hook("/configmaps", "", "configmaps", "CREATE", "UPDATE", "DELETE"))
	_, err := s.create(t.Context(), s.namespace, "", "webhook-e2e-test", "webhook-disallow")
	wantDenied(t, "a create", err, unwantedConfigMap)

	good, err := s.create(t.Context(), s.namespace, "", "admit", "this")
	if err != nil {
		t.Fatal(err)
	}
	configMaps := s.asked.kube.CoreV1().ConfigMaps(s.namespace)
	bad := good.DeepCopy()
	bad.Data["webhook-e2e-test"] = "webhook-disallow"
	_, err = configMaps.Update(t.Context(), bad, metav1.UpdateOptions{})
	wantDenied(t, "an update", err, unwantedConfigMap)
	_, err = configMaps.Patch(t.Context(), good.Name, types.StrategicMergePatchType, []byte(`{"data":{"webhook-e2e-test":"webhook-disallow"}}`), metav1.PatchOptions{})
	wantDenied(t, "a patch", err, unwantedConfigMap)
	if _, err := s.create(t.Context(), elsewhere.Name, "", "webhook-e2e-test", "webhook-disallow"); err != nil {
		t.Errorf("a create in a namespace that is not selected gets %v; want none", err)
	}
}

func denyCustomResources(t *testing.T, s *site) {
	d := s.define(t, nil, version("v1", true))
	s.register(t, validating, s.namespace, s.hook("/custom-resource", d.group, d.resource, "CREATE", "UPDATE", "DELETE"))
	objects := d.at(s.asked, s.namespace, "v1")
	with := func(value string) map[string]any {
		return map[string]any{"data": map[string]any{"webhook-e2e-test": value}}
	}
	const unwanted = "the custom resource contains unwanted data"
	_, err := objects.Create(t.Context(), d.instance("v1", "one", with("webhook-disallow")), metav1.CreateOptions{})
	wantDenied(t, "a create", err, unwanted)

	lasting, err := objects.Create(t.Context(), d.instance("v1", "two", with("webhook-nondeletable")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change := func(value string) error {
		changed := lasting.DeepCopy()
		changed.Object["data"] = with(value)["data"]
		_, err := objects.Update(t.Context(), changed, metav1.UpdateOptions{})
		return err
	}
	wantDenied(t, "an update", change("webhook-disallow"), unwanted)
	wantDenied(t, "a delete", objects.Delete(t.Context(), "two", metav1.DeleteOptions{}), "the custom resource cannot be deleted because it contains unwanted key and value")
	if err := change("webhook-allow"); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a delete of what may be deleted now gets %v; want none", err)
	}
}

func failClosed(t *testing.T, s *site) {
	untrusted := s.hook("/configmaps", "", "configmaps", "CREATE")
	untrusted.ClientConfig.CABundle = nil
	s.register(t, validating, s.namespace, untrusted)
	if _, err := s.create(t.Context(), s.namespace, ""); !apierrors.IsInternalError(err) {
		t.Errorf("a create gets %v; want an internal error, because the webhook cannot be called", err)
	}
}

func mutateInOrder(t *testing.T, s *site) {
	hook := s.hook("/mutating-configmaps", "", "configmaps", "CREATE")
	s.register(t, mutating, s.namespace, hook, hook)
	got, err := s.create(t.Context(), s.namespace, "", "mutation-start", "yes")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}, got.Data); diff != "" {
		t.Errorf("the ConfigMap (-want +got):\n%s", diff)
	}
}

// mutateAllButOne: a condition that names one object.
func mutateAllButOne(t *testing.T, s *site) {
	hook := s.hook("/mutating-configmaps", "", "configmaps", "CREATE")
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "skip-me", Expression: "object.metadata.name != 'skip-me'"}}
	s.register(t, mutating, s.namespace, hook)
	for name, want := range map[string]map[string]string{
		"other":   {"mutation-start": "yes", "mutation-stage-1": "yes"},
		"skip-me": {"mutation-start": "yes"},
	} {
		got, err := s.create(t.Context(), s.namespace, name, "mutation-start", "yes")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// configurationsAreExempt: webhooks are not called about configurations.
func configurationsAreExempt(t *testing.T, s *site) {
	anywhere := func(path string, operation operation) admissionregistrationv1.ValidatingWebhook {
		hook := s.hook(path, admissionregistrationv1.GroupName, "*", operation)
		hook.NamespaceSelector = nil
		hook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"site": s.namespace}}
		return hook
	}
	s.register(t, validating, s.namespace+"-deny", anywhere("/always-deny", "DELETE"))
	s.register(t, mutating, s.namespace+"-label", anywhere("/add-label", "CREATE"))
	for _, kind := range []string{validating, mutating} {
		hooks := configurations(s.asked, kind)
		made, err := hooks.Create(t.Context(), s.configuration(kind, s.namespace+"-dummy"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, added := made.GetLabels()["added-label"]; added {
			t.Errorf("a webhook has changed one of the %s: %v", kind, made.GetLabels())
		}
		if err := hooks.Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete one of the %s: %v; want no webhook to deny it", kind, err)
		}
	}
}

// registerForCustomResource registers two webhooks, each of which adds a key to
// data.
func (s *site) registerForCustomResource(t *testing.T, d definition) {
	t.Helper()
	hook := s.hook("/mutating-custom-resource", d.group, d.resource, "CREATE", "UPDATE")
	s.register(t, mutating, s.namespace, hook, hook)
}

var startMutation = map[string]any{"data": map[string]any{"mutation-start": "yes"}}

func mutateCustomResources(t *testing.T, s *site) {
	d := s.define(t, nil, version("v1", true))
	s.registerForCustomResource(t, d)
	got, err := d.at(s.asked, s.namespace, "v1").Create(t.Context(), d.instance("v1", "one", startMutation), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}, got.Object["data"]); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
}

func mutateAndPrune(t *testing.T, s *site) {
	v1 := version("v1", true)
	v1.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"data": *version("", false, "mutation-start", "mutation-stage-1").Schema.OpenAPIV3Schema, // and not the second stage
	}}
	d := s.define(t, nil, v1)
	s.registerForCustomResource(t, d)
	got, err := d.at(s.asked, s.namespace, "v1").Create(t.Context(), d.instance("v1", "one", startMutation), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"mutation-start": "yes", "mutation-stage-1": "yes"}, got.Object["data"]); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
}

func mutateAfterStorageMoves(t *testing.T, s *site) {
	d := s.define(t, nil, version("v1", true), version("v2", false))
	s.registerForCustomResource(t, d)
	if _, err := d.at(s.asked, s.namespace, "v1").Create(t.Context(), d.instance("v1", "one", startMutation), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.made.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), d.name, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.at(s.asked, s.namespace, "v2").Patch(t.Context(), "one", types.JSONPatchType, []byte(`[{"op":"add","path":"/dummy","value":"test"}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"data": map[string]any{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}, "dummy": "test"}
	if diff := cmp.Diff(want, map[string]any{"data": got.Object["data"], "dummy": got.Object["dummy"]}); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
}

func denyDefinitions(t *testing.T, s *site) {
	hook := s.hook("/crd", "apiextensions.k8s.io", "customresourcedefinitions", "CREATE")
	hook.NamespaceSelector = nil
	hook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"site": s.namespace}}
	s.register(t, validating, s.namespace, hook)
	d := definition{name: "denials." + group, group: group, resource: "denials", kind: "Denial"}
	object := d.object(nil, []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true)})
	object.Labels = map[string]string{"site": s.namespace, "webhook-e2e-test": "webhook-disallow"}
	_, err := s.asked.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), object, metav1.CreateOptions{})
	wantDenied(t, "a create", err, "the crd contains unwanted label")
}

// honorTimeout: the webhook takes five seconds.
func honorTimeout(t *testing.T, s *site) {
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for i, c := range []struct {
		timeout int32 // 0: none is given, which is ten seconds
		policy  admissionregistrationv1.FailurePolicyType
		want    string // in the error
	}{
		{1, fail, "context deadline exceeded"},
		{1, ignore, ""},
		{10, fail, ""},
		{0, fail, ""},
	} {
		name := s.namespace + "-" + strconv.Itoa(i)
		hook := s.hook("/always-allow-delay-5s", "", "configmaps", "CREATE")
		hook.FailurePolicy = &c.policy
		if c.timeout > 0 {
			hook.TimeoutSeconds = &c.timeout
		}
		s.register(t, validating, name, hook)
		_, err := s.create(t.Context(), s.namespace, "")
		if c.want == "" && err != nil {
			t.Errorf("with a timeout of %d and the policy %s, a create gets %v; want none", c.timeout, c.policy, err)
		} else if c.want != "" {
			wantDenied(t, fmt.Sprintf("with a timeout of %d and the policy %s, a create", c.timeout, c.policy), err, c.want)
		}
		if err := configurations(s.made, validating).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.awaitGone(t, name)
	}
}

func (s *site) awaitDenied(t *testing.T) {
	t.Helper()
	eventually(t, "a create is denied", func(ctx context.Context) error {
		_, err := s.create(ctx, s.namespace, "", "webhook-e2e-test", "webhook-disallow")
		if err == nil {
			return errors.New("it is not")
		}
		if !strings.Contains(err.Error(), unwantedConfigMap) {
			return fmt.Errorf("it gets %w", err)
		}
		return nil
	})
}

func (s *site) awaitAllowed(t *testing.T) {
	t.Helper()
	eventually(t, "a create is allowed", func(ctx context.Context) error {
		_, err := s.create(ctx, s.namespace, "", "webhook-e2e-test", "webhook-disallow")
		return err
	})
}

func (s *site) awaitMutation(t *testing.T, want bool) {
	t.Helper()
	eventually(t, "a ConfigMap is changed: "+strconv.FormatBool(want), func(ctx context.Context) error {
		got, err := s.create(ctx, s.namespace, "", "mutation-start", "yes")
		if err != nil {
			return err
		}
		if _, changed := got.Data["mutation-stage-1"]; changed != want {
			return fmt.Errorf("it is %v", got.Data)
		}
		return nil
	})
}

// change takes the operation CREATE out of a configuration's first webhook by an
// update, and puts it back by a patch; after each, check is called.
func change(t *testing.T, s *site, kind string, check func(inForce bool)) {
	t.Helper()
	hooks := configurations(s.made, kind)
	check(true)
	object, err := hooks.Get(t.Context(), s.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Object["webhooks"].([]any)[0].(map[string]any)["rules"].([]any)[0].(map[string]any)["operations"] = []any{"UPDATE"}
	updated, err := hooks.Update(t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check(false)
	patched, err := hooks.Patch(t.Context(), s.namespace, types.JSONPatchType, []byte(`[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["CREATE"]}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if patched.GetResourceVersion() == updated.GetResourceVersion() {
		t.Errorf("the patched configuration is still at %s", patched.GetResourceVersion())
	}
	check(true)
}

func changeValidating(t *testing.T, s *site) {
	s.register(t, validating, s.namespace, s.hook("/configmaps", "", "configmaps", "CREATE"))
	change(t, s, validating, func(inForce bool) {
		if inForce {
			s.awaitDenied(t)
		} else {
			s.awaitAllowed(t)
		}
	})
}

func changeMutating(t *testing.T, s *site) {
	s.register(t, mutating, s.namespace, s.hook("/mutating-configmaps", "", "configmaps", "CREATE"))
	change(t, s, mutating, func(inForce bool) { s.awaitMutation(t, inForce) })
}

// listAndDelete makes ten configurations, lists them by a label, and deletes
// them together.
func listAndDelete(t *testing.T, s *site, kind string, hook admissionregistrationv1.ValidatingWebhook, inForce, gone func()) {
	t.Helper()
	const count = 10
	for i := range count {
		s.register(t, kind, s.namespace+"-"+strconv.Itoa(i), hook)
	}
	selected := metav1.ListOptions{LabelSelector: "site=" + s.namespace}
	list, err := configurations(s.asked, kind).List(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != count {
		t.Errorf("%d configurations are listed; want %d", len(list.Items), count)
	}
	inForce()
	if err := configurations(s.made, kind).DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	gone()
}

func listValidating(t *testing.T, s *site) {
	listAndDelete(t, s, validating, s.hook("/configmaps", "", "configmaps", "CREATE"), func() { s.awaitDenied(t) }, func() { s.awaitAllowed(t) })
}

func listMutating(t *testing.T, s *site) {
	listAndDelete(t, s, mutating, s.hook("/mutating-configmaps", "", "configmaps", "CREATE"), func() { s.awaitMutation(t, true) }, func() { s.awaitMutation(t, false) })
}

// matchConditions: what a configuration's conditions are made, and changed to,
// is read.
func matchConditions(t *testing.T, s *site, kind string) {
	t.Helper()
	hook := s.hook("/always-deny", "", "configmaps", "CREATE")
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "expression-1", Expression: "object.metadata.namespace == 'production'"}}
	s.register(t, kind, s.namespace, hook)
	check := func(want ...any) {
		t.Helper()
		object, err := configurations(s.asked, kind).Get(t.Context(), s.namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, object.Object["webhooks"].([]any)[0].(map[string]any)["matchConditions"]); diff != "" {
			t.Errorf("the conditions (-want +got):\n%s", diff)
		}
	}
	first := map[string]any{"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}
	second := map[string]any{"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}
	check(first)
	object, err := configurations(s.made, kind).Get(t.Context(), s.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Object["webhooks"].([]any)[0].(map[string]any)["matchConditions"] = []any{first, second}
	if _, err := configurations(s.made, kind).Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(first, second)
}

func badMatchConditions(t *testing.T, s *site, kind string) {
	t.Helper()
	hook := s.hook("/always-deny", "", "configmaps", "CREATE")
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "invalid-expression-1", Expression: "... [] bad expression"}}
	_, err := configurations(s.asked, kind).Create(t.Context(), s.configuration(kind, s.namespace, hook), metav1.CreateOptions{})
	wantDenied(t, "a create", err, "compilation failed")
}
