package servicesync

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/lease"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/notebook"
	"github.com/xbernetes/xbernetes/internal/servicesync/queue"
	"github.com/xbernetes/xbernetes/internal/servicesync/roster"
)

// site is one cluster that this process works for, for as long as the process leads there.
// A change in an informer or a peer queues Services; a worker takes a Service from the
// queue, calls package model to decide, and writes. Each part has its own lock, and calls
// no other part while it holds that lock.
type site struct {
	model        model.Config
	own          *access.API
	publications *access.API // equals own unless there is a shared store
	workers      int
	log          *slog.Logger
	metrics      *metrics
	recorder     record.EventRecorder // set before run
	standing     standing

	informers *informers         // the own cluster's objects and publications
	roster    *roster.Roster     // the peers' publications
	notes     *notebook.Notebook // what was noticed, written and said
	keeper    *lease.Keeper      // the own lease
	count     count              // of publications, in that lease
	queue     *queue.Queue[types.NamespacedName]
}

// newSite completes a site. It reads nothing before run. If run is never called, the
// caller must shut down the queue.
func newSite(s *site, duration time.Duration, peers roster.Config) (*site, error) {
	s.queue = queue.New[types.NamespacedName](5*time.Millisecond, time.Minute)
	s.notes = notebook.New()
	s.keeper = lease.New(s.publications, s.model.Namespace, s.model.Cluster, duration, s.log)
	peers.Own, peers.Agent, peers.Log = s.model.Cluster, s.own.Config.UserAgent, s.log
	peers.Events = roster.Events{
		Changed: s.peerChanged, Confirmed: s.peerConfirmed, Stopped: s.peerStopped,
		StandingChanged: func(*roster.Peer) { s.all() },
		Named:           func(names []string) { s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Peers = names }) },
	}
	s.roster = roster.New(peers)
	s.keeper.Peers, s.keeper.Conditions = s.roster.Statuses, func() []metav1.Condition { return s.standing.conditions(s.roster.Leases(), s.log) }
	var err error
	if s.informers, err = newInformers(s); err != nil {
		s.queue.ShutDown()
	}
	return s, err
}

// run works for the cluster until ctx ends. It reads the own cluster completely before it
// reads peers and decides.
func (s *site) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, read := range s.informers.reads() {
		g.Go(func() error { read(ctx); return nil })
	}
	g.Go(func() error {
		if err := s.load(ctx); err != nil {
			return err
		}
		return s.work(ctx)
	})
	g.Go(func() error {
		<-ctx.Done()
		s.queue.ShutDown()
		return nil
	})
	return g.Wait()
}

// load waits until the own cluster is read, and reads what an earlier process wrote about
// peers.
func (s *site) load(ctx context.Context) error {
	readable, err := s.readsMCS(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), append(s.informers.synced(), readable...)...) {
		return ctx.Err()
	}
	before, err := s.keeper.Load(ctx)
	if err != nil {
		return err
	}
	s.notes.Loaded()
	if before != nil {
		s.roster.Recall(before, time.Now())
	}
	s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) {
		spec.Services, spec.PodRanges = int32(s.informers.publications.Len()), s.standing.podRanges //nolint:gosec // Services of one cluster
	})
	s.log.Info("own cluster is read", "services", s.informers.services.Len(), "slices", s.informers.slices.Len(), "published", s.informers.publications.Len())
	return nil
}

// readsMCS returns which informers of the multi-cluster Services API to wait for. An
// informer is left out if the cluster does not serve its resource, or does not let this
// controller read it; the work then begins without it.
func (s *site) readsMCS(ctx context.Context) ([]cache.InformerSynced, error) {
	served, err := s.servesMCS()
	if err != nil || !served {
		return nil, err
	}
	var readable []cache.InformerSynced
	for resource, synced := range map[string]cache.InformerSynced{"serviceexports": s.informers.exports.Synced, "serviceimports": s.informers.imports.Synced} {
		denied, err := access.Right{API: s.own, Group: mcs.GroupName, Resource: resource, Verbs: []string{"list", "watch"}}.Denied(ctx)
		if err != nil {
			return nil, err
		}
		if denied == "" {
			readable = append(readable, synced)
		}
	}
	return readable, nil
}

// servesMCS reports whether the cluster has the multi-cluster Services API.
func (s *site) servesMCS() (bool, error) {
	groups, err := s.own.Kube.Discovery().ServerGroups()
	if err != nil {
		return false, fmt.Errorf("ask own cluster for its API groups: %w", err)
	}
	for _, g := range groups.Groups {
		if g.Name != mcs.GroupName {
			continue
		}
		for _, v := range g.Versions {
			if v.Version == mcs.GroupVersion.Version {
				return true, nil
			}
		}
	}
	return false, nil
}

// peerPatience is how long the first decisions wait for peers. A decision made before a
// peer is read is correct, but has to be made again afterwards.
const peerPatience = time.Second

// work decides about Services until ctx ends.
func (s *site) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keeper.Run(ctx) })
	g.Go(func() error { return s.roster.Run(ctx) })
	g.Go(func() error { s.measure(ctx); return nil })
	g.Go(func() error { s.overdue(ctx); return nil })
	soon, cancel := context.WithTimeout(ctx, peerPatience)
	s.roster.Await(soon)
	cancel()
	for range s.workers {
		g.Go(func() error {
			for {
				k, over := s.queue.Get()
				if over {
					return nil
				}
				s.handle(ctx, k)
				s.queue.Done(k)
			}
		})
	}
	if s.notes.Settled() {
		s.complete()
	}
	return g.Wait()
}
