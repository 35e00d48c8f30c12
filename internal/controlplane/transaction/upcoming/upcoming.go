// Package upcoming lets webhooks and policies find namespaces that are about to be created.
// It never shows one to a plugin that decides whether a namespace exists.
package upcoming

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// selecting are the plugins that choose by the labels of a namespace whether they have to
// judge a request, or whose expressions may read the namespace.
var selecting = []string{mutatingwebhook.PluginName, validatingwebhook.PluginName, mutatingpolicy.PluginName, validatingpolicy.PluginName}

// Selects says whether a plugin looks at the namespaces of objects.
func Selects(plugin string) bool { return slices.Contains(selecting, plugin) }

// Namespaces are those that are about to be created. The plugins look them up by name alone,
// whatever request they judge. So one that exists is never covered by another of its name,
// and requests into a namespace that does not exist must be refused before these plugins.
type Namespaces struct {
	mu sync.Mutex
	// shown are the namespaces that Show was called with and that are not hidden yet, by
	// name. Invariant: no list is empty.
	shown map[string][]*corev1.Namespace
}

// New returns Namespaces that has none.
func New() *Namespaces { return &Namespaces{shown: map[string][]*corev1.Namespace{}} }

// Show lets the plugins find a namespace, which nobody may change, until hide is called.
func (n *Namespaces) Show(namespace *corev1.Namespace) (hide func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shown[namespace.Name] = append(n.shown[namespace.Name], namespace)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		i := slices.Index(n.shown[namespace.Name], namespace)
		n.shown[namespace.Name] = slices.Delete(n.shown[namespace.Name], i, i+1)
		if len(n.shown[namespace.Name]) == 0 {
			delete(n.shown, namespace.Name)
		}
	}
}

// get returns the namespace of that name, if there is one. If there are several, and they
// differ in what plugins select by, none can be chosen, and get returns an error.
func (n *Namespaces) get(name string) (*corev1.Namespace, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.shown[name]
	if len(all) == 0 {
		return nil, nil
	}
	for _, other := range all[1:] {
		if !maps.Equal(all[0].Labels, other.Labels) || !maps.Equal(all[0].Annotations, other.Annotations) {
			return nil, fmt.Errorf("several transactions are about to create namespace %s, with different labels or annotations; try again", name)
		}
	}
	return all[0], nil
}

// Initializer has the plugins that look at the namespaces of objects find those of n, too,
// where known has none of the name.
func (n *Namespaces) Initializer(known informers.SharedInformerFactory) admission.PluginInitializer {
	return plugins{factory{known, n}}
}

type plugins struct {
	informers.SharedInformerFactory
}

// Initialize implements admission.PluginInitializer.
func (p plugins) Initialize(plugin admission.Interface) {
	switch plugin := plugin.(type) {
	case *mutatingwebhook.Plugin, *validatingwebhook.Plugin, *mutatingpolicy.Plugin, *validatingpolicy.Plugin:
		plugin.(initializer.WantsExternalKubeInformerFactory).SetExternalKubeInformerFactory(p)
	}
}

// The lister of namespaces is four steps below the factory that plugins are given.
type (
	factory struct {
		informers.SharedInformerFactory
		upcoming *Namespaces
	}
	core struct {
		coreinformers.Interface
		upcoming *Namespaces
	}
	v1 struct {
		corev1informers.Interface
		upcoming *Namespaces
	}
	informer struct {
		corev1informers.TypedNamespaceInformer
		upcoming *Namespaces
	}
	lister struct {
		corev1listers.NamespaceLister
		upcoming *Namespaces
	}
)

func (f factory) Core() coreinformers.Interface {
	return core{f.SharedInformerFactory.Core(), f.upcoming}
}

func (c core) V1() corev1informers.Interface { return v1{c.Interface.V1(), c.upcoming} }

func (v v1) Namespaces() corev1informers.TypedNamespaceInformer {
	return informer{v.Interface.Namespaces(), v.upcoming}
}

func (i informer) Lister() corev1listers.NamespaceLister {
	return lister{i.TypedNamespaceInformer.Lister(), i.upcoming}
}

// Get returns a namespace that is there, or else one that is about to be created.
func (l lister) Get(name string) (*corev1.Namespace, error) {
	namespace, err := l.NamespaceLister.Get(name)
	if !apierrors.IsNotFound(err) {
		return namespace, err
	}
	upcoming, cannot := l.upcoming.get(name)
	switch {
	case cannot != nil:
		return nil, cannot
	case upcoming != nil:
		return upcoming, nil
	}
	return nil, err
}
