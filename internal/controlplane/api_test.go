package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

// until polls until f returns true. It fails the test on f's error, or after far
// longer than anything takes.
func until(t *testing.T, what string, f func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, startTimeout, true, f); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func namespace(t *testing.T, s *server) string {
	t.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// kind defines a custom resource for the test at s, and waits until all of servers
// serve it.
func kind(t *testing.T, s *server, name string, servers ...*server) schema.GroupVersionResource {
	t.Helper()
	object := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	gvr := schema.GroupVersionResource{Group: "test.xbernetes.dev", Version: "v1", Resource: name + "s"}
	client, err := apiextensionsclientset.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: gvr.Resource + "." + gvr.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gvr.Resource, Singular: name, Kind: strings.ToUpper(name[:1]) + name[1:]},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvr.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": object, "status": object},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	served(t, gvr, append(servers, s)...)
	return gvr
}

// served waits until servers serve what was defined a moment ago.
func served(t *testing.T, gvr schema.GroupVersionResource, servers ...*server) {
	t.Helper()
	for _, s := range servers {
		until(t, "there is an APIService for "+gvr.Resource, func(ctx context.Context) (bool, error) {
			_, err := s.dynamic.Resource(apiServices).Get(ctx, gvr.Version+"."+gvr.Group, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		until(t, gvr.Resource+" is served", func(ctx context.Context) (bool, error) {
			_, err := s.dynamic.Resource(gvr).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
	}
}

func object(gvr schema.GroupVersionResource, name string, spec map[string]any) *unstructured.Unstructured {
	kind := strings.TrimSuffix(gvr.Resource, "s")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(),
		"kind":       strings.ToUpper(kind[:1]) + kind[1:],
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}}
}

func create(t *testing.T, c dynamic.ResourceInterface, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o, err := c.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestCustomResourceTravelsBetweenServers(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	gvr := kind(t, p.a, "parcel", p.b)
	atA, atB := p.a.dynamic.Resource(gvr).Namespace(ns), p.b.dynamic.Resource(gvr).Namespace(ns)

	w, err := atB.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(want watch.EventType) *unstructured.Unstructured {
		t.Helper()
		select {
		case ev := <-w.ResultChan():
			o, ok := ev.Object.(*unstructured.Unstructured)
			if ev.Type != want || !ok {
				t.Fatalf("watch brought %v %v, want %v", ev.Type, ev.Object, want)
			}
			return o
		case <-time.After(startTimeout):
			t.Fatalf("watch brought nothing, want %v", want)
			return nil
		}
	}

	made := create(t, atA, object(gvr, "one", map[string]any{"to": "b"}))
	seen := next(watch.Added)
	if seen.GetUID() != made.GetUID() || seen.GetResourceVersion() != made.GetResourceVersion() {
		t.Fatalf("B saw %s at %s, A made %s at %s", seen.GetUID(), seen.GetResourceVersion(), made.GetUID(), made.GetResourceVersion())
	}

	// B writes the status; A's update from the version before it conflicts, exactly once.
	if err := unstructured.SetNestedField(seen.Object, "arrived", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	if _, err := atB.UpdateStatus(t.Context(), seen, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	next(watch.Modified)
	if _, err := atA.Update(t.Context(), withSpec(made, "to", "elsewhere"), metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("update of a stale object: %v, want a conflict", err)
	}
	got, err := atA.Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != "arrived" {
		t.Fatalf("A reads phase %q", phase)
	}
	if err := atA.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next(watch.Deleted)
}

func withSpec(o *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	o = o.DeepCopy()
	if err := unstructured.SetNestedField(o.Object, value, "spec", key); err != nil {
		panic(err)
	}
	return o
}

func TestServerSideApplyConflict(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	atA, atB := p.a.client.CoreV1().ConfigMaps(ns), p.b.client.CoreV1().ConfigMaps(ns)
	body := func(v string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"k":%q}}`, v)
	}
	if _, err := atA.Patch(t.Context(), "shared", "application/apply-patch+yaml", body("a"), metav1.PatchOptions{FieldManager: "a"}); err != nil {
		t.Fatal(err)
	}
	_, err := atB.Patch(t.Context(), "shared", "application/apply-patch+yaml", body("b"), metav1.PatchOptions{FieldManager: "b"})
	if !apierrors.IsConflict(err) {
		t.Fatalf("apply over another manager's field: %v, want a conflict", err)
	}
	got, err := atB.Patch(t.Context(), "shared", "application/apply-patch+yaml", body("b"), metav1.PatchOptions{FieldManager: "b", Force: new(true)})
	if err != nil || got.Data["k"] != "b" {
		t.Fatalf("forced apply: %v, %v", got.Data, err)
	}
}

func TestNamespaceIsEmptied(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	gvr := kind(t, p.a, "leftover", p.b)
	c := p.b.dynamic.Resource(gvr).Namespace(ns)
	create(t, c, object(gvr, "one", nil))
	if _, err := p.a.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.a.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := p.a.client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if left, err := c.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Fatalf("left in the namespace: %v, %v", left, err)
	}
}

func TestGarbageCollectionFollowsOwners(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	gvr := kind(t, p.a, "owner") // unknown when the collector started
	c := p.a.dynamic.Resource(gvr).Namespace(ns)
	owner := create(t, c, object(gvr, "owner", nil))
	ref := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
	child := object(gvr, "child", nil)
	child.SetOwnerReferences([]metav1.OwnerReference{ref})
	create(t, c, child)
	create(t, c, object(gvr, "bystander", nil))
	if _, err := p.a.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{ref}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "both dependents are gone", func(ctx context.Context) (bool, error) {
		_, err1 := c.Get(ctx, "child", metav1.GetOptions{})
		_, err2 := p.a.client.CoreV1().ConfigMaps(ns).Get(ctx, "child", metav1.GetOptions{})
		return apierrors.IsNotFound(err1) && apierrors.IsNotFound(err2), nil
	})
	if _, err := c.Get(t.Context(), "bystander", metav1.GetOptions{}); err != nil {
		t.Fatalf("the object without an owner: %v", err)
	}
}

func TestQuotaCountsCustomResources(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	gvr := kind(t, p.a, "counted", p.b)
	name := corev1.ResourceName("count/" + gvr.Resource + "." + gvr.Group)
	quotas := p.a.client.CoreV1().ResourceQuotas(ns)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "two"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse("2")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want int64) {
		t.Helper()
		until(t, fmt.Sprintf("%d are used", want), func(ctx context.Context) (bool, error) {
			q, err := quotas.Get(ctx, "two", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			n, ok := q.Status.Used[name]
			return ok && n.Value() == want, nil
		})
	}
	used(0)
	for name, s := range map[string]*server{"one": p.a, "two": p.b} {
		until(t, "the quota lets "+name+" in", func(ctx context.Context) (bool, error) {
			_, err := s.dynamic.Resource(gvr).Namespace(ns).Create(ctx, object(gvr, name, nil), metav1.CreateOptions{})
			if err != nil && strings.Contains(err.Error(), "status unknown for quota") {
				return false, nil // this server's watch has not brought the count yet
			}
			return err == nil, err
		})
	}
	for _, s := range []*server{p.a, p.b} {
		_, err := s.dynamic.Resource(gvr).Namespace(ns).Create(t.Context(), object(gvr, "three", nil), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
			t.Fatalf("third object: %v, want exceeded quota", err)
		}
	}
	if err := p.a.dynamic.Resource(gvr).Namespace(ns).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	used(1) // only the controller ever lowers it
}

// countable are the namespaced kinds that s serves and that a quota can count.
func countable(t *testing.T, s *server) []metav1.APIResource {
	t.Helper()
	lists, err := s.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	ignored := quotainstall.DefaultIgnoredResources()
	var found []metav1.APIResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			r.Group, r.Version = gv.Group, gv.Version
			_, skip := ignored[schema.GroupResource{Group: gv.Group, Resource: r.Name}]
			if !skip && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				found = append(found, r)
			}
		}
	}
	return found
}

// specimen is an object of kind r that the server accepts.
func specimen(r metav1.APIResource, name string) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": schema.GroupVersion{Group: r.Group, Version: r.Version}.String(),
		"kind":       r.Kind,
		"metadata":   map[string]any{"name": name},
	}
	if r.Kind == "RoleBinding" {
		o["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "view"}
	}
	return &unstructured.Unstructured{Object: o}
}

// Every kind that the server serves, also a custom one, can be limited by count/.
// Kinds that Kubernetes counts by their plain names can be limited by these as well.
// One quota also names a kind that is not served here, as quotas from elsewhere do.
func TestQuotaLimitsEveryKind(t *testing.T) {
	t.Parallel()
	p := servers(t)
	kind(t, p.a, "limited")
	var kinds []metav1.APIResource
	until(t, "discovery lists the custom kind", func(context.Context) (bool, error) {
		kinds = countable(t, p.a)
		return slices.ContainsFunc(kinds, func(r metav1.APIResource) bool { return r.Name == "limiteds" }), nil
	})
	limited := map[corev1.ResourceName]bool{}
	for _, r := range kinds {
		gr := schema.GroupResource{Group: r.Group, Resource: r.Name}
		names := []corev1.ResourceName{generic.ObjectCountQuotaResourceNameFor(gr)}
		switch gr.String() {
		case "secrets", "configmaps", "resourcequotas":
			names = append(names, corev1.ResourceName(r.Name))
		}
		for _, name := range names {
			limited[name] = true
			t.Run(string(name), func(t *testing.T) {
				t.Parallel()
				limitsKind(t, p.a, r, name)
			})
		}
	}
	for _, name := range []corev1.ResourceName{"secrets", "configmaps", "resourcequotas", "count/leases.coordination.k8s.io", "count/limiteds.test.xbernetes.dev"} {
		if !limited[name] {
			t.Errorf("%s was not tried; discovery lists %d kinds", name, len(kinds))
		}
	}
}

// limitsKind limits the kind r in a new namespace to one object more than it has,
// under the given name of the quota, and tries to make two.
func limitsKind(t *testing.T, s *server, r metav1.APIResource, name corev1.ResourceName) {
	ns := namespace(t, s)
	until(t, "the namespace is furnished", func(ctx context.Context) (bool, error) {
		_, err1 := s.client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		_, err2 := s.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err1 == nil && err2 == nil, nil
	})
	c := s.dynamic.Resource(schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}).Namespace(ns)
	have, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := int64(len(have.Items))
	if r.Kind == "ResourceQuota" {
		want++ // the one made here
	}
	hard := corev1.ResourceList{name: *resource.NewQuantity(want+1, resource.DecimalSI)}
	for _, absent := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceRequestsCPU} {
		hard[absent] = resource.MustParse("4")
	}
	quotas := s.client.CoreV1().ResourceQuotas(ns)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	counted := func(n int64) {
		t.Helper()
		until(t, fmt.Sprintf("%d are counted", n), func(ctx context.Context) (bool, error) {
			q, err := quotas.Get(ctx, "quota", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			used, ok := q.Status.Used[name]
			return ok && used.Value() == n && q.Status.Hard.Pods().Equal(*q.Spec.Hard.Pods()), nil
		})
	}
	counted(want)
	until(t, "the quota lets one in", func(ctx context.Context) (bool, error) {
		_, err := c.Create(ctx, specimen(r, "one"), metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "status unknown for quota") {
			return false, nil // the watch of the admission plugin has not brought the count yet
		}
		return err == nil, err
	})
	// The plugin counts an object at once, and the controller once it has seen it. Until
	// then the controller would lower the count again. Changing another limit makes it count.
	if _, err := quotas.Patch(t.Context(), "quota", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"5"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	counted(want + 1)
	if _, err := c.Create(t.Context(), specimen(r, "two"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Fatalf("one too many: %v, want exceeded quota", err)
	}
	if err := c.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	counted(want)
}

// as returns a client of s that trusts ca and shows token.
func as(t *testing.T, s *server, ca []byte, token string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host:            s.config.Host,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServiceAccountTokenWorksAtEveryServer(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)

	// The controllers make an account and the CAs of all servers in every namespace.
	var ca []byte
	until(t, "the namespace is furnished", func(ctx context.Context) (bool, error) {
		cm, err := p.b.client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		ca = []byte(cm.Data["ca.crt"])
		_, err = p.b.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil && strings.Count(string(ca), "BEGIN CERTIFICATE") == 2, nil
	})

	for _, issuer := range []*server{p.a, p.b} {
		token, err := issuer.client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*server{p.a, p.b} {
			c := as(t, s, ca, token.Status.Token)
			me, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if want := "system:serviceaccount:" + ns + ":default"; me.Status.UserInfo.Username != want {
				t.Fatalf("token of %s at %s is %q, want %q", issuer.dir, s.dir, me.Status.UserInfo.Username, want)
			}
			// The account has no rights.
			if _, err := c.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Fatalf("list secrets without a role: %v, want forbidden", err)
			}
		}
	}
}

func TestTokenIsRefusedWhenForgedOrOrphaned(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	accounts := p.a.client.CoreV1().ServiceAccounts(ns)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "shortlived"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tr, err := accounts.CreateToken(t.Context(), "shortlived", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle := p.bundle(t)
	review := func(token string) error {
		_, err := as(t, p.b, bundle, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	}
	// At once: the watch may not have brought the account to this server yet.
	if err := review(tr.Status.Token); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(tr.Status.Token, ".")
	parts[2] = strings.Repeat("A", len(parts[2]))
	if err := review(strings.Join(parts, ".")); !apierrors.IsUnauthorized(err) {
		t.Fatalf("forged token: %v, want unauthorized", err)
	}
	if err := accounts.Delete(t.Context(), "shortlived", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the token of a deleted account is refused", func(context.Context) (bool, error) {
		return apierrors.IsUnauthorized(review(tr.Status.Token)), nil
	})
}

// bundle returns the CAs of both servers.
func (p *pair) bundle(t *testing.T) []byte {
	t.Helper()
	return append(append([]byte{}, p.a.config.CAData...), p.b.config.CAData...)
}

func TestRBACGrantsWhatIsBound(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	rb := p.a.client.RbacV1()
	if _, err := rb.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mira"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(p.b.config)
	cfg.Impersonate.UserName = "mira"
	mira, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// "view" has no rules of its own: the aggregation controller fills it.
	until(t, "mira may list config maps", func(ctx context.Context) (bool, error) {
		_, err := mira.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	for what, err := range map[string]error{
		"write":           second(mira.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})),
		"read secrets":    second(mira.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{})),
		"read elsewhere":  second(mira.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})),
		"list namespaces": second(mira.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestValidatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	ar := p.a.client.AdmissionregistrationV1()
	if _, err := ar.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "short-names"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "!object.metadata.name.startsWith('bad-')", Message: "no bad names"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ar.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "short-names"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        "short-names",
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources:    &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configMap := func(s *server, name string) error {
		_, err := s.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	for i, s := range []*server{p.a, p.b} {
		n := 0
		until(t, "the policy is in force", func(context.Context) (bool, error) {
			n++
			err := configMap(s, fmt.Sprintf("bad-%d-%d", i, n))
			return err != nil && strings.Contains(err.Error(), "no bad names"), nil
		})
		if err := configMap(s, fmt.Sprintf("good-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the policy's status says that it was checked", func(ctx context.Context) (bool, error) {
		vap, err := ar.ValidatingAdmissionPolicies().Get(ctx, "short-names", metav1.GetOptions{})
		return err == nil && vap.Status.ObservedGeneration == vap.Generation && vap.Status.TypeChecking != nil, err
	})
}

func TestClientCertificateWorksAtEveryServer(t *testing.T) {
	p := servers(t)
	// A's administrator is accepted by B.
	cfg := rest.CopyConfig(p.a.config)
	cfg.Host, cfg.CAData = p.b.config.Host, p.b.config.CAData
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}

	// A certificate is signed for a request, whichever server leads.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "nora"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csrs := p.a.client.CertificatesV1().CertificateSigningRequests()
	csr, err := csrs.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "nora"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	if _, err := csrs.UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the request is signed", func(ctx context.Context) (bool, error) {
		csr, err = csrs.Get(ctx, "nora", metav1.GetOptions{})
		return err == nil && len(csr.Status.Certificate) > 0, err
	})
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server{p.a, p.b} {
		nora, err := kubernetes.NewForConfig(&rest.Config{Host: s.config.Host, TLSClientConfig: rest.TLSClientConfig{
			CAData: s.config.CAData, CertData: csr.Status.Certificate,
			KeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		me, err := nora.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || me.Status.UserInfo.Username != "nora" {
			t.Fatalf("certificate at %s: %v, %v", s.dir, me, err)
		}
	}
}

func TestServersHaveIdentitiesOfTheirOwn(t *testing.T) {
	p := servers(t) // one host name, two servers
	until(t, "there is one identity lease for each", func(ctx context.Context) (bool, error) {
		leases, err := p.a.client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=" + serverName})
		if err != nil {
			return false, err
		}
		var names []string
		for _, l := range leases.Items {
			names = append(names, l.Name)
		}
		if len(names) > 2 {
			return false, fmt.Errorf("identity leases %v, want one for each server", names)
		}
		return fmt.Sprint(names) == "[apiserver-a apiserver-b]", nil
	})
	for _, ns := range []string{"default", "kube-system", "kube-public"} {
		if _, err := p.b.client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func TestStorageVersionMigration(t *testing.T) {
	t.Parallel()
	p := servers(t)
	ns := namespace(t, p.a)
	gvr := kind(t, p.a, "settler")
	create(t, p.a.dynamic.Resource(gvr).Namespace(ns), object(gvr, "one", nil))
	migrations := p.a.client.StoragemigrationV1().StorageVersionMigrations()
	m, err := migrations.Create(t.Context(), &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "settlers"},
		Spec:       storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: gvr.Group, Resource: gvr.Resource}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the migration is over", func(ctx context.Context) (bool, error) {
		m, err = migrations.Get(ctx, m.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range m.Status.Conditions {
			if c.Type == string(storagemigrationv1.MigrationFailed) && c.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("it failed: %s", c.Message)
			}
			if c.Type == string(storagemigrationv1.MigrationSucceeded) && c.Status == metav1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// A server listens on the address that it was given, and nowhere else.
func TestOnePortIsOpen(t *testing.T) {
	s := servers(t).a
	sockets := map[string]bool{} // of the server's process, by inode
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.cmd.Process.Pid))
	if err != nil || len(fds) == 0 {
		t.Skip("there is no /proc to look into")
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			sockets[strings.Trim(link, "socket:[]")] = true
		}
	}
	var open []string
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.cmd.Process.Pid, file))
		if err != nil {
			continue // no IPv6
		}
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line) // sl local remote state … inode
			if len(f) > 9 && sockets[f[9]] && (f[3] == "0A" || strings.HasPrefix(file, "udp")) {
				open = append(open, file+" "+f[1])
			}
		}
	}
	if len(open) != 1 || !strings.HasPrefix(open[0], "tcp 0100007F:") {
		t.Fatalf("listening on %v, want one port on 127.0.0.1", open)
	}
}
