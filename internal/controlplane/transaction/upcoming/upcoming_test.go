package upcoming

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func namespace(name, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
}

func TestNamespaces(t *testing.T) {
	known := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	if err := known.Core().V1().Namespaces().Informer().GetStore().Add(namespace("there", "red")); err != nil {
		t.Fatal(err)
	}
	n := New()
	lister := n.Initializer(known).(plugins).Core().V1().Namespaces().Lister()
	wants := func(what, name, team string) {
		t.Helper()
		got, err := lister.Get(name)
		if team == "" && !apierrors.IsNotFound(err) || team != "" && (err != nil || got.Labels["team"] != team) {
			t.Errorf("%s: namespace %s is %v, %v; want %q", what, name, got, err, team)
		}
	}
	hideCover := n.Show(namespace("there", "blue"))
	wants("one that exists is never covered", "there", "red")
	hideCover()

	wants("before it is shown", "soon", "")
	hide := n.Show(namespace("soon", "red"))
	wants("while it is shown", "soon", "red")
	hideSame := n.Show(namespace("soon", "red"))
	wants("while two transactions create the same", "soon", "red")
	hideOther := n.Show(namespace("soon", "blue"))
	if got, err := lister.Get("soon"); err == nil || !strings.Contains(err.Error(), "several transactions") {
		t.Errorf("while two transactions create different ones: %v, %v", got, err)
	}
	hide()
	hideSame()
	wants("when only the other is left", "soon", "blue")
	hideOther()
	wants("after all are hidden", "soon", "")
	if len(n.shown) > 0 {
		t.Errorf("it still holds %v", n.shown)
	}
}

// TestWhoDecidesWhatExists: plugins that refuse objects in namespaces that do not exist, or
// count what is in one, never see one that does not exist.
func TestWhoDecidesWhatExists(t *testing.T) {
	for _, name := range []string{lifecycle.PluginName, resourcequota.PluginName} {
		if Selects(name) {
			t.Errorf("%s is shown upcoming namespaces", name)
		}
	}
	known := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	plugin, err := lifecycle.NewLifecycle(nil)
	if err != nil {
		t.Fatal(err)
	}
	New().Initializer(known).Initialize(plugin)
	if err := plugin.ValidateInitialization(); err == nil {
		t.Error("the plugin was given a lister of namespaces")
	}
}
