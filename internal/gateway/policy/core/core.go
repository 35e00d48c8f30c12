// Package core reads and writes the core server for the policies: its namespaces,
// its quotas, and the ConfigMaps that ledgers are stored in. It decides nothing, and
// never speaks to any other server.
package core

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// Server is the core server, as the gateway itself sees it.
type Server struct {
	Ledgers    *Ledgers
	Namespaces *Namespaces
	Quotas     *Quotas

	factory informers.SharedInformerFactory // namespaces and quotas
	ledgers informers.SharedInformerFactory // the ConfigMaps with ledgers
}

// New makes a Server. It asks nothing until Watch; until then the caches are empty.
// Ledgers are kept in the namespace given.
func New(client kubernetes.Interface, namespace string) *Server {
	s := &Server{
		Ledgers: &Ledgers{client: client, namespace: namespace},
		factory: informers.NewSharedInformerFactory(client, 0),
		ledgers: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = ledgerLabel })),
	}
	s.Namespaces = &Namespaces{client: client, lister: namespaceLister(s.factory)}
	s.Quotas = NewQuotas(client, quotaLister(s.factory))
	return s
}

func namespaceLister(f informers.SharedInformerFactory) func(string) (*corev1.Namespace, bool) {
	informer, lister := f.Core().V1().Namespaces().Informer(), f.Core().V1().Namespaces().Lister()
	return func(name string) (*corev1.Namespace, bool) {
		ns, err := lister.Get(name)
		return ns, err == nil && informer.HasSynced()
	}
}

func quotaLister(f informers.SharedInformerFactory) func(string) ([]*corev1.ResourceQuota, bool) {
	informer, lister := f.Core().V1().ResourceQuotas().Informer(), f.Core().V1().ResourceQuotas().Lister()
	return func(namespace string) ([]*corev1.ResourceQuota, bool) {
		all, err := lister.ResourceQuotas(namespace).List(labels.Everything())
		return all, err == nil && informer.HasSynced()
	}
}

// Watcher is told of each object that came, changed or went.
type Watcher interface {
	SawNamespace(*corev1.Namespace)
	SawQuota(*corev1.ResourceQuota)
	SawLedger(ledger.Key)
}

// Tell has w told of changes, from when Watch runs. Call it once, before Watch.
func (s *Server) Tell(w Watcher) error {
	_, err1 := s.factory.Core().V1().Namespaces().Informer().AddEventHandler(on(w.SawNamespace))
	_, err2 := s.factory.Core().V1().ResourceQuotas().Informer().AddEventHandler(on(w.SawQuota))
	_, err3 := s.ledgers.Core().V1().ConfigMaps().Informer().AddEventHandler(on(func(cm *corev1.ConfigMap) {
		if k, ok := ledgerKey(cm.Name); ok {
			w.SawLedger(k)
		}
	}))
	return errors.Join(err1, err2, err3)
}

// on calls f with every object that came, changed or went.
func on[T any](f func(T)) cache.ResourceEventHandler {
	call := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if t, ok := o.(T); ok {
			f(t)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, o any) { call(o) }, DeleteFunc: call}
}

// Start watches the core server until ctx ends. Call Shutdown after that.
func (s *Server) Start(ctx context.Context) {
	s.factory.Start(ctx.Done())
	s.ledgers.Start(ctx.Done())
}

// Shutdown waits until the watches that Start began have ended.
func (s *Server) Shutdown() {
	s.ledgers.Shutdown()
	s.factory.Shutdown()
}

// AllNamespaces returns the namespaces in the cache.
func (s *Server) AllNamespaces() []*corev1.Namespace {
	return all[*corev1.Namespace](s.factory.Core().V1().Namespaces().Informer())
}

// AllQuotas returns the quotas in the cache.
func (s *Server) AllQuotas() []*corev1.ResourceQuota {
	return all[*corev1.ResourceQuota](s.factory.Core().V1().ResourceQuotas().Informer())
}

// AllLedgers returns the texts of the ledgers in the cache.
func (s *Server) AllLedgers() map[ledger.Key]string {
	found := map[ledger.Key]string{}
	for _, cm := range all[*corev1.ConfigMap](s.ledgers.Core().V1().ConfigMaps().Informer()) {
		if k, ok := ledgerKey(cm.Name); ok {
			found[k] = cm.Data[ledgerData]
		}
	}
	return found
}

func all[T any](informer cache.SharedIndexInformer) []T {
	var found []T
	for _, o := range informer.GetStore().List() {
		if t, ok := o.(T); ok {
			found = append(found, t)
		}
	}
	return found
}
