package servicesync

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/rest"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// StorePeers finds the clusters that publish to a shared store: those whose
// lease lies in the namespace of their own name. So a store that lets each
// cluster write to its own namespace only lets none speak for another.
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
	leases, err := newView(s.api, &v1alpha1.ClusterLease{}, viewOptions[*v1alpha1.ClusterLease]{
		changed: func(*v1alpha1.ClusterLease, bool) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		asked: func(err error) {
			if err == nil {
				return
			}
			select {
			case faults <- err:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		leases.run(ctx)
	}()
	defer func() { <-over }()
	origin := "store " + s.api.config.Host
	var last []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case err := <-faults:
			why := explain(err, origin)
			if why != "" && !leases.synced() && last == nil {
				found([]peers.Peer{{Name: "store", Origin: origin, Unread: true, Err: fmt.Errorf("%s", why)}})
			}
			continue
		}
		names := make(map[string]bool)
		leases.each(func(l *v1alpha1.ClusterLease) {
			if l.Name == l.Namespace && l.Spec.Cluster == l.Name {
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
