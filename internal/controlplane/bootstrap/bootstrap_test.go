package bootstrap

import (
	"log/slog"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestEnsure: roles and bindings that are missing are created, rights that are
// missing are added, rights that somebody added are kept, and a second run writes
// nothing.
func TestEnsure(t *testing.T) {
	get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}
	list := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}
	subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}}
	}
	want := Policy{
		ClusterRoles:        []rbacv1.ClusterRole{{ObjectMeta: meta("", "new"), Rules: []rbacv1.PolicyRule{get}}, {ObjectMeta: meta("", "changed"), Rules: []rbacv1.PolicyRule{get}}},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{{ObjectMeta: meta("", "new"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "new"}, Subjects: subject}},
		Roles:               []rbacv1.Role{{ObjectMeta: meta("kube-system", "new"), Rules: []rbacv1.PolicyRule{get}}},
		RoleBindings:        []rbacv1.RoleBinding{{ObjectMeta: meta("kube-system", "new"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "new"}, Subjects: subject}},
	}
	client := fake.NewClientset(&rbacv1.ClusterRole{ObjectMeta: meta("", "changed"), Rules: []rbacv1.PolicyRule{list}})
	if err := Ensure(t.Context(), client, want, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	changed, err := client.RbacV1().ClusterRoles().Get(t.Context(), "changed", metav1.GetOptions{})
	if err != nil || len(changed.Rules) != 2 {
		t.Errorf("the role has the rules %v, %v; want both", changed.Rules, err)
	}
	for what, err := range map[string]error{
		"cluster role":         second(client.RbacV1().ClusterRoles().Get(t.Context(), "new", metav1.GetOptions{})),
		"cluster role binding": second(client.RbacV1().ClusterRoleBindings().Get(t.Context(), "new", metav1.GetOptions{})),
		"role":                 second(client.RbacV1().Roles("kube-system").Get(t.Context(), "new", metav1.GetOptions{})),
		"role binding":         second(client.RbacV1().RoleBindings("kube-system").Get(t.Context(), "new", metav1.GetOptions{})),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	client.ClearActions()
	if err := Ensure(t.Context(), client, want, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if !slices.Contains([]string{"list", "get"}, a.GetVerb()) {
			t.Errorf("the second run has sent %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

func second[T any](_ T, err error) error { return err }
