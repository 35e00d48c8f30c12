package core

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// CountPrefix begins the names by which a quota limits how many objects there are
// of a resource: count/<resource>.<group>.
const CountPrefix = "count/"

// Quotas has the core server's ResourceQuotas. It implements quota.Limits.
type Quotas struct {
	client kubernetes.Interface
	lister func(namespace string) ([]*corev1.ResourceQuota, bool)
}

// NewQuotas makes Quotas. lister answers from memory, and is false while it cannot.
func NewQuotas(client kubernetes.Interface, lister func(namespace string) ([]*corev1.ResourceQuota, bool)) *Quotas {
	return &Quotas{client, lister}
}

// Cached returns a namespace's quotas from memory; false while it cannot.
func (c *Quotas) Cached(namespace string) ([]*corev1.ResourceQuota, bool) { return c.lister(namespace) }

// In returns a namespace's quotas, from memory if it can.
func (c *Quotas) In(ctx context.Context, namespace string) ([]*corev1.ResourceQuota, error) {
	if all, ok := c.lister(namespace); ok {
		return all, nil
	}
	list, err := c.client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []*corev1.ResourceQuota
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// Limit implements quota.Limits.
func (c *Quotas) Limit(ctx context.Context, namespace, resource string) (quota.Limit, error) {
	all, err := c.In(ctx, namespace)
	if err != nil {
		return quota.Limit{}, err
	}
	return limitOf(all, resource), nil
}

// limitOf is the lowest limit that quotas set on a resource. As in Kubernetes, a
// quota with scopes is not about objects that have none.
func limitOf(all []*corev1.ResourceQuota, resource string) quota.Limit {
	least := quota.Limit{Hard: ledger.NoLimit}
	for _, q := range all {
		hard, ok := q.Spec.Hard[corev1.ResourceName(CountPrefix+resource)]
		if !ok || scoped(q) {
			continue
		}
		if n := max(hard.Value(), 0); least.Hard == ledger.NoLimit || n < least.Hard {
			least = quota.Limit{Hard: n, Quota: q.Name}
		}
	}
	return least
}

// Limited has the resources that quotas limit by count, as resource.group.
func Limited(all []*corev1.ResourceQuota) map[string]bool {
	found := map[string]bool{}
	for _, q := range all {
		for name := range q.Spec.Hard {
			if r, ok := strings.CutPrefix(string(name), CountPrefix); ok && !scoped(q) {
				found[r] = true
			}
		}
	}
	return found
}

func scoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil
}

// statusOf returns a quota with the status that it should show: used, which a
// ledger has counted, for the resources that used has. It returns false if the quota
// shows that already. Of all other resources the status is the core server's own.
func statusOf(q *corev1.ResourceQuota, used map[string]int64) (*corev1.ResourceQuota, bool) {
	if scoped(q) {
		return nil, false
	}
	next, changed := q.DeepCopy(), false
	for name, hard := range q.Spec.Hard {
		r, ok := strings.CutPrefix(string(name), CountPrefix)
		n, counted := used[r]
		if !ok || !counted {
			continue
		}
		if was, ok := q.Status.Used[name]; !ok || was.Value() != n {
			if next.Status.Used == nil {
				next.Status.Used = corev1.ResourceList{}
			}
			next.Status.Used[name], changed = *resource.NewQuantity(n, resource.DecimalSI), true
		}
		if was, ok := q.Status.Hard[name]; !ok || was.Cmp(hard) != 0 {
			if next.Status.Hard == nil {
				next.Status.Hard = corev1.ResourceList{}
			}
			next.Status.Hard[name], changed = hard, true
		}
	}
	return next, changed
}

// Publish shows in the quotas what the ledger has counted.
func (c *Quotas) Publish(ctx context.Context, namespace string, used map[string]int64) error {
	all, err := c.In(ctx, namespace)
	if err != nil {
		return fmt.Errorf("list the quotas of namespace %s: %w", namespace, err)
	}
	for _, q := range all {
		next, changed := statusOf(q, used)
		if !changed {
			continue
		}
		if _, err := c.client.CoreV1().ResourceQuotas(namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("show what is used in quota %s of namespace %s: %w", q.Name, namespace, err)
		}
	}
	return nil
}
