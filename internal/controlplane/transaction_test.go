package controlplane

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/transaction/client"
	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// transactions returns a client of s, as somebody else if change says so.
func transactions(t *testing.T, s *server, change ...func(*rest.Config)) *client.Client {
	t.Helper()
	config := rest.CopyConfig(s.config)
	for _, f := range change {
		f(config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func aMap(namespace, name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i := 0; i < len(data); i += 2 {
		c.Data = map[string]string{data[i]: data[i+1]}
	}
	return c
}

// versionOf reads the resourceVersion of a result.
func versionOf(t *testing.T, r v1alpha1.Result) string {
	t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
		t.Fatal(err)
	}
	return object.ResourceVersion
}

// TestTransaction: a namespace and what goes into it, a change of an object that is
// there, and a deletion are made at one version.
func TestTransaction(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	widgets := kind(t, p.a, "pallet")
	ctx, core := t.Context(), p.a.client.CoreV1()
	for _, name := range []string{"kept", "gone"} {
		if _, err := core.ConfigMaps(ns).Create(ctx, aMap(ns, name, "a", "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	inner := ns + "-inner"
	parcel := object(widgets, "one", map[string]any{"weight": int64(3)})
	parcel.SetNamespace(inner)
	status, err := transactions(t, p.a).Do(ctx,
		client.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inner}}),
		client.Create(aMap(inner, "first", "k", "v")),
		client.Create(parcel),
		client.Patch("v1", "ConfigMap", inner, "first", []byte(`{"data":{"k":"w"}}`)),
		client.Apply(aMap(ns, "kept", "a", "2"), "shop"), // conflicts: see below
	)
	if !apierrors.IsConflict(err) {
		t.Fatalf("%v, %v: want the conflict of field managers", status, err)
	}
	if _, err := core.Namespaces().Get(ctx, inner, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("namespace %s: %v: a transaction that failed left it behind", inner, err)
	}
	status, err = transactions(t, p.a).Do(ctx,
		client.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inner}}),
		client.Create(aMap(inner, "first", "k", "v")),
		client.Create(parcel),
		client.Patch("v1", "ConfigMap", inner, "first", []byte(`{"data":{"k":"w"}}`)),
		client.Patch("v1", "ConfigMap", ns, "kept", []byte(`{"data":{"a":"2"}}`)),
		client.Delete("v1", "ConfigMap", ns, "gone"),
		client.Absent("v1", "ConfigMap", ns, "gone"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if got := versionOf(t, status.Results[i]); got != status.ResourceVersion {
			t.Errorf("result %d is at version %s, and the transaction at %s", i, got, status.ResourceVersion)
		}
	}
	for _, at := range []*server{p.a, p.b} {
		first, err := at.client.CoreV1().ConfigMaps(inner).Get(ctx, "first", metav1.GetOptions{})
		if err != nil || first.Data["k"] != "w" || first.ResourceVersion != status.ResourceVersion {
			t.Errorf("first = %v at %s, %v; want the patched one at %s", first.Data, first.ResourceVersion, err, status.ResourceVersion)
		}
		kept, err := at.client.CoreV1().ConfigMaps(ns).Get(ctx, "kept", metav1.GetOptions{})
		if err != nil || kept.Data["a"] != "2" || kept.ResourceVersion != status.ResourceVersion {
			t.Errorf("kept = %v at %s, %v; want the patched one at %s", kept.Data, kept.ResourceVersion, err, status.ResourceVersion)
		}
		if _, err := at.client.CoreV1().ConfigMaps(ns).Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("gone: %v, want not found", err)
		}
	}
}

// TestTransactionRefuses: for each thing that cannot be, there is one error that says
// which operation it is about, and nothing is written.
func TestTransactionRefuses(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	good := client.Create(aMap(ns, "good"))
	crd := &runtime.RawExtension{Raw: []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"boxes.test.xbernetes.dev"},"spec":{"group":"test.xbernetes.dev","names":{"kind":"Box","plural":"boxes"}}}`)}
	box := &runtime.RawExtension{Raw: []byte(`{"apiVersion":"test.xbernetes.dev/v1","kind":"Box","metadata":{"name":"b","namespace":"default"}}`)}
	event := &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"` + ns + `"},"involvedObject":{"namespace":"` + ns + `"},"reason":"Tested"}`)}
	many := make([]v1alpha1.Operation, v1alpha1.MaxOperations+1)
	for i := range many {
		many[i] = client.Create(aMap(ns, fmt.Sprint("many-", i)))
	}
	for name, c := range map[string]struct {
		operations []v1alpha1.Operation
		reason     metav1.StatusReason
		want       string
	}{
		"no operation":         {nil, metav1.StatusReasonBadRequest, "it may have 1 to 100"},
		"too many":             {many, metav1.StatusReasonBadRequest, "it may have 1 to 100"},
		"no such verb":         {[]v1alpha1.Operation{good, {Verb: "move"}}, metav1.StatusReasonBadRequest, `spec.operations[1] (move): verb "move" is not one of`},
		"no such kind":         {[]v1alpha1.Operation{good, client.Delete("v1", "Pod", ns, "x")}, metav1.StatusReasonBadRequest, "no kind Pod is served in v1"},
		"no such version":      {[]v1alpha1.Operation{good, client.Delete("v9", "ConfigMap", ns, "x")}, metav1.StatusReasonBadRequest, "no kind ConfigMap is served in v9"},
		"no name":              {[]v1alpha1.Operation{good, client.Create(aMap(ns, ""))}, metav1.StatusReasonBadRequest, "metadata.name"},
		"no namespace":         {[]v1alpha1.Operation{good, client.Create(aMap("", "x"))}, metav1.StatusReasonBadRequest, "configmaps live in namespaces, and none is given"},
		"a namespace too many": {[]v1alpha1.Operation{good, client.Delete("v1", "Namespace", ns, "x")}, metav1.StatusReasonBadRequest, "namespaces live in no namespace"},
		"a path for a name":    {[]v1alpha1.Operation{good, client.Delete("v1", "ConfigMap", ns, "a/../b")}, metav1.StatusReasonBadRequest, "is not a name"},
		"another subresource":  {[]v1alpha1.Operation{good, {Verb: v1alpha1.Update, Subresource: "token", Object: good.Object}}, metav1.StatusReasonBadRequest, `subresource "token" is not status`},
		"no object":            {[]v1alpha1.Operation{good, {Verb: v1alpha1.Create}}, metav1.StatusReasonBadRequest, "create takes an object"},
		"a transaction": {[]v1alpha1.Operation{good, client.Create(&v1alpha1.Transaction{TypeMeta: metav1.TypeMeta{APIVersion: "transaction.xbernetes.io/v1alpha1", Kind: "Transaction"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}})},
			metav1.StatusReasonBadRequest, "a transaction cannot be part of another"},
		"empty preconditions":             {[]v1alpha1.Operation{good, client.Unchanged("v1", "ConfigMap", ns, "good", "")}, metav1.StatusReasonBadRequest, "the preconditions name neither a uid nor a resourceVersion"},
		"what expires":                    {[]v1alpha1.Operation{good, {Verb: v1alpha1.Create, Object: event}}, metav1.StatusReasonBadRequest, "what expires by itself cannot be part of a transaction"},
		"a definition beside its objects": {[]v1alpha1.Operation{good, {Verb: v1alpha1.Create, Object: crd}, {Verb: v1alpha1.Create, Object: box}}, metav1.StatusReasonBadRequest, "the CustomResourceDefinition boxes.test.xbernetes.dev is part of the same transaction"},
		"twice the same":                  {[]v1alpha1.Operation{good, good}, metav1.StatusReasonAlreadyExists, `spec.operations[1]`},
		"gone before":                     {[]v1alpha1.Operation{good, client.Delete("v1", "ConfigMap", ns, "good"), client.Exists("v1", "ConfigMap", ns, "good")}, metav1.StatusReasonNotFound, `spec.operations[2]`},
		"there":                           {[]v1alpha1.Operation{good, client.Absent("v1", "ConfigMap", ns, "good")}, metav1.StatusReasonConflict, "the object exists"},
		"changed":                         {[]v1alpha1.Operation{good, client.Unchanged("v1", "Namespace", "", ns, "1")}, metav1.StatusReasonConflict, "resourceVersion is not 1"},
		"invalid":                         {[]v1alpha1.Operation{good, client.Create(aMap(ns, "not_valid"))}, metav1.StatusReasonInvalid, `spec.operations[1] (create ConfigMap`},
		"another server's":                {[]v1alpha1.Operation{good, client.Create(aMap("gone-"+ns, "x"))}, metav1.StatusReasonNotFound, `namespaces "gone-`},
		"not a patch":                     {[]v1alpha1.Operation{good, client.Patch("v1", "ConfigMap", ns, "good", []byte(`[1]`))}, "", `spec.operations[1]`},
		"a whole transaction":             {[]v1alpha1.Operation{good, client.Create(aMap(ns, "large", "k", strings.Repeat("x", 900<<10))), client.Create(aMap(ns, "larger", "k", strings.Repeat("x", 900<<10)))}, metav1.StatusReasonRequestEntityTooLarge, "the transaction touches more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := transactions(t, p.a).Do(t.Context(), c.operations...)
			var status apierrors.APIStatus
			if !errors.As(err, &status) || c.reason != "" && apierrors.ReasonForError(err) != c.reason || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%s), want %s and %q", err, apierrors.ReasonForError(err), c.reason, c.want)
			}
			if _, err := p.a.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "good", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the operation before it: %v, want not found", err)
			}
		})
	}
}

// TestTransactionHasItsUsersRights: each operation needs the right that it needs alone.
func TestTransactionHasItsUsersRights(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	grant(t, p.a, ns, "tess", "configmaps")
	grantCluster(t, p.a, "tess")
	tess := transactions(t, p.a, func(c *rest.Config) { c.Impersonate.UserName = "tess" })
	until(t, "tess may create config maps", func(ctx context.Context) (bool, error) {
		_, err := tess.Do(ctx, client.Create(aMap(ns, "mine")))
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	_, err := tess.Do(t.Context(), client.Create(aMap(ns, "other")), client.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}}))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `spec.operations[1]`) || !strings.Contains(err.Error(), `User "tess" cannot create resource "secrets"`) {
		t.Errorf("%v, want forbidden", err)
	}
	if _, err := p.a.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the operation before it: %v, want not found", err)
	}
}

// TestTransactionReservesQuota: a transaction counts as what is in it, all or nothing.
func TestTransactionReservesQuota(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	used := quotaOf(t, p.a, ns, 4)
	start := used()
	c := transactions(t, p.a)
	left := 4 - start
	var fits []v1alpha1.Operation
	for i := range left {
		fits = append(fits, client.Create(aMap(ns, fmt.Sprint("c", i))))
	}
	_, err := c.Do(t.Context(), append([]v1alpha1.Operation{client.Create(aMap(ns, "more"))}, fits...)...)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Fatalf("%v, want exceeded quota", err)
	}
	if got := used(); got != start {
		t.Errorf("a transaction that failed left %d used, want %d", got, start)
	}
	if _, err := c.Do(t.Context(), fits...); err != nil {
		t.Fatalf("what fits: %v", err)
	}
	if got := used(); got != 4 {
		t.Errorf("%d are used, want 4, at once", got)
	}
}

// TestTransactionIsRemembered: the same idempotency key gives the same answer, and
// changes nothing the second time.
func TestTransactionIsRemembered(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	order := &v1alpha1.Transaction{Spec: v1alpha1.TransactionSpec{IdempotencyKey: "key-" + ns, Operations: []v1alpha1.Operation{
		client.Create(aMap(ns, "once")), client.Exists("v1", "ConfigMap", ns, "once"),
	}}}
	same := func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "rory", Groups: []string{user.SystemPrivilegedGroup}}
	}
	first, err := transactions(t, p.a, same).Create(t.Context(), order, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := transactions(t, p.b, same).Create(t.Context(), order, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !second.Status.Replayed || second.Status.ResourceVersion != first.Status.ResourceVersion || len(second.Status.Results) != 2 ||
		versionOf(t, second.Status.Results[0]) != first.Status.ResourceVersion || second.Status.Results[0].Code != http.StatusCreated {
		t.Errorf("the second answer is %+v, want that of the first: %+v", second.Status, first.Status)
	}
	order.Spec.Operations = order.Spec.Operations[:1]
	if _, err := transactions(t, p.a, same).Create(t.Context(), order, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the key with other operations: %v, want a conflict", err)
	}
}

// TestTransactionDryRun: all is checked, nothing is changed.
func TestTransactionDryRun(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	order := &v1alpha1.Transaction{Spec: v1alpha1.TransactionSpec{Operations: []v1alpha1.Operation{
		client.Create(aMap(ns, "dry")), client.Patch("v1", "ConfigMap", ns, "dry", []byte(`{"data":{"k":"v"}}`)),
	}}}
	done, err := transactions(t, p.a).Create(t.Context(), order, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Status.Results) != 2 || done.Status.ResourceVersion != "" || !strings.Contains(string(done.Status.Results[1].Object.Raw), `"k":"v"`) {
		t.Errorf("the answer is %+v, want both results and no version", done.Status)
	}
	if got := versionOf(t, done.Status.Results[0]); got != "" {
		t.Errorf("a dry run showed version %s", got)
	}
	if _, err := p.a.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the dry run: %v, want not found", err)
	}
}

// grant lets a user create a resource in a namespace.
func grant(t *testing.T, s *server, ns, name, resource string) {
	t.Helper()
	rb := s.client.RbacV1()
	if _, err := rb.Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{resource}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rb.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// grantCluster lets a user post transactions.
func grantCluster(t *testing.T, s *server, name string) {
	t.Helper()
	rb := s.client.RbacV1()
	if _, err := rb.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "transactions-" + name},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"transactions"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rb.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "transactions-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "transactions-" + name},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// quotaOf makes a quota of config maps, waits until it is counted, and returns what
// reads how many are used.
func quotaOf(t *testing.T, s *server, ns string, hard int64) (used func() int) {
	t.Helper()
	const resource = corev1.ResourceName("count/configmaps")
	quotas := s.client.CoreV1().ResourceQuotas(ns)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "maps"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{resource: *apiresource.NewQuantity(hard, apiresource.DecimalSI)}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The root CA's config map comes by itself.
	until(t, "the quota is counted", func(ctx context.Context) (bool, error) {
		q, err := quotas.Get(ctx, "maps", metav1.GetOptions{})
		n := q.Status.Used[resource]
		return err == nil && n.Value() == 1, err
	})
	return func() int {
		q, err := quotas.Get(t.Context(), "maps", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := q.Status.Used[resource]
		return int(n.Value())
	}
}

// TestTransactionIsAudited: the transaction has an entry, and so has each operation, with
// what the user did and which transaction it belongs to. A policy that logs everything
// logs the bodies of the operations, and not that of the transaction.
func TestTransactionIsAudited(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" +
		"- {level: RequestResponse, users: [ann]}\n- {level: RequestResponse, resources: [{group: transaction.xbernetes.io}]}\n- {level: None}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startTest(t, childSettings{
		Addresses: []string{testEtcd(t, "127.0.0.1:0")}, ServerID: "a", LeaderElection: fast, Options: Options{Files: Files{AuditPolicyFile: policy}, AuditLogPath: log},
	})
	ann := transactions(t, s, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "ann", Groups: []string{user.SystemPrivilegedGroup}}
	})
	_, err := ann.Do(t.Context(), client.Create(aMap("default", "audited")), client.Delete("v1", "ConfigMap", "default", "nobody"))
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	type entry struct {
		AuditID, Verb, RequestURI string
		RequestObject             json.RawMessage
		ResponseStatus            struct{ Code int }
		Annotations               map[string]string
	}
	var entries []entry
	until(t, "three entries are logged", func(context.Context) (bool, error) {
		text, err := os.ReadFile(log)
		if err != nil {
			return false, nil
		}
		entries = nil
		for line := range strings.Lines(string(text)) {
			var e entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return false, nil // it is just being written
			}
			entries = append(entries, e)
		}
		return len(entries) == 3, nil
	})
	whole := entries[2]
	if whole.RequestURI != "/apis/transaction.xbernetes.io/v1alpha1/transactions" || whole.ResponseStatus.Code != http.StatusNotFound || whole.RequestObject != nil || entries[0].RequestObject == nil {
		t.Errorf("the transaction's entry is %+v", whole)
	}
	for i, want := range []entry{
		{Verb: "create", RequestURI: "/api/v1/namespaces/default/configmaps"},
		{Verb: "delete", RequestURI: "/api/v1/namespaces/default/configmaps/nobody"},
	} {
		got := entries[i]
		if got.Verb != want.Verb || !strings.HasPrefix(got.RequestURI, want.RequestURI) || got.AuditID != fmt.Sprintf("%s-%d", whole.AuditID, i) ||
			got.Annotations["transaction.xbernetes.io/audit-id"] != whole.AuditID {
			t.Errorf("entry %d is %+v, want %s %s of %s", i, got, want.Verb, want.RequestURI, whole.AuditID)
		}
	}
}

var failures = flag.Int("failures", 900, "how many transactions of TestFailedTransactionsLeaveNothing fail")

// TestFailedTransactionsLeaveNothing: however many transactions fail, and in whichever way, the
// store has the same keys as before, a watch has shown nothing, the quota is free, and no
// goroutine is left.
func TestFailedTransactionsLeaveNothing(t *testing.T) {
	address := testEtcd(t, "127.0.0.1:0")
	s := startTest(t, childSettings{Addresses: []string{address}, ServerID: "a", LeaderElection: fast})
	ns := namespace(t, s)
	used := quotaOf(t, s, ns, 4)
	c := transactions(t, s)
	stale, err := s.client.CoreV1().ConfigMaps(ns).Create(t.Context(), aMap(ns, "there"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale.ResourceVersion = "1"
	ways := []struct {
		name string
		last []v1alpha1.Operation
	}{
		{"invalid", []v1alpha1.Operation{client.Create(aMap(ns, "not_valid"))}},
		{"missing", []v1alpha1.Operation{client.Exists("v1", "ConfigMap", ns, "nobody")}},
		{"taken", []v1alpha1.Operation{client.Create(aMap(ns, "there"))}},
		{"stale", []v1alpha1.Operation{client.Update(stale)}},
		{"of no kind", []v1alpha1.Operation{client.Delete("v1", "Nothing", ns, "there")}},
		{"over quota", []v1alpha1.Operation{client.Create(aMap(ns, "third")), client.Create(aMap(ns, "fourth"))}},
	}
	fail := func(n int) {
		way := ways[n%len(ways)]
		if _, err := c.Do(t.Context(), append([]v1alpha1.Operation{client.Create(aMap(ns, "first"))}, way.last...)...); err == nil {
			t.Fatalf("%s: the transaction was made", way.name)
		}
	}
	for n := range ways { // what is made once is made now
		fail(n)
	}
	list, err := s.client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := s.client.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	keys, before := keysOf(t, address, ns), s.metric(t, "go_goroutines")
	for n := range *failures {
		fail(n)
	}
	if got := used(); got != len(list.Items) {
		t.Errorf("%d are used of the quota, want %d", got, len(list.Items))
	}
	if got := keysOf(t, address, ns); got != keys {
		t.Errorf("the store has %d keys of the namespace, want %d", got, keys)
	}
	if _, err := c.Do(t.Context(), client.Create(aMap(ns, "after"))); err != nil {
		t.Fatal(err)
	}
	if event := <-watch.ResultChan(); event.Type != "ADDED" || event.Object.(*corev1.ConfigMap).Name != "after" {
		t.Errorf("a watch has shown %s of %+v, want that of the transaction that was made", event.Type, event.Object)
	}
	t.Logf("resident: %d MiB", s.metric(t, "process_resident_memory_bytes")>>20)
	until(t, "the goroutines have ended", func(context.Context) (bool, error) { return s.metric(t, "go_goroutines") < before+50, nil })
}

// keysOf counts the keys of a namespace's objects in a store, but for Events.
func keysOf(t *testing.T, address, ns string) (keys int) {
	t.Helper()
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all, err := store.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if name := string(kv.Key); strings.Contains(name, "/"+ns+"/") && !strings.Contains(name, "/events/") {
			keys++
		}
	}
	return keys
}

// metric returns the value of a metric without labels.
func (s *server) metric(t *testing.T, name string) int64 {
	t.Helper()
	metrics, err := s.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(metrics)
	if found == nil {
		t.Fatalf("/metrics has no %s", name)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(value)
}

// TestTransactionInAHangingWebhook: a webhook that does not answer ends the transaction with
// nothing written, and holds nobody else's up.
func TestTransactionInAHangingWebhook(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	hanging := make(chan struct{}, 1)
	over := make(chan struct{})
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hanging <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer hook.Close()
	defer close(over)
	fail, none, second := admissionv1.Fail, admissionv1.SideEffectClassNone, int32(2)
	hooks := p.a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "silent.test.xbernetes.dev", AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &second,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			ClientConfig:      admissionv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hooks.Delete(context.Background(), "silent", metav1.DeleteOptions{}) }()
	c := transactions(t, p.a)
	until(t, "the webhook is asked", func(ctx context.Context) (bool, error) {
		name := fmt.Sprint("probe-", time.Now().UnixNano())
		ended := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, client.Create(aMap(ns, name)), client.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}))
			ended <- err
		}()
		select {
		case err := <-ended:
			return false, err // the webhook is not known yet
		case <-hanging:
		}
		if _, err := c.Do(ctx, client.Create(aMap(ns, "meanwhile")), client.Create(aMap(ns, "too"))); err != nil {
			t.Errorf("another transaction, while one hangs: %v", err)
		}
		err := <-ended
		if err == nil || !strings.Contains(err.Error(), "nothing was changed: spec.operations[1]") || !strings.Contains(err.Error(), "silent.test.xbernetes.dev") {
			t.Errorf("the transaction ended with %v", err)
		}
		if _, err := p.a.client.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("its first object: %v, want not found", err)
		}
		return true, nil
	})
}
