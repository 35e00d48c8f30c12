package namespace

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
)

// TestNothingOfOthers: a namespace of somebody else, or of an earlier owner of the name, is not
// changed and not removed.
func TestNothingOfOthers(t *testing.T) {
	ctx := t.Context()
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Labels: map[string]string{"a": "b"}}}
	client := fake.NewClientset(other).CoreV1().Namespaces()
	w := Wanted{Name: "kube-system", Account: "kube-system", Operation: "0-a"}
	if state, err := Ensure(ctx, client, w); state != Taken || err != nil {
		t.Errorf("a namespace of others is %q, %v", state, err)
	}
	if gone, err := Remove(ctx, client, w); !gone || err != nil {
		t.Errorf("nothing of ours is there, and gone is %v, %v", gone, err)
	}
	if got, err := client.Get(ctx, "kube-system", metav1.GetOptions{}); err != nil || len(got.Labels) != 1 || len(got.Annotations) != 0 {
		t.Errorf("the namespace of others is now %v, %v", got, err)
	}

	first, second := Wanted{"team-a", "team-a", "0-a"}, Wanted{"team-a", "team-a", "0-b"}
	for range 2 {
		if state, err := Ensure(ctx, client, first); state != There || err != nil {
			t.Errorf("our own is %q, %v", state, err)
		}
	}
	if state, err := Ensure(ctx, client, second); state != Taken || err != nil {
		t.Errorf("that of an earlier owner is %q, %v", state, err)
	}
	if gone, err := Remove(ctx, client, second); !gone || err != nil {
		t.Errorf("gone is %v, %v", gone, err)
	}
	if gone, err := Remove(ctx, client, first); gone || err != nil {
		t.Errorf("it is said to be gone at once: %v, %v", gone, err)
	}
	if gone, err := Remove(ctx, client, first); !gone || err != nil {
		t.Errorf("gone is %v, %v", gone, err)
	}
}

// TestDerived: names are those of namespaces, the same each time, and differ between names.
func TestDerived(t *testing.T) {
	for _, account := range []string{"a", strings.Repeat("a", 63), strings.Repeat("a", 51) + "-" + strings.Repeat("a", 11)} {
		name := Derived(account, "0-x")
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
		if name != Derived(account, "0-x") || name == Derived(account, "0-y") {
			t.Errorf("%s does not tell names apart", name)
		}
	}
}
