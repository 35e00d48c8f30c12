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

// views are caches of the own cluster and of the own publications. Invariant: all are
// made before any is read, and none is replaced.
type views struct {
	services   *access.View[*corev1.Service]
	slices     *access.View[*discoveryv1.EndpointSlice]
	namespaces *access.View[*corev1.Namespace]
	endpoints  *access.View[*corev1.Endpoints] //nolint:staticcheck // deprecated, and written on request
	exports    *access.View[*mcs.ServiceExport]
	imports    *access.View[*mcs.ServiceImport]
	pubs       *access.View[*v1alpha1.PublishedService]
	pubSlices  *access.View[*v1alpha1.PublishedSlice]
}

// newViews makes the views of a site, which is told of every change. Nothing is read
// before the functions that reads returns are called.
func newViews(s *site) (*views, error) {
	v := &views{}
	return v, errors.Join(v.watchOwn(s), v.watchPublications(s), v.watchMCS(s))
}

func (v *views) watchOwn(s *site) (err error) {
	asked := func() func(error) { return s.saidOnce("own cluster cannot be read", "own cluster") }
	if v.services, err = access.NewView(s.own, &corev1.Service{}, access.ViewOptions[*corev1.Service]{
		Asked: asked(),
		Slim:  func(svc *corev1.Service) { svc.Status = corev1.ServiceStatus{} },
		Changed: func(svc *corev1.Service, initial bool) {
			s.ownChanged(initial, access.KeyOf(svc), access.Labelled(svc, v1alpha1.LabelImport), access.Labelled(svc, mcs.LabelServiceName))
		},
	}); err != nil {
		return err
	}
	if v.slices, err = access.NewView(s.own, &discoveryv1.EndpointSlice{}, access.ViewOptions[*discoveryv1.EndpointSlice]{
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
	if v.namespaces, err = access.NewView(s.own, &corev1.Namespace{}, access.ViewOptions[*corev1.Namespace]{
		Asked:   asked(),
		Changed: s.namespaceChanged,
	}); err != nil {
		return err
	}
	v.endpoints, err = access.NewView(s.own, &corev1.Endpoints{}, access.ViewOptions[*corev1.Endpoints]{ //nolint:staticcheck // as above
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

func (v *views) watchPublications(s *site) (err error) {
	asked := func() func(error) {
		return s.saidOnce("own publications cannot be read", "where this cluster publishes")
	}
	labels := v1alpha1.LabelCluster + "=" + string(s.model.Cluster)
	if v.pubs, err = access.NewView(s.publications, &v1alpha1.PublishedService{}, access.ViewOptions[*v1alpha1.PublishedService]{
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
	v.pubSlices, err = access.NewView(s.publications, &v1alpha1.PublishedSlice{}, access.ViewOptions[*v1alpha1.PublishedSlice]{
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
// views are empty until it does.
func (v *views) watchMCS(s *site) (err error) {
	asked := func() func(error) {
		say := s.saidOnce("own cluster cannot be read", "own cluster")
		return func(err error) {
			if !apierrors.IsNotFound(err) {
				say(err)
			}
		}
	}
	if v.exports, err = access.NewView(s.own, &mcs.ServiceExport{}, access.ViewOptions[*mcs.ServiceExport]{
		Asked:   asked(),
		Changed: func(e *mcs.ServiceExport, initial bool) { s.ownChanged(initial, access.KeyOf(e)) },
	}); err != nil {
		return err
	}
	v.imports, err = access.NewView(s.own, &mcs.ServiceImport{}, access.ViewOptions[*mcs.ServiceImport]{
		Asked:   asked(),
		Changed: func(i *mcs.ServiceImport, initial bool) { s.ownChanged(initial, access.KeyOf(i)) },
	})
	return err
}

// reads returns the functions that keep the views up to date until their context ends.
func (v *views) reads() []func(context.Context) {
	return []func(context.Context){
		v.services.Run, v.slices.Run, v.namespaces.Run, v.endpoints.Run, v.pubs.Run, v.pubSlices.Run, v.exports.Run, v.imports.Run,
	}
}

// synced returns the functions that report whether the views are read that every cluster
// has. The multi-cluster Services API is not among them.
func (v *views) synced() []cache.InformerSynced {
	return []cache.InformerSynced{
		v.services.Synced, v.slices.Synced, v.namespaces.Synced, v.endpoints.Synced, v.pubs.Synced, v.pubSlices.Synced,
	}
}

// each calls do for every Service that a view knows something of; for some, more than once.
func (v *views) each(do func(types.NamespacedName)) {
	v.services.Each(func(svc *corev1.Service) { do(access.KeyOf(svc)) })
	v.pubs.Each(func(p *v1alpha1.PublishedService) { do(access.ServiceOf(p.Spec.Service)) })
	v.exports.Each(func(e *mcs.ServiceExport) { do(access.KeyOf(e)) })
	v.imports.Each(func(i *mcs.ServiceImport) { do(access.KeyOf(i)) })
}

// local returns what the own cluster has of a Service.
func (v *views) local(k types.NamespacedName) model.Local {
	local := model.Local{
		Service:       v.services.Get(k.Namespace, k.Name),
		Slices:        v.slices.Of(k),
		Endpoints:     v.endpoints.Get(k.Namespace, k.Name),
		Export:        v.exports.Get(k.Namespace, k.Name),
		Import:        v.imports.Get(k.Namespace, k.Name),
		Derived:       v.services.Get(k.Namespace, model.DerivedName(k)),
		DerivedSlices: v.slices.Of(types.NamespacedName{Namespace: k.Namespace, Name: model.DerivedName(k)}),
	}
	if ns := v.namespaces.Get("", k.Namespace); ns != nil {
		local.Namespace = ns.DeletionTimestamp == nil
	}
	return local
}

// published returns what the own cluster publishes of a Service.
func (v *views) published(k types.NamespacedName) model.Published {
	published := model.Published{Slices: v.pubSlices.Of(k)}
	if found := v.pubs.Of(k); len(found) > 0 {
		published.Service = found[0]
	}
	return published
}

// shown returns a function that reports whether the view shows a write; nil if there is
// no view of the object.
func (v *views) shown(w model.Write, written model.Object) func() bool {
	switch obj := w.Object.(type) {
	case *corev1.Service:
		return receiptOf(v.services, obj, written)
	case *discoveryv1.EndpointSlice:
		return receiptOf(v.slices, obj, written)
	case *corev1.Namespace:
		return receiptOf(v.namespaces, obj, written)
	case *corev1.Endpoints: //nolint:staticcheck // deprecated, and written on request
		return receiptOf(v.endpoints, obj, written)
	case *v1alpha1.PublishedService:
		return receiptOf(v.pubs, obj, written)
	case *v1alpha1.PublishedSlice:
		return receiptOf(v.pubSlices, obj, written)
	case *mcs.ServiceExport:
		return receiptOf(v.exports, obj, written)
	case *mcs.ServiceImport:
		return receiptOf(v.imports, obj, written)
	default:
		return nil
	}
}

// receiptOf returns a function that reports whether a view shows what was written, or the
// deletion of what was asked for.
func receiptOf[T model.Object](v *access.View[T], asked T, written model.Object) func() bool {
	if w, ok := written.(T); ok && written != nil {
		return func() bool { return v.Shows(w) }
	}
	return func() bool { return v.Lacks(asked) }
}
