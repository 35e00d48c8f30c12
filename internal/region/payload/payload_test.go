package payload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

func user(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "User", Name: name} }

// TestAccountsComeBack: what is read of a payload is what was written, complete, and without
// the region.
func TestAccountsComeBack(t *testing.T) {
	text, err := OfAccount(v1alpha1.AccountSpec{
		Roles: []v1alpha1.AccountRole{v1alpha1.Tenant}, Region: "eu",
		Subjects: []rbacv1.Subject{user("anna"), {Kind: "ServiceAccount", Name: "ci", Namespace: "build"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Account(text)
	want := v1alpha1.AccountSpec{
		Roles:    []v1alpha1.AccountRole{v1alpha1.Tenant},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "anna"}, {Kind: "ServiceAccount", Name: "ci", Namespace: "build"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	if text, err := OfAccount(v1alpha1.AccountSpec{Region: "eu"}); text != "" || err != nil {
		t.Errorf("a spec that says nothing is %q, %v", text, err)
	}
}

// TestWrongAccounts: what no RoleBinding could have is refused with a word on why.
func TestWrongAccounts(t *testing.T) {
	many := make([]rbacv1.Subject, MaxSubjects+1)
	long := make([]rbacv1.Subject, MaxSubjects)
	for i := range many {
		many[i] = user(strings.Repeat("a", i+1))
	}
	for i := range long {
		long[i] = user(strings.Repeat("\x01", 100+i)) // six bytes each in JSON
	}
	for name, test := range map[string]struct {
		spec v1alpha1.AccountSpec
		want string
	}{
		"a role":               {v1alpha1.AccountSpec{Roles: []v1alpha1.AccountRole{"Admin"}}, `the role "Admin" is not known`},
		"a role twice":         {v1alpha1.AccountSpec{Roles: []v1alpha1.AccountRole{"Tenant", "Tenant"}}, "twice"},
		"a nameless subject":   {v1alpha1.AccountSpec{Subjects: []rbacv1.Subject{user("")}}, "must have 1 to"},
		"a subject twice":      {v1alpha1.AccountSpec{Subjects: []rbacv1.Subject{user("a"), user("a")}}, "twice"},
		"a robot":              {v1alpha1.AccountSpec{Subjects: []rbacv1.Subject{{Kind: "Robot", Name: "r"}}}, "its kind must be"},
		"a service account":    {v1alpha1.AccountSpec{Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "ci"}}}, "its namespace"},
		"a user's namespace":   {v1alpha1.AccountSpec{Subjects: []rbacv1.Subject{{Kind: "User", Name: "a", Namespace: "b"}}}, "of no namespace"},
		"too many subjects":    {v1alpha1.AccountSpec{Subjects: many}, "65 subjects"},
		"subjects that escape": {v1alpha1.AccountSpec{Subjects: long}, "bytes, and 16384 can be"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OfAccount(test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestServiceClusters: a service cluster names a Secret, or none.
func TestServiceClusters(t *testing.T) {
	secret := &v1alpha1.SecretReference{Namespace: "initech", Name: "tokyo"}
	text, err := OfServiceCluster(v1alpha1.ServiceClusterSpec{KubeconfigSecret: secret, Region: "ap"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ServiceCluster(text)
	if diff := cmp.Diff(v1alpha1.ServiceClusterSpec{KubeconfigSecret: secret}, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	for _, wrong := range []v1alpha1.SecretReference{{Name: "tokyo"}, {Namespace: "initech"}, {Namespace: "a/b", Name: "tokyo"}, {Namespace: "a", Name: "../b"}} {
		if _, err := OfServiceCluster(v1alpha1.ServiceClusterSpec{KubeconfigSecret: &wrong}); err == nil {
			t.Errorf("the Secret %v was taken", wrong)
		}
	}
}

// FuzzPayload: whatever a claim carries is read or refused; what is read can be written.
func FuzzPayload(f *testing.F) {
	for _, text := range []string{"", "{}", "null", `{"roles":["Tenant"]}`, `{"kubeconfigSecret":{"namespace":"a","name":"b"}}`, `{"roles":["Tenant"]}x`, `{"secret":1}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if spec, err := Account(text); err == nil {
			if _, err := OfAccount(spec); err != nil && len(text) < MaxBytes/6 {
				t.Errorf("%q was read, and cannot be written: %v", text, err)
			}
		}
		if spec, err := ServiceCluster(text); err == nil {
			if _, err := OfServiceCluster(spec); err != nil {
				t.Errorf("%q was read, and cannot be written: %v", text, err)
			}
		}
	})
}
