package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

func resourceQuota(name string, hard map[string]string, more ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for k, v := range hard {
		q.Spec.Hard[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	for _, f := range more {
		f(q)
	}
	return q
}

func TestTheLowestLimitCounts(t *testing.T) {
	all := []*corev1.ResourceQuota{
		resourceQuota("a", map[string]string{"count/widgets.a": "7", "pods": "1"}),
		resourceQuota("b", map[string]string{"count/widgets.a": "3", "count/gadgets.b": "9"}),
		resourceQuota("scoped", map[string]string{"count/widgets.a": "1"}, func(q *corev1.ResourceQuota) {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
		}),
	}
	for r, want := range map[string]quota.Limit{
		"widgets.a": {Hard: 3, Quota: "b"}, "gadgets.b": {Hard: 9, Quota: "b"}, "others.c": {Hard: ledger.NoLimit}, "pods": {Hard: ledger.NoLimit},
	} {
		if got := limitOf(all, r); got != want {
			t.Errorf("%s: %+v, want %+v", r, got, want)
		}
	}
	if diff := cmp.Diff(map[string]bool{"widgets.a": true, "gadgets.b": true}, Limited(all)); diff != "" {
		t.Error(diff)
	}
}

func TestAQuotaShowsWhatIsOursOnly(t *testing.T) {
	q := resourceQuota("q", map[string]string{"count/widgets.a": "7", "pods": "5"}, func(q *corev1.ResourceQuota) {
		q.Status.Used = corev1.ResourceList{"pods": resource.MustParse("2"), "count/widgets.a": resource.MustParse("1")}
		q.Status.Hard = corev1.ResourceList{"pods": resource.MustParse("5")}
	})
	before := q.DeepCopy()
	next, changed := statusOf(q, map[string]int64{"widgets.a": 4, "gadgets.b": 1})
	if !changed {
		t.Fatal("nothing has changed")
	}
	want := q.DeepCopy()
	want.Status.Used["count/widgets.a"] = *resource.NewQuantity(4, resource.DecimalSI)
	want.Status.Hard["count/widgets.a"] = resource.MustParse("7")
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, q); diff != "" {
		t.Errorf("the cache's own object was changed:\n%s", diff)
	}
	if _, changed := statusOf(next, map[string]int64{"widgets.a": 4}); changed {
		t.Error("it shows that already")
	}
}
