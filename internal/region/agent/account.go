package agent

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/namespace"
	"github.com/xbernetes/xbernetes/internal/region/payload"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// The ClusterRoles that an agent binds in the namespaces of accounts, each by a RoleBinding of the
// same name. deploy/region has them; what they allow is the region's own affair.
const (
	roleTenant   = "xb-region-tenant"
	roleProvider = "xb-region-provider"
	// roleSecrets lets the agent read the kubeconfigs of a provider.
	roleSecrets = "xb-region-agent-secrets"
)

// accounts is how claims become Accounts.
func (t *term) accounts() projection.Projection[*v1alpha1.Account, *v1alpha1.AccountList] {
	return projection.Projection[*v1alpha1.Account, *v1alpha1.AccountList]{
		Client: t.api.Accounts,
		Make: func(c stored.Claim) (*v1alpha1.Account, error) {
			spec, err := payload.Account(c.Payload)
			spec.Region = string(c.Owner.Home)
			return &v1alpha1.Account{Spec: spec}, err
		},
		Fit: func(have, want *v1alpha1.Account) bool {
			changed := !equality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = want.Spec
			return changed
		},
		Follow: t.followAccount,
		Clear:  t.clearAccount,
	}
}

// namespaceOf is the namespace of an account in this region.
func namespaceOf(a *v1alpha1.Account) namespace.Wanted {
	return namespace.Wanted{Name: a.Name, Account: a.Name, Operation: projection.MadeFor(a)}
}

// followAccount makes the account's namespace, and the bindings in it.
func (t *term) followAccount(ctx context.Context, a *v1alpha1.Account, unread error) error {
	next := *a.Status.DeepCopy()
	ready := func(is bool, reason, message string) error {
		status.Set(&next.Conditions, v1alpha1.ConditionReady, is, reason, message)
		return status.Account(ctx, t.api, a, next)
	}
	if unread != nil {
		return ready(false, status.Unread, unread.Error()+"; an agent of that version is needed")
	}
	state, err := namespace.Ensure(ctx, t.api.Kube.CoreV1().Namespaces(), namespaceOf(a))
	switch {
	case err != nil:
		return err
	case state == namespace.Taken:
		next.Namespace = ""
		return ready(false, "NamespaceTaken", fmt.Sprintf("a namespace %s is there that was not made for this account; nothing in it was changed, and the account has none here", a.Name))
	case state == namespace.Terminating:
		return ready(false, "NamespaceTerminating", fmt.Sprintf("somebody has deleted the namespace %s; it is made again once it is gone", a.Name))
	}
	next.Namespace = a.Name
	missing, err := t.bindAll(ctx, a)
	switch {
	case err != nil:
		return err
	case missing != "":
		return ready(false, "RoleMissing", fmt.Sprintf("the ClusterRole %s is not in this region: its subjects have no rights; apply deploy/region/roles.yaml", missing))
	}
	return ready(true, status.Ready, fmt.Sprintf("the namespace %s is there, and the subjects have their rights", a.Name))
}

// bindAll makes the account's RoleBindings as its roles say, and returns a ClusterRole that is
// needed and missing.
func (t *term) bindAll(ctx context.Context, a *v1alpha1.Account) (missing string, err error) {
	provider := slices.Contains(a.Spec.Roles, v1alpha1.Provider)
	for _, b := range []struct {
		role     string
		wanted   bool
		subjects []rbacv1.Subject
	}{
		{roleTenant, slices.Contains(a.Spec.Roles, v1alpha1.Tenant), a.Spec.Subjects},
		{roleProvider, provider, a.Spec.Subjects},
		{roleSecrets, provider, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: t.self}}},
	} {
		if !b.wanted || len(b.subjects) == 0 {
			if err := t.unbind(ctx, a.Name, b.role); err != nil {
				return "", err
			}
			continue
		}
		_, err := t.api.Kube.RbacV1().ClusterRoles().Get(ctx, b.role, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = b.role
			continue
		case err != nil:
			return "", err
		}
		if err := t.bind(ctx, a, b.role, b.subjects); err != nil {
			return "", err
		}
	}
	return missing, nil
}

// bind makes one RoleBinding as it should be. What a RoleBinding refers to cannot be changed: one
// that refers to another role is made anew.
func (t *term) bind(ctx context.Context, a *v1alpha1.Account, role string, subjects []rbacv1.Subject) error {
	client := t.api.Kube.RbacV1().RoleBindings(a.Name)
	want := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role, Labels: map[string]string{v1alpha1.LabelAccount: a.Name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
	have, err := client.Get(ctx, role, metav1.GetOptions{})
	switch {
	case err == nil && have.RoleRef == want.RoleRef && have.Labels[v1alpha1.LabelAccount] == a.Name && equality.Semantic.DeepEqual(have.Subjects, subjects):
		return nil
	case err == nil && have.RoleRef == want.RoleRef:
		have.Labels, have.Subjects = want.Labels, subjects
		_, err = client.Update(ctx, have, metav1.UpdateOptions{})
		return err
	case err == nil:
		if err := t.unbind(ctx, a.Name, role); err != nil {
			return err
		}
	case !apierrors.IsNotFound(err):
		return err
	}
	_, err = client.Create(ctx, want, metav1.CreateOptions{})
	return err
}

// unbind removes a RoleBinding, if there is one.
func (t *term) unbind(ctx context.Context, in, name string) error {
	err := t.api.Kube.RbacV1().RoleBindings(in).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clearAccount removes the account's namespace, with all that is in it.
func (t *term) clearAccount(ctx context.Context, a *v1alpha1.Account) (bool, error) {
	gone, err := namespace.Remove(ctx, t.api.Kube.CoreV1().Namespaces(), namespaceOf(a))
	if err != nil || gone {
		return gone, err
	}
	next := *a.Status.DeepCopy()
	status.Set(&next.Conditions, v1alpha1.ConditionReady, false, status.Removing, fmt.Sprintf("the account is deleted, and the namespace %s is being removed", a.Name))
	return false, status.Account(ctx, t.api, a, next)
}
