package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

const (
	// limitRangeTime is how long the limit ranges of a namespace are remembered:
	// as long as Kubernetes' own plugin does.
	limitRangeTime = 30 * time.Second
	// limitRangeNamespaces is how many namespaces are remembered.
	limitRangeNamespaces = 4096
)

// limitRanges are the LimitRanges of the core server, if it has any: xb's own
// servers do not.
type limitRanges struct {
	client kubernetes.Interface
	cached *cache.LRUExpireCache
}

func newLimitRanges(client kubernetes.Interface) *limitRanges {
	return &limitRanges{client, cache.NewLRUExpireCache(limitRangeNamespaces)}
}

// of are the limits that a namespace sets on a kind. A limit on a kind that
// Kubernetes does not know has the type <group>/<Kind>.
func (l *limitRanges) of(ctx context.Context, namespace, group, kind string) ([]corev1.LimitRangeItem, error) {
	if l == nil || group == "" {
		return nil, nil
	}
	items, ok := l.cached.Get(namespace)
	if !ok {
		list, err := l.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list the limit ranges of namespace %s: %w", namespace, err)
		}
		var all []corev1.LimitRangeItem
		if err == nil {
			for _, r := range list.Items {
				all = append(all, r.Spec.Limits...)
			}
		}
		l.cached.Add(namespace, all, limitRangeTime)
		items = all
	}
	return slices.DeleteFunc(slices.Clone(items.([]corev1.LimitRangeItem)), func(i corev1.LimitRangeItem) bool {
		return string(i.Type) != group+"/"+kind
	}), nil
}

// holdLimits looks at the object that a request would create, if the namespace
// limits its kind, which is what discovery says it is. The error is one for the
// caller.
func (g *Guard) holdLimits(ctx context.Context, q *canonical.Request, a ask) error {
	items, err := g.limits.of(ctx, a.Namespace, q.Kind.Group, q.Kind.Kind)
	if err != nil {
		return statusOfError(err, a)
	}
	if len(items) == 0 {
		return nil
	}
	asked, err := q.Object.Quantities()
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("namespace %s limits %s, and the object cannot be looked at: %v; send it as JSON, YAML or CBOR",
			a.Namespace, a.Resource, err))
	}
	if broken := brokenLimits(items, asked.Requests, asked.Limits); len(broken) > 0 {
		return apierrors.NewForbidden(groupResource(a.Resource), q.Object.Name, fmt.Errorf("%s", strings.Join(broken, ", ")))
	}
	return nil
}

// brokenLimits says, in Kubernetes' own words, which limits an object breaks. As
// with a container there, a maximum asks for a limit, and a minimum for a
// request; unlike there no default is filled in, for objects are not changed.
func brokenLimits(items []corev1.LimitRangeItem, requests, limits map[string]resource.Quantity) []string {
	var broken []string
	for _, item := range items {
		for _, name := range slices.Sorted(maps.Keys(item.Min)) {
			least, request := item.Min[name], requests[string(name)]
			if _, ok := requests[string(name)]; !ok {
				broken = append(broken, fmt.Sprintf("minimum %s usage per %s is %s.  No request is specified", name, item.Type, least.String()))
			} else if request.Cmp(least) < 0 {
				broken = append(broken, fmt.Sprintf("minimum %s usage per %s is %s, but request is %s", name, item.Type, least.String(), request.String()))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(item.Max)) {
			broken = append(broken, overMost(item, name, requests, limits)...)
		}
		for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
			ratio, request, limit := item.MaxLimitRequestRatio[name], requests[string(name)], limits[string(name)]
			if request.IsZero() || limit.AsApproximateFloat64()/request.AsApproximateFloat64() > ratio.AsApproximateFloat64() {
				broken = append(broken, fmt.Sprintf("%s max limit to request ratio per %s is %s, but the object has limit %s and request %s",
					name, item.Type, ratio.String(), limit.String(), request.String()))
			}
		}
	}
	return broken
}

// overMost checks a maximum: the limit must be set and within it, or, for what
// has no limits, as a volume claim's storage, the request must.
func overMost(item corev1.LimitRangeItem, name corev1.ResourceName, requests, limits map[string]resource.Quantity) []string {
	most := item.Max[name]
	limit, hasLimit := limits[string(name)]
	request, hasRequest := requests[string(name)]
	switch {
	case !hasLimit && !hasRequest:
		return []string{fmt.Sprintf("maximum %s usage per %s is %s.  No limit is specified", name, item.Type, most.String())}
	case hasLimit && limit.Cmp(most) > 0:
		return []string{fmt.Sprintf("maximum %s usage per %s is %s, but limit is %s", name, item.Type, most.String(), limit.String())}
	case hasRequest && request.Cmp(most) > 0:
		return []string{fmt.Sprintf("maximum %s usage per %s is %s, but request is %s", name, item.Type, most.String(), request.String())}
	}
	return nil
}
