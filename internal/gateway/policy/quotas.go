package policy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// countPrefix begins the resources of a quota that limit how many objects there
// are of a kind.
const countPrefix = "count/"

// coreQuotas are the ResourceQuotas of the core server.
type coreQuotas struct {
	client kubernetes.Interface
	// lister answers from memory; false if it cannot yet.
	lister func(namespace string) ([]*corev1.ResourceQuota, bool)
}

func (c *coreQuotas) in(ctx context.Context, namespace string) ([]*corev1.ResourceQuota, error) {
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

func (c *coreQuotas) limit(ctx context.Context, namespace, resource string) (limit, error) {
	all, err := c.in(ctx, namespace)
	if err != nil {
		return limit{}, err
	}
	return limitOf(all, resource), nil
}

// limitOf is the lowest limit that quotas set on a resource. As in Kubernetes, a
// quota with scopes is not about objects that have none.
func limitOf(all []*corev1.ResourceQuota, resource string) limit {
	least := limit{Hard: noLimit}
	for _, q := range all {
		hard, ok := q.Spec.Hard[corev1.ResourceName(countPrefix+resource)]
		if !ok || scoped(q) {
			continue
		}
		if n := max(hard.Value(), 0); least.Hard == noLimit || n < least.Hard {
			least = limit{Hard: n, Quota: q.Name}
		}
	}
	return least
}

// limited are the resources that quotas limit by count, as resource.group.
func limited(all []*corev1.ResourceQuota) map[string]bool {
	found := map[string]bool{}
	for _, q := range all {
		for name := range q.Spec.Hard {
			if r, ok := strings.CutPrefix(string(name), countPrefix); ok && !scoped(q) {
				found[r] = true
			}
		}
	}
	return found
}

func scoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil
}

// statusOf is the status that a quota should show: what the ledger has counted,
// in place of what it says of those resources. It reports false if it shows that
// already. All other resources are the core server's own.
func statusOf(q *corev1.ResourceQuota, used map[string]int64) (*corev1.ResourceQuota, bool) {
	if scoped(q) {
		return nil, false
	}
	next, changed := q.DeepCopy(), false
	for name, hard := range q.Spec.Hard {
		r, ok := strings.CutPrefix(string(name), countPrefix)
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

// publish shows in the quotas what the ledger has counted.
func (c *coreQuotas) publish(ctx context.Context, namespace string, used map[string]int64) error {
	all, err := c.in(ctx, namespace)
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

// resourceName is how quotas name a resource.
func resourceName(r schema.GroupResource) string { return r.String() }

// groupResource is the inverse of resourceName.
func groupResource(name string) schema.GroupResource { return schema.ParseGroupResource(name) }
