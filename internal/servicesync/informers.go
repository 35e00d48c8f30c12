package servicesync

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// informers are caches of the own cluster and of the own publications. Invariant: all are
// made before any is read, and none is replaced.
type informers struct {
	services        *access.Informer[*corev1.Service]
	slices          *access.Informer[*discoveryv1.EndpointSlice]
	namespaces      *access.Informer[*corev1.Namespace]
	endpoints       *access.Informer[*corev1.Endpoints] //nolint:staticcheck // deprecated, and written on request
	exports         *access.Informer[*mcs.ServiceExport]
	imports         *access.Informer[*mcs.ServiceImport]
	publications    *access.Informer[*v1alpha1.PublishedService]
	publishedSlices *access.Informer[*v1alpha1.PublishedSlice]
}

// newInformers makes the informers of a site, and passes every change to the site. Nothing
// is read before the functions that reads returns are called.
func newInformers(s *site) (*informers, error) {
	in := &informers{}
	return in, errors.Join(in.watchOwn(s), in.watchPublications(s), in.watchMCS(s))
}

func (in *informers) watchOwn(s *site) (err error) {
	asked := func() func(error) { return s.saidOnce("own cluster cannot be read", "own cluster") }
	if in.services, err = access.NewInformer(s.own, &corev1.Service{}, access.InformerOptions[*corev1.Service]{
		Asked: asked(),
		Slim:  func(svc *corev1.Service) { svc.Status = corev1.ServiceStatus{} },
		Changed: func(svc *corev1.Service, initial bool) {
			s.ownChanged(initial, access.KeyOf(svc), access.Labelled(svc, v1alpha1.LabelImport), access.Labelled(svc, mcs.LabelServiceName))
		},
	}); err != nil {
		return err
	}
	if in.slices, err = access.NewInformer(s.own, &discoveryv1.EndpointSlice{}, access.InformerOptions[*discoveryv1.EndpointSlice]{
		Asked: asked(),
		Service: func(e *discoveryv1.EndpointSlice) []types.NamespacedName {
			return []types.NamespacedName{access.Labelled(e, discoveryv1.LabelServiceName)}
		},
		Changed: func(e *discoveryv1.EndpointSlice, initial bool) {
			s.ownChanged(initial, access.Labelled(e, discoveryv1.LabelServiceName), access.Labelled(e, v1alpha1.LabelService), access.Labelled(e, mcs.LabelServiceName))
		},
	}); err != nil {
		return err
	}
	if in.namespaces, err = access.NewInformer(s.own, &corev1.Namespace{}, access.InformerOptions[*corev1.Namespace]{
		Asked:   asked(),
		Changed: s.namespaceChanged,
	}); err != nil {
		return err
	}
	in.endpoints, err = access.NewInformer(s.own, &corev1.Endpoints{}, access.InformerOptions[*corev1.Endpoints]{ //nolint:staticcheck // as above
		Asked: asked(),
		Slim: func(e *corev1.Endpoints) { //nolint:staticcheck // as above
			if e.Labels[discoveryv1.LabelSkipMirror] == "" {
				e.Subsets = nil // Kubernetes keeps these; only their existence matters
			}
		},
		Changed: s.endpointsChanged,
	})
	return err
}

func (in *informers) watchPublications(s *site) (err error) {
	asked := func() func(error) {
		return s.saidOnce("own publications cannot be read", "where this cluster publishes")
	}
	labels := v1alpha1.LabelCluster + "=" + string(s.model.Cluster)
	if in.publications, err = access.NewInformer(s.publications, &v1alpha1.PublishedService{}, access.InformerOptions[*v1alpha1.PublishedService]{
		Namespace: s.model.Namespace, Labels: labels, Asked: asked(),
		Service: func(p *v1alpha1.PublishedService) []types.NamespacedName {
			return []types.NamespacedName{access.ServiceOf(p.Spec.Service)}
		},
		Changed: func(p *v1alpha1.PublishedService, initial bool) {
			s.ownChanged(initial, access.ServiceOf(p.Spec.Service))
		},
	}); err != nil {
		return err
	}
	in.publishedSlices, err = access.NewInformer(s.publications, &v1alpha1.PublishedSlice{}, access.InformerOptions[*v1alpha1.PublishedSlice]{
		Namespace: s.model.Namespace, Labels: labels, Asked: asked(),
		Service: func(p *v1alpha1.PublishedSlice) []types.NamespacedName {
			return []types.NamespacedName{access.ServiceOf(p.Spec.Service)}
		},
		Changed: func(p *v1alpha1.PublishedSlice, initial bool) {
			s.ownChanged(initial, access.ServiceOf(p.Spec.Service))
		},
	})
	return err
}

// watchMCS watches the multi-cluster Services API. If the cluster does not serve it, the
// informers are empty until it does.
func (in *informers) watchMCS(s *site) (err error) {
	asked := func() func(error) {
		say := s.saidOnce("own cluster cannot be read", "own cluster")
		return func(err error) {
			if !apierrors.IsNotFound(err) {
				say(err)
			}
		}
	}
	if in.exports, err = access.NewInformer(s.own, &mcs.ServiceExport{}, access.InformerOptions[*mcs.ServiceExport]{
		Asked:   asked(),
		Changed: func(e *mcs.ServiceExport, initial bool) { s.ownChanged(initial, access.KeyOf(e)) },
	}); err != nil {
		return err
	}
	in.imports, err = access.NewInformer(s.own, &mcs.ServiceImport{}, access.InformerOptions[*mcs.ServiceImport]{
		Asked:   asked(),
		Changed: func(i *mcs.ServiceImport, initial bool) { s.ownChanged(initial, access.KeyOf(i)) },
	})
	return err
}

// reads returns the functions that keep the informers up to date until their context ends.
func (in *informers) reads() []func(context.Context) {
	return []func(context.Context){
		in.services.Run, in.slices.Run, in.namespaces.Run, in.endpoints.Run, in.publications.Run, in.publishedSlices.Run, in.exports.Run, in.imports.Run,
	}
}

// synced returns the functions that report whether each informer has its first list. It
// leaves out the multi-cluster Services API, which some clusters do not have.
func (in *informers) synced() []cache.InformerSynced {
	return []cache.InformerSynced{
		in.services.Synced, in.slices.Synced, in.namespaces.Synced, in.endpoints.Synced, in.publications.Synced, in.publishedSlices.Synced,
	}
}

// each calls do for every Service that an informer has an object of; for some, more than once.
func (in *informers) each(do func(types.NamespacedName)) {
	in.services.Each(func(svc *corev1.Service) { do(access.KeyOf(svc)) })
	in.publications.Each(func(p *v1alpha1.PublishedService) { do(access.ServiceOf(p.Spec.Service)) })
	in.exports.Each(func(e *mcs.ServiceExport) { do(access.KeyOf(e)) })
	in.imports.Each(func(i *mcs.ServiceImport) { do(access.KeyOf(i)) })
}

// local returns the own cluster's objects of a Service.
func (in *informers) local(k types.NamespacedName) model.Local {
	local := model.Local{
		Service:       in.services.Get(k.Namespace, k.Name),
		Slices:        in.slices.Of(k),
		Endpoints:     in.endpoints.Get(k.Namespace, k.Name),
		Export:        in.exports.Get(k.Namespace, k.Name),
		Import:        in.imports.Get(k.Namespace, k.Name),
		Derived:       in.services.Get(k.Namespace, model.DerivedName(k)),
		DerivedSlices: in.slices.Of(types.NamespacedName{Namespace: k.Namespace, Name: model.DerivedName(k)}),
	}
	if ns := in.namespaces.Get("", k.Namespace); ns != nil {
		local.Namespace = ns.DeletionTimestamp == nil
	}
	return local
}

// published returns the own cluster's publication of a Service.
func (in *informers) published(k types.NamespacedName) model.Published {
	published := model.Published{Slices: in.publishedSlices.Of(k)}
	if found := in.publications.Of(k); len(found) > 0 {
		published.Service = found[0]
	}
	return published
}

// shown returns a function that reports whether the informers show a write; nil if none of
// them has such objects.
func (in *informers) shown(w model.Write, written model.Object) func() bool {
	switch obj := w.Object.(type) {
	case *corev1.Service:
		return receiptOf(in.services, obj, written)
	case *discoveryv1.EndpointSlice:
		return receiptOf(in.slices, obj, written)
	case *corev1.Namespace:
		return receiptOf(in.namespaces, obj, written)
	case *corev1.Endpoints: //nolint:staticcheck // deprecated, and written on request
		return receiptOf(in.endpoints, obj, written)
	case *v1alpha1.PublishedService:
		return receiptOf(in.publications, obj, written)
	case *v1alpha1.PublishedSlice:
		return receiptOf(in.publishedSlices, obj, written)
	case *mcs.ServiceExport:
		return receiptOf(in.exports, obj, written)
	case *mcs.ServiceImport:
		return receiptOf(in.imports, obj, written)
	default:
		return nil
	}
}

// receiptOf returns a function that reports whether an informer shows the written object,
// or, after a delete, that the object is gone.
func receiptOf[T model.Object](in *access.Informer[T], asked T, written model.Object) func() bool {
	if w, ok := written.(T); ok && written != nil {
		return func() bool { return in.Shows(w) }
	}
	return func() bool { return in.Lacks(asked) }
}
