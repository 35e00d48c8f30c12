package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// world is two regions, eu and ap, with an agent in each that has the shipped rights, and a
// service cluster.
type world struct {
	*testing.T
	regions map[string]*region
	all     *client.Regions
	tokyo   *rest.Config // of the service cluster
	rights  rights       // that the agents have needed
}

// region is one region.
type region struct {
	name   string
	config *rest.Config
	api    *local.API
}

func newWorld(t *testing.T) *world {
	binary := regiontest.Binary(t)
	w := &world{T: t, regions: map[string]*region{}, rights: rights{used: sets.New[right]()}}
	servers := map[string]*regiontest.Server{}
	for _, name := range []string{"eu", "ap", "tokyo"} {
		servers[name] = regiontest.Start(t, binary)
	}
	config := client.Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for name, s := range servers {
		reached := s.Ready(t)
		if name == "tokyo" {
			w.tokyo = reached
			continue
		}
		config.Regions[name] = reached
		reach, err := local.New(name, reached)
		w.must(err)
		w.regions[name] = &region{name, reached, reach}
	}
	var err error
	w.all, err = client.Open(config, nil)
	w.must(err)
	for _, name := range []string{"eu", "ap"} {
		w.must(w.all.Join(t.Context(), name))
		w.deploy(w.regions[name])
		w.run(w.regions[name])
	}
	return w
}

// deploy applies the shipped roles.
func (w *world) deploy(r *region) {
	w.Helper()
	ctx := w.Context()
	for _, file := range []string{"roles.yaml", "agent.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "region", file))
		w.must(err)
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var kind metav1.TypeMeta
			w.must(yaml.Unmarshal([]byte(doc), &kind))
			switch kind.Kind {
			case "Namespace":
				w.must(create(ctx, doc, r.api.Kube.CoreV1().Namespaces().Create))
			case "ServiceAccount":
				w.must(create(ctx, doc, r.api.Kube.CoreV1().ServiceAccounts("xb-region").Create))
			case "ClusterRole":
				w.must(create(ctx, doc, r.api.Kube.RbacV1().ClusterRoles().Create))
			case "ClusterRoleBinding":
				w.must(create(ctx, doc, r.api.Kube.RbacV1().ClusterRoleBindings().Create))
			case "Role":
				w.must(create(ctx, doc, r.api.Kube.RbacV1().Roles("xb-region").Create))
			case "RoleBinding":
				w.must(create(ctx, doc, r.api.Kube.RbacV1().RoleBindings("xb-region").Create))
			default:
				w.Fatalf("%s has a %s, which this test does not apply", file, kind.Kind)
			}
		}
	}
}

func create[T any](ctx context.Context, doc string, do func(context.Context, *T, metav1.CreateOptions) (*T, error)) error {
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
		return err
	}
	_, err := do(ctx, o, metav1.CreateOptions{})
	return err
}

// run runs an agent in a region, with the rights of its service account.
func (w *world) run(r *region) {
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:xb-region:xb-region-agent",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:xb-region", "system:authenticated"},
	}
	config.Wrap(w.rights.note)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(w.Output(), nil)).With("agent", r.name)
	go func() {
		ended <- Run(ctx, Config{Region: r.name, API: config, Namespace: "xb-region", Identity: "test", Log: log, Metrics: prometheus.NewPedanticRegistry()})
	}()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// in is the library in a region.
func (w *world) in(name string) *client.Region {
	w.Helper()
	r, err := w.all.In(name)
	w.must(err)
	return r
}

func (w *world) create(in string, kind client.Kind, name string, spec client.Spec) {
	w.Helper()
	_, err := w.in(in).Create(w.Context(), kind, name, client.Options{Spec: spec})
	w.must(err)
}

func (w *world) delete(in string, kind client.Kind, name string) {
	w.Helper()
	_, err := w.in(in).Delete(w.Context(), kind, name, client.Options{})
	w.must(err)
}

// comes waits until is returns "", and fails with what it says if it never does.
func (w *world) comes(what string, is func() string) {
	w.Helper()
	why := ""
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if why = is(); why == "" {
			return
		}
	}
	w.Fatalf("%s: it never comes: %s", what, why)
}

// condition says how a condition differs from what is wanted.
func condition(all []metav1.Condition, kind, status, reason string, err error) string {
	if err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(all, kind)
	if c == nil {
		return "there is no condition " + kind
	}
	if string(c.Status) != status || c.Reason != reason {
		return fmt.Sprintf("%s is %s %s: %s; want %s %s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	return ""
}

func (w *world) account(in, name, status, reason string) {
	w.Helper()
	w.comes("account "+name+" in "+in, func() string {
		a, err := w.regions[in].api.Accounts.Get(w.Context(), name, metav1.GetOptions{})
		return condition(a.Status.Conditions, v1alpha1.ConditionReady, status, reason, err)
	})
}

func (w *world) cluster(in, name, status, reason string) {
	w.Helper()
	w.comes("service cluster "+name+" in "+in, func() string {
		c, err := w.regions[in].api.ServiceClusters.Get(w.Context(), name, metav1.GetOptions{})
		return condition(c.Status.Conditions, v1alpha1.ConditionReady, status, reason, err)
	})
}

// absent waits until get finds nothing.
func (w *world) absent(what string, get func() error) {
	w.Helper()
	w.comes(what, func() string {
		if err := get(); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is still there (%v)", err)
		}
		return ""
	})
}

// as is a region's API as one of its users.
func (w *world) as(in, user string) kubernetes.Interface {
	config := rest.CopyConfig(w.regions[in].config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	k, err := kubernetes.NewForConfig(config)
	w.must(err)
	return k
}

// kubeconfig is one with which the service cluster can be reached, by another address if that is
// not empty.
func (w *world) kubeconfig(server string) []byte {
	c := api.NewConfig()
	c.Clusters["a"] = &api.Cluster{Server: w.tokyo.Host, CertificateAuthorityData: w.tokyo.CAData}
	if server != "" {
		c.Clusters["a"].Server = server
	}
	c.AuthInfos["a"] = &api.AuthInfo{ClientCertificateData: w.tokyo.CertData, ClientKeyData: w.tokyo.KeyData, Token: w.tokyo.BearerToken}
	c.Contexts["a"] = &api.Context{Cluster: "a", AuthInfo: "a"}
	c.CurrentContext = "a"
	text, err := clientcmd.Write(*c)
	w.must(err)
	return text
}

// secret writes a kubeconfig into a provider's namespace, as that provider.
func (w *world) secret(in, user, name string, kubeconfig []byte, labels map[string]string) {
	w.Helper()
	_, err := w.as(in, user).CoreV1().Secrets("initech").Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{"kubeconfig": kubeconfig},
	}, metav1.CreateOptions{})
	w.must(err)
}

func account(role v1alpha1.AccountRole, user string) client.Spec {
	return client.Spec{Account: &v1alpha1.AccountSpec{Roles: []v1alpha1.AccountRole{role}, Subjects: []rbacv1.Subject{{Kind: "User", Name: user}}}}
}

func secretNamed(name string) client.Spec {
	return client.Spec{ServiceCluster: &v1alpha1.ServiceClusterSpec{KubeconfigSecret: &v1alpha1.SecretReference{Namespace: "initech", Name: name}}}
}

// TestAgents: what follows from names is made in each region, put back if somebody changes it,
// and removed with the name; nothing of others is touched; a service cluster that is away or
// hostile holds up no other. The agents need all the rights that are shipped for them, and no
// others.
func TestAgents(t *testing.T) {
	w := newWorld(t)
	w.accounts()
	w.serviceClusters()
	w.assignments()
	w.catalog()
	w.putBack()
	w.removed()
	w.must(w.all.Remove(t.Context(), "ap", false))
	w.absent("the Region of ap", func() error {
		_, err := w.regions["eu"].api.Regions.Get(t.Context(), "ap", metav1.GetOptions{})
		return err
	})
	w.rights.minimal(t)
}

// accounts creates a provider and a tenant, who have their rights in each region, and no others.
func (w *world) accounts() {
	ctx := w.Context()
	w.create("ap", client.Account, "initech", account(v1alpha1.Provider, "bob"))
	w.create("eu", client.Account, "team-a", account(v1alpha1.Tenant, "anna"))
	w.create("eu", client.Account, "kube-system", account(v1alpha1.Tenant, "anna"))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	for in := range w.regions {
		w.account(in, "initech", "True", "Ready")
		w.account(in, "team-a", "True", "Ready")
		w.account(in, "kube-system", "False", "NamespaceTaken")
		w.comes("the Event of the account kube-system in "+in, func() string {
			all, err := w.regions[in].api.Kube.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=NamespaceTaken,type=Warning,involvedObject.name=kube-system"})
			if err != nil || len(all.Items) != 1 {
				return fmt.Sprintf("there are %v, %v", all, err)
			}
			return ""
		})
		w.comes("anna's rights in "+in, func() string { // the server's authorizer learns of them by a watch
			if _, err := w.as(in, "anna").CoreV1().ConfigMaps("team-a").Create(ctx, config, metav1.CreateOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
		for _, other := range []string{"initech", "kube-system", "default"} {
			if _, err := w.as(in, "anna").CoreV1().ConfigMaps(other).Create(ctx, config, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
				w.Errorf("anna writes to %s in %s: %v", other, in, err)
			}
		}
		system, err := w.regions[in].api.Kube.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		if err != nil || system.Labels[v1alpha1.LabelAccount] != "" || len(system.Annotations) != 0 {
			w.Errorf("the namespace kube-system in %s was changed: %v, %v", in, system, err)
		}
		bindings, err := w.regions[in].api.Kube.RbacV1().RoleBindings("kube-system").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelAccount})
		if err != nil || len(bindings.Items) != 0 {
			w.Errorf("somebody was given rights to kube-system: %v, %v", bindings, err)
		}
		w.comes("the Regions of "+in, func() string {
			regions, err := w.regions[in].api.Regions.List(ctx, metav1.ListOptions{})
			if err != nil || len(regions.Items) != 2 || regions.Items[0].Status.State != "Active" || regions.Items[1].Status.State != "Active" {
				return fmt.Sprintf("they are %v, %v", regions, err)
			}
			return ""
		})
	}
}

// serviceClusters creates one that works, and all sorts that do not.
func (w *world) serviceClusters() {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	w.must(err)
	w.Cleanup(func() { _ = silent.Close() })
	ours := func(name string) map[string]string { return map[string]string{v1alpha1.LabelServiceCluster: name} }
	exec := []byte(strings.Replace(string(w.kubeconfig("")), "client-certificate-data", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}\n    client-certificate-data", 1))
	w.secret("ap", "bob", "silent", w.kubeconfig("https://"+silent.Addr().String()), ours("silent"))
	w.secret("ap", "bob", "exec", exec, ours("exec"))
	w.secret("ap", "bob", "stolen", w.kubeconfig(""), ours("another"))
	w.secret("ap", "bob", "none", []byte("no kubeconfig"), ours("none"))
	for _, name := range []string{"silent", "exec", "stolen", "none", "missing"} {
		w.create("eu", client.ServiceCluster, "x"+name, client.Spec{})
		w.create("ap", client.ServiceCluster, name, secretNamed(name))
	}
	w.create("ap", client.ServiceCluster, "tokyo", secretNamed("tokyo"))
	w.cluster("ap", "tokyo", "False", "SecretMissing")
	w.secret("ap", "bob", "tokyo", w.kubeconfig(""), ours("tokyo"))
	w.cluster("ap", "tokyo", "True", "Ready")
	w.cluster("ap", "silent", "False", "Unreachable")
	w.cluster("ap", "exec", "False", "KubeconfigRefused")
	w.cluster("ap", "stolen", "False", "SecretNotLabelled")
	w.cluster("ap", "none", "False", "KubeconfigRefused")
	w.cluster("ap", "missing", "False", "SecretMissing")
	w.cluster("eu", "xnone", "False", "NoKubeconfig")
	elsewhere, err := w.regions["eu"].api.ServiceClusters.Get(w.Context(), "tokyo", metav1.GetOptions{})
	if err != nil || elsewhere.Spec.Region != "ap" || len(elsewhere.Status.Conditions) != 0 {
		w.Errorf("in eu, tokyo is %+v, %v; want ap's, without conditions", elsewhere, err)
	}
}

// assigned waits until tokyo has a namespace for team-a, and returns it.
func (w *world) assigned() *corev1.Namespace {
	w.Helper()
	name := ""
	w.comes("the assignment", func() string {
		a, err := w.regions["ap"].api.Assignments.Get(w.Context(), "tokyo.team-a", metav1.GetOptions{})
		name = a.Status.Namespace
		return condition(a.Status.Conditions, v1alpha1.ConditionReady, "True", "Ready", err)
	})
	n, err := w.onTokyo().CoreV1().Namespaces().Get(w.Context(), name, metav1.GetOptions{})
	w.must(err)
	return n
}

func (w *world) onTokyo() kubernetes.Interface {
	k, err := kubernetes.NewForConfig(w.tokyo)
	w.must(err)
	return k
}

func (w *world) assignments() {
	w.create("eu", client.Assignment, "silent/team-a", client.Spec{})
	w.create("eu", client.Assignment, "tokyo/team-a", client.Spec{})
	if n := w.assigned(); n.Labels[v1alpha1.LabelAccount] != "team-a" {
		w.Errorf("the namespace on tokyo is %v", n)
	}
	w.comes("the assignment to a silent cluster", func() string {
		a, err := w.regions["ap"].api.Assignments.Get(w.Context(), "silent.team-a", metav1.GetOptions{})
		return condition(a.Status.Conditions, v1alpha1.ConditionReady, "False", "ServiceClusterNotReady", err)
	})
}

// definitions are those of any server.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// widgets are what an operator on tokyo would look after.
const widgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
spec: {group: example.com, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object,
properties: {spec: {type: object, properties: {size: {type: integer, maximum: 9}, admin: {type: string}}},
status: {type: object, properties: {phase: {type: string}, secret: {type: string}}}}}}}]}}`

// theirs and ours are the widgets of team-a, on tokyo and in ap.
func (w *world) theirs() dynamic.ResourceInterface {
	k, err := dynamic.NewForConfig(w.tokyo)
	w.must(err)
	return k.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace(w.assigned().Name)
}

func (w *world) ours() dynamic.ResourceInterface { return w.widgetsOf("anna", "team-a") }

func (w *world) widgetsOf(user, namespace string) dynamic.ResourceInterface {
	config := rest.CopyConfig(w.regions["ap"].config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	k, err := dynamic.NewForConfig(config)
	w.must(err)
	return k.Resource(schema.GroupVersionResource{Group: v1alpha1.CatalogGroupName, Version: "v1", Resource: "widgets"}).Namespace(namespace)
}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.CatalogGroupName + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// synced waits until an instance in ap has the condition, and returns it.
func (w *world) synced(name, status, reason string) *unstructured.Unstructured {
	w.Helper()
	var have *unstructured.Unstructured
	w.comes("the widget "+name, func() string {
		var err error
		if have, err = w.ours().Get(w.Context(), name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		all, _, _ := unstructured.NestedSlice(have.Object, "status", "conditions")
		for _, c := range all {
			if c := c.(map[string]any); c["type"] == v1alpha1.ConditionSynced && c["status"] == status && c["reason"] == reason {
				return ""
			}
		}
		return fmt.Sprintf("its conditions are %v, want %s %s", all, status, reason)
	})
	return have
}

// catalog offers a kind of tokyo to team-a, which makes instances of it and sees their status.
func (w *world) catalog() {
	ctx := w.Context()
	k, err := dynamic.NewForConfig(w.tokyo)
	w.must(err)
	crd := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(widgets), &crd.Object))
	_, err = k.Resource(definitions).Create(ctx, crd, metav1.CreateOptions{})
	w.must(err)
	entries := w.regions["ap"].api.Entries
	for in, name := range map[string]string{"initech": "widgets", "team-a": "stolen"} {
		_, err := entries(in).Create(ctx, &v1alpha1.CatalogEntry{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CatalogEntrySpec{
			ServiceCluster: "tokyo", CRD: "widgets.example.com", Accounts: []string{"team-a"},
			Fields: []string{"spec.size", "status.phase"},
		}}, metav1.CreateOptions{})
		w.must(err)
	}
	w.entry("initech", "widgets", "True", "Ready")
	w.entry("team-a", "stolen", "False", "NotTheProvider")

	w.comes("anna's right to widgets", func() string {
		_, err := w.ours().Create(ctx, widget("one", map[string]any{"size": int64(3), "admin": "anna"}), metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	w.synced("one", "True", "Synced")
	theirs, err := w.theirs().Get(ctx, "one", metav1.GetOptions{})
	w.must(err)
	if diff := cmp.Diff(map[string]any{"size": int64(3)}, theirs.Object["spec"]); diff != "" {
		w.Errorf("what tokyo has of anna's widget differs: %s", diff)
	}
	theirs.Object["status"] = map[string]any{"phase": "Running", "secret": "x"}
	_, err = w.theirs().UpdateStatus(ctx, theirs, metav1.UpdateOptions{})
	w.must(err)
	w.comes("the status of anna's widget", func() string {
		status := w.synced("one", "True", "Synced").Object["status"].(map[string]any)
		if status["phase"] != "Running" || status["secret"] != nil {
			return fmt.Sprintf("it is %v", status)
		}
		return ""
	})

	_, err = w.ours().Create(ctx, widget("large", map[string]any{"size": int64(10)}), metav1.CreateOptions{})
	w.must(err)
	w.synced("large", "False", "Refused")
	theirOwn := widget("taken", nil)
	theirOwn.SetAPIVersion("example.com/v1")
	_, err = w.theirs().Create(ctx, theirOwn, metav1.CreateOptions{})
	w.must(err)
	_, err = w.ours().Create(ctx, widget("taken", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	w.must(err)
	w.synced("taken", "False", "NameTaken")
	for _, name := range []string{"one", "taken", "large"} {
		w.must(w.ours().Delete(ctx, name, metav1.DeleteOptions{}))
		w.absent("anna's widget "+name, func() error {
			_, err := w.ours().Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}
	if _, err := w.theirs().Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.Errorf("anna's widget is gone in ap, and on tokyo it is not: %v", err)
	}
	if kept, err := w.theirs().Get(ctx, "taken", metav1.GetOptions{}); err != nil || kept.Object["spec"] != nil {
		w.Errorf("a widget of tokyo's own was changed: %v, %v", kept, err)
	}
	_, err = w.ours().Create(ctx, widget("left", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	w.must(err)
	w.synced("left", "True", "Synced")
}

func (w *world) entry(in, name, status, reason string) {
	w.Helper()
	w.comes("the entry "+name, func() string {
		e, err := w.regions["ap"].api.Entries(in).Get(w.Context(), name, metav1.GetOptions{})
		return condition(e.Status.Conditions, v1alpha1.ConditionReady, status, reason, err)
	})
}

// putBack changes and deletes what agents have made while the names stand.
func (w *world) putBack() {
	ctx, ap := w.Context(), w.regions["ap"].api
	before, err := ap.Kube.CoreV1().Namespaces().Get(ctx, "team-a", metav1.GetOptions{})
	w.must(err)
	there := w.assigned()
	a, err := ap.Accounts.Get(ctx, "team-a", metav1.GetOptions{})
	w.must(err)
	a.Spec.Subjects[0].Name = "mallory"
	_, err = ap.Accounts.Update(ctx, a, metav1.UpdateOptions{})
	w.must(err)
	b, err := ap.Kube.RbacV1().RoleBindings("team-a").Get(ctx, roleTenant, metav1.GetOptions{})
	w.must(err)
	b.Subjects[0].Name = "mallory"
	_, err = ap.Kube.RbacV1().RoleBindings("team-a").Update(ctx, b, metav1.UpdateOptions{})
	w.must(err)
	w.comes("anna instead of mallory", func() string {
		a, err := ap.Accounts.Get(ctx, "team-a", metav1.GetOptions{})
		w.must(err)
		b, err := ap.Kube.RbacV1().RoleBindings("team-a").Get(ctx, roleTenant, metav1.GetOptions{})
		w.must(err)
		if a.Spec.Subjects[0].Name != "anna" || b.Subjects[0].Name != "anna" {
			return fmt.Sprintf("%v and %v", a.Spec.Subjects, b.Subjects)
		}
		return ""
	})

	w.must(ap.Accounts.Delete(ctx, "team-a", metav1.DeleteOptions{}))
	w.must(ap.Assignments.Delete(ctx, "tokyo.team-a", metav1.DeleteOptions{}))
	w.comes("the account again", func() string {
		again, err := ap.Accounts.Get(ctx, "team-a", metav1.GetOptions{})
		if err != nil || again.UID == a.UID {
			return fmt.Sprintf("it is %v, %v", again.UID, err)
		}
		return ""
	})
	w.account("ap", "team-a", "True", "Ready")
	after, err := ap.Kube.CoreV1().Namespaces().Get(ctx, "team-a", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		w.Errorf("the namespace of an account was lost with an object that is made of it: %v", err)
	}
	if again := w.assigned(); again.UID != there.UID {
		w.Error("the namespace on tokyo was lost with an object that is made of its assignment")
	}
}

// removed deletes the names, and with them all that followed.
func (w *world) removed() {
	ctx := w.Context()
	there := w.assigned()
	w.must(w.regions["ap"].api.Entries("initech").Delete(ctx, "widgets", metav1.DeleteOptions{}))
	w.entry("initech", "widgets", "False", "InUse")
	w.delete("eu", client.Assignment, "tokyo/team-a")
	w.absent("the namespace on tokyo", func() error {
		_, err := w.onTokyo().CoreV1().Namespaces().Get(ctx, there.Name, metav1.GetOptions{})
		return err
	})
	w.synced("left", "False", "NotAssigned")
	w.delete("eu", client.ServiceCluster, "tokyo")
	w.delete("ap", client.Account, "kube-system")
	w.delete("ap", client.Assignment, "silent/team-a")
	w.delete("ap", client.Account, "team-a")
	for in, r := range w.regions {
		w.absent("tokyo in "+in, func() error {
			_, err := r.api.ServiceClusters.Get(ctx, "tokyo", metav1.GetOptions{})
			return err
		})
		for _, name := range []string{"team-a", "kube-system"} {
			w.absent("account "+name+" in "+in, func() error {
				_, err := r.api.Accounts.Get(ctx, name, metav1.GetOptions{})
				return err
			})
		}
		if _, err := r.api.Kube.CoreV1().Namespaces().Get(ctx, "team-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			w.Errorf("the account is gone in %s, and its namespace is not: %v", in, err)
		}
		if n, err := r.api.Kube.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); err != nil || n.DeletionTimestamp != nil {
			w.Errorf("the namespace kube-system in %s was removed: %v", in, err)
		}
	}
	w.absent("the entry, of which nobody has an instance", func() error {
		_, err := w.regions["ap"].api.Entries("initech").Get(ctx, "widgets", metav1.GetOptions{})
		return err
	})
	w.absent("the entry's definition", func() error {
		_, err := w.regions["ap"].api.Dynamic.Resource(definitions).Get(ctx, "widgets."+v1alpha1.CatalogGroupName, metav1.GetOptions{})
		return err
	})
	// The namespace on a service cluster that does not answer may still be there.
	w.comes("the assignment to a silent cluster", func() string {
		a, err := w.regions["ap"].api.Assignments.Get(ctx, "silent.team-a", metav1.GetOptions{})
		if err != nil || a.DeletionTimestamp == nil {
			return fmt.Sprintf("it is %v, %v", a.DeletionTimestamp, err)
		}
		return ""
	})
}
