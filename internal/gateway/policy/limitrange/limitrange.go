// Package limitrange holds objects to the core server's LimitRanges. It reads no
// request, changes no object, and fills in no default.
package limitrange

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

const (
	// remembered is how long a namespace's limit ranges are remembered: as long as
	// Kubernetes' own plugin remembers them.
	remembered = 30 * time.Second
	// maxNamespaces is how many namespaces are remembered.
	maxNamespaces = 4096
)

// Ranges are the core server's LimitRanges. It may serve none: xb servers do not.
type Ranges struct {
	client kubernetes.Interface
	cached *cache.LRUExpireCache // of []corev1.LimitRangeItem, by namespace
}

// New makes Ranges. It asks the core server nothing.
func New(client kubernetes.Interface) *Ranges {
	return &Ranges{client, cache.NewLRUExpireCache(maxNamespaces)}
}

// Of returns the limits that a namespace sets on a kind. A limit on a kind that
// Kubernetes does not know has the type <group>/<Kind>.
func (l *Ranges) Of(ctx context.Context, namespace, group, kind string) ([]corev1.LimitRangeItem, error) {
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
		l.cached.Add(namespace, all, remembered)
		items = all
	}
	return slices.DeleteFunc(slices.Clone(items.([]corev1.LimitRangeItem)), func(i corev1.LimitRangeItem) bool {
		return string(i.Type) != group+"/"+kind
	}), nil
}

// Broken says, in Kubernetes' own words, which limits an object breaks that has
// these requests and limits. As for a container in Kubernetes, a maximum demands a
// limit, and a minimum demands a request. Unlike there no default is filled in.
func Broken(items []corev1.LimitRangeItem, requests, limits map[string]resource.Quantity) []string {
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

// overMost checks a maximum: the object's limit must be set and within the maximum.
// If the object has no limit, as a volume claim has none for storage, its request
// must be.
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
