// Package bootstrap creates the default RBAC roles and bindings. It never removes a right that
// somebody has added.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	rbac "k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/xbernetes/xbernetes/internal/backoff"
)

// workers is how many roles are reconciled at a time. The store groups concurrent
// writes, so that a hundred roles cost a few round trips.
const workers = 32

// A Policy is the default roles and bindings.
type Policy struct {
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	Roles               []rbacv1.Role        // each has its namespace
	RoleBindings        []rbacv1.RoleBinding // each has its namespace
}

// Ensure creates the policy, and retries until that has succeeded or ctx ends. It replaces the
// post-start hook of k8s.io/kubernetes/pkg/registry/rbac/rest, which reconciles one object at
// a time and ends the process after 30 seconds. It leaves out that hook's migrations from
// Kubernetes 1.8 and 1.13.
func Ensure(ctx context.Context, client kubernetes.Interface, want Policy, log *slog.Logger) error {
	between := backoff.Backoff{First: 100 * time.Millisecond, Last: 5 * time.Second}
	for n := 1; ; n++ {
		err := reconcile(ctx, client, want)
		if err == nil {
			return nil
		}
		log.Warn("cannot bootstrap the RBAC roles yet; trying again", "error", err)
		if between.Pause(ctx, n) != nil {
			return fmt.Errorf("bootstrap RBAC roles: %w", err)
		}
	}
}

// reconcile tries once to create the policy. It reads the store by four lists, rather than
// object by object, and tries every object even if others fail.
func reconcile(ctx context.Context, client kubernetes.Interface, want Policy) error {
	have, err := list(ctx, client)
	if err != nil {
		return err
	}
	jobs := have.jobs(client, want)
	errs := make([]error, len(jobs))
	var g errgroup.Group
	g.SetLimit(workers)
	for i, job := range jobs {
		g.Go(func() error {
			if ctx.Err() != nil {
				errs[i] = ctx.Err()
				return nil
			}
			errs[i] = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, job)
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// stored holds the RBAC objects in the store, by namespace/name.
type stored struct {
	roles    map[string]rbac.RuleOwner
	bindings map[string]rbac.RoleBinding
}

func list(ctx context.Context, client kubernetes.Interface) (stored, error) {
	var (
		clusterRoles    *rbacv1.ClusterRoleList
		clusterBindings *rbacv1.ClusterRoleBindingList
		roles           *rbacv1.RoleList
		bindings        *rbacv1.RoleBindingList
	)
	g, ctx := errgroup.WithContext(ctx)
	opts := metav1.ListOptions{}
	g.Go(func() (err error) { clusterRoles, err = client.RbacV1().ClusterRoles().List(ctx, opts); return err })
	g.Go(func() (err error) {
		clusterBindings, err = client.RbacV1().ClusterRoleBindings().List(ctx, opts)
		return err
	})
	g.Go(func() (err error) { roles, err = client.RbacV1().Roles("").List(ctx, opts); return err })
	g.Go(func() (err error) { bindings, err = client.RbacV1().RoleBindings("").List(ctx, opts); return err })
	if err := g.Wait(); err != nil {
		return stored{}, fmt.Errorf("list RBAC objects: %w", err)
	}
	p := stored{map[string]rbac.RuleOwner{}, map[string]rbac.RoleBinding{}}
	for i := range clusterRoles.Items {
		o := rbac.ClusterRoleRuleOwner{ClusterRole: &clusterRoles.Items[i]}
		p.roles["/"+o.GetName()] = o
	}
	for i := range roles.Items {
		o := rbac.RoleRuleOwner{Role: &roles.Items[i]}
		p.roles[o.GetNamespace()+"/"+o.GetName()] = o
	}
	for i := range clusterBindings.Items {
		o := rbac.ClusterRoleBindingAdapter{ClusterRoleBinding: &clusterBindings.Items[i]}
		p.bindings["/"+o.GetName()] = o
	}
	for i := range bindings.Items {
		o := rbac.RoleBindingAdapter{RoleBinding: &bindings.Items[i]}
		p.bindings[o.GetNamespace()+"/"+o.GetName()] = o
	}
	return p, nil
}

// jobs reconcile one object each.
func (p stored) jobs(client kubernetes.Interface, want Policy) []func() error {
	var jobs []func() error
	clusterRoles := rbac.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}
	for _, r := range want.ClusterRoles {
		jobs = append(jobs, p.role(rbac.ClusterRoleRuleOwner{ClusterRole: &r}, clusterRoles))
	}
	clusterBindings := rbac.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}
	for _, b := range want.ClusterRoleBindings {
		jobs = append(jobs, p.binding(rbac.ClusterRoleBindingAdapter{ClusterRoleBinding: &b}, clusterBindings))
	}
	roles := rbac.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}
	for _, r := range want.Roles {
		jobs = append(jobs, p.role(rbac.RoleRuleOwner{Role: &r}, roles))
	}
	bindings := rbac.RoleBindingClientAdapter{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}
	for _, b := range want.RoleBindings {
		jobs = append(jobs, p.binding(rbac.RoleBindingAdapter{RoleBinding: &b}, bindings))
	}
	return jobs
}

func (p stored) role(want rbac.RuleOwner, client rbac.RuleOwnerModifier) func() error {
	key := want.GetNamespace() + "/" + want.GetName()
	opts := rbac.ReconcileRoleOptions{
		Role:    want,
		Client:  &listedRole{RuleOwnerModifier: client, listed: p.roles[key]},
		Confirm: true,
	}
	return func() error {
		if _, err := opts.Run(); err != nil {
			return fmt.Errorf("reconcile role %s: %w", key, err)
		}
		return nil
	}
}

func (p stored) binding(want rbac.RoleBinding, client rbac.RoleBindingModifier) func() error {
	key := want.GetNamespace() + "/" + want.GetName()
	opts := rbac.ReconcileRoleBindingOptions{
		RoleBinding: want,
		Client:      &listedBinding{RoleBindingModifier: client, listed: p.bindings[key]},
		Confirm:     true,
	}
	return func() error {
		if _, err := opts.Run(); err != nil {
			return fmt.Errorf("reconcile role binding %s: %w", key, err)
		}
		return nil
	}
}

// listedRole answers the first Get from the list. Later Gets, which follow a
// conflict with another server, it answers from the store.
type listedRole struct {
	rbac.RuleOwnerModifier
	listed rbac.RuleOwner
	used   bool
}

func (l *listedRole) Get(namespace, name string) (rbac.RuleOwner, error) {
	if l.used {
		return l.RuleOwnerModifier.Get(namespace, name)
	}
	l.used = true
	if l.listed == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
	}
	return l.listed, nil
}

// listedBinding does the same for bindings.
type listedBinding struct {
	rbac.RoleBindingModifier
	listed rbac.RoleBinding
	used   bool
}

func (l *listedBinding) Get(namespace, name string) (rbac.RoleBinding, error) {
	if l.used {
		return l.RoleBindingModifier.Get(namespace, name)
	}
	l.used = true
	if l.listed == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
	}
	return l.listed, nil
}
