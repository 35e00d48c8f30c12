// Package store finds the clusters that publish to a shared store. It never writes to
// the store, and reads none of the publications.
package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// Peers returns a source of the clusters that publish to a shared store. A cluster is
// found if a namespace of the store has the cluster's name, is labelled LabelCluster with
// that name, and holds the cluster's lease. The store's API server enforces both halves:
// a user who may write in one namespace speaks for that cluster only, and a user who may
// not label namespaces cannot add a cluster.
func Peers(config *rest.Config, pace access.Pace) (peers.Source, error) {
	a, err := access.New(config, pace, access.FieldManager)
	if err != nil {
		return nil, err
	}
	return &storePeers{api: a}, nil
}

type storePeers struct{ api *access.API }

func (s *storePeers) Run(ctx context.Context, found func([]peers.Peer)) error {
	changed := make(chan struct{}, 1)
	faults := make(chan error, 1)
	nudge := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	asked := func(err error) {
		if err == nil {
			return
		}
		select {
		case faults <- err:
		default:
		}
	}
	leases, err := access.NewInformer(s.api, &v1alpha1.ClusterLease{}, access.InformerOptions[*v1alpha1.ClusterLease]{
		Changed: func(*v1alpha1.ClusterLease, bool) { nudge() }, Asked: asked,
	})
	if err != nil {
		return err
	}
	spaces, err := access.NewInformer(s.api, &corev1.Namespace{}, access.InformerOptions[*corev1.Namespace]{
		Labels: v1alpha1.LabelCluster, Changed: func(*corev1.Namespace, bool) { nudge() }, Asked: asked,
	})
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { leases.Run(ctx) })
	reading.Go(func() { spaces.Run(ctx) })
	// The handlers of the last initial object may run before both lists are complete.
	reading.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), leases.Synced, spaces.Synced) {
			nudge()
		}
	})
	origin := "store " + s.api.Config.Host
	var last []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case err := <-faults:
			why := access.Explain(err, origin)
			if why != "" && last == nil {
				found([]peers.Peer{{Name: "store", Origin: origin, Unread: true, Err: fmt.Errorf("%s", why)}})
			}
			continue
		}
		if !leases.Synced() || !spaces.Synced() {
			continue // with half of the lists, peers would look as if they were gone
		}
		names := make(map[string]bool)
		leases.Each(func(l *v1alpha1.ClusterLease) {
			ns := spaces.Get("", l.Namespace)
			if ns != nil && ns.Labels[v1alpha1.LabelCluster] == ns.Name && l.Name == ns.Name && l.Spec.Cluster == ns.Name {
				names[l.Name] = true
			}
		})
		now := slices.Sorted(maps.Keys(names))
		if last != nil && slices.Equal(now, last) {
			continue
		}
		last = now
		all := make([]peers.Peer, len(now))
		for i, name := range now {
			all[i] = peers.Peer{Name: name, Origin: origin, Config: s.api.Config, Namespace: name, Fingerprint: s.api.Config.Host}
		}
		found(all)
	}
}
