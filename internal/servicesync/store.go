package servicesync

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
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// StorePeers finds the clusters that publish to a shared store: those whose lease
// lies in a namespace of their own name that the label LabelCluster says is a
// cluster's. The store's API server holds both: who may write to a namespace speaks
// for that one cluster, and who may not label namespaces cannot add one.
func StorePeers(config *rest.Config, pace Pace) (peers.Source, error) {
	a, err := newAPI(config, pace, fieldManager)
	if err != nil {
		return nil, err
	}
	return &storePeers{api: a}, nil
}

type storePeers struct{ api *api }

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
	leases, err := newView(s.api, &v1alpha1.ClusterLease{}, viewOptions[*v1alpha1.ClusterLease]{
		changed: func(*v1alpha1.ClusterLease, bool) { nudge() }, asked: asked,
	})
	if err != nil {
		return err
	}
	spaces, err := newView(s.api, &corev1.Namespace{}, viewOptions[*corev1.Namespace]{
		labels: v1alpha1.LabelCluster, changed: func(*corev1.Namespace, bool) { nudge() }, asked: asked,
	})
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { leases.run(ctx) })
	reading.Go(func() { spaces.run(ctx) })
	// The last change of the first lists may be told before both are complete.
	reading.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), leases.synced, spaces.synced) {
			nudge()
		}
	})
	origin := "store " + s.api.config.Host
	var last []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case err := <-faults:
			why := explain(err, origin)
			if why != "" && last == nil {
				found([]peers.Peer{{Name: "store", Origin: origin, Unread: true, Err: fmt.Errorf("%s", why)}})
			}
			continue
		}
		if !leases.synced() || !spaces.synced() {
			continue // less than all would look like peers that are gone
		}
		names := make(map[string]bool)
		leases.each(func(l *v1alpha1.ClusterLease) {
			ns := spaces.get("", l.Namespace)
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
			all[i] = peers.Peer{Name: name, Origin: origin, Config: s.api.config, Namespace: name, Fingerprint: s.api.config.Host}
		}
		found(all)
	}
}
