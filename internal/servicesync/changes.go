package servicesync

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/roster"
)

// This file holds what queues Services: changes in the own cluster and changes of peers.

// add queues a Service.
func (s *site) add(k types.NamespacedName, backlog bool) {
	switch {
	case k == access.APIService():
	case backlog:
		s.queue.Backlog(k)
	default:
		s.queue.Live(k)
	}
}

// all queues every known Service.
func (s *site) all() { s.each(func(k types.NamespacedName) { s.add(k, true) }) }

// each calls do for every known Service; for some, more than once.
func (s *site) each(do func(types.NamespacedName)) {
	s.informers.each(do)
	s.roster.Each(do)
}

// ownChanged notes a change in the own cluster, and queues the Services that it is about.
func (s *site) ownChanged(initial bool, keys ...types.NamespacedName) {
	for i, k := range keys {
		if k.Name == "" || i > 0 && k == keys[0] || k == access.APIService() {
			continue
		}
		s.notes.Changed(k, initial)
		s.add(k, initial)
	}
}

// namespaceChanged queues the Services of a namespace that was created or is being deleted.
func (s *site) namespaceChanged(n *corev1.Namespace, initial bool) {
	if initial {
		return
	}
	s.each(func(k types.NamespacedName) {
		if k.Namespace == n.Name {
			s.add(k, true)
		}
	})
}

// endpointsChanged notes a change of Endpoints that belong to a replica, or are left over
// from one. Endpoints that Kubernetes keeps for a selector are ignored, because
// EndpointSlices hold the same.
func (s *site) endpointsChanged(e *corev1.Endpoints, initial bool) { //nolint:staticcheck // as above
	svc := s.informers.services.Get(e.Namespace, e.Name)
	if e.Labels[discoveryv1.LabelSkipMirror] != "" || svc != nil && len(svc.Spec.Selector) == 0 {
		s.ownChanged(initial, access.KeyOf(e))
	}
}

// saidOnce returns a function that logs why reading fails, if the reason is not the one
// that it logged last.
func (s *site) saidOnce(message, who string) func(error) {
	var mu sync.Mutex
	said := ""
	return func(err error) {
		why := access.Explain(err, who)
		mu.Lock()
		defer mu.Unlock()
		if why != "" && why != said {
			s.log.Warn(message, "reason", why) //nolint:sloglint // one of two constants
		}
		said = why
	}
}

// peerChanged notes a change of what a peer publishes, and queues the Service.
func (s *site) peerChanged(k types.NamespacedName, id model.ClusterID, initial bool) {
	if !initial {
		s.notes.Received(k, id)
	}
	s.add(k, initial)
}

// peerStopped queues all Services, because a peer is no longer read.
func (s *site) peerStopped(id model.ClusterID, gone bool) {
	if gone {
		s.metrics.forget(string(s.model.Cluster), string(id))
	}
	s.all()
}

// peerConfirmed queues the Services for which it matters whether a peer is confirmed not to
// have them: something of them is here, and the peer publishes nothing of them.
func (s *site) peerConfirmed(p *roster.Peer) {
	s.informers.services.Each(func(svc *corev1.Service) {
		// A replica is deleted once every peer is confirmed not to have the Service.
		if k := access.KeyOf(svc); svc.Labels[v1alpha1.LabelReplica] != "" && p.Lacks(k) && !s.roster.AnyPublishes(k, gives) {
			s.add(k, true)
		}
	})
	s.informers.imports.Each(func(i *mcs.ServiceImport) {
		if k := access.KeyOf(i); i.Labels[v1alpha1.LabelImport] != "" && p.Lacks(k) && !s.roster.AnyPublishes(k, exports) {
			s.add(k, true)
		}
	})
	s.informers.publications.Each(func(own *v1alpha1.PublishedService) {
		answers := slices.ContainsFunc(own.Spec.Seen, func(a v1alpha1.Seen) bool { return a.Cluster == string(p.ID()) })
		if k := access.ServiceOf(own.Spec.Service); answers && p.Lacks(k) {
			s.add(k, true)
		}
	})
	s.informers.slices.Each(func(e *discoveryv1.EndpointSlice) {
		k := cmp.Or(access.Labelled(e, mcs.LabelServiceName), access.Labelled(e, discoveryv1.LabelServiceName))
		if slices.ContainsFunc(endpointslice.Parts(e), func(part model.Part) bool {
			return part.Cluster == "" || part.Cluster == p.ID() && !p.Publishes(k, part.Slice)
		}) {
			s.add(k, true)
		}
	})
}

// gives reports whether a publication offers its cluster's endpoints.
func gives(p *v1alpha1.PublishedService) bool {
	return p.Spec.Role == v1alpha1.RoleSource || p.Spec.Role == v1alpha1.RoleUnion
}

// exports reports whether a publication is of an exported Service.
func exports(p *v1alpha1.PublishedService) bool { return p.Spec.Exported != nil }
