package servicesync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/lease"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/queue"
)

// site is one cluster that is worked for, for as long as this process leads
// there. All that it knows is read from the clusters' APIs.
type site struct {
	model        model.Config
	own          *access.API
	publications *access.API
	source       peers.Source
	pace         access.Pace
	namespace    string // where peers publish that say nothing else
	workers      int
	log          *slog.Logger
	metrics      *metrics
	recorder     record.EventRecorder
	podRanges    []string
	forgotten    map[model.ClusterID]bool
	conditions   []metav1.Condition // found before the start

	services   *access.View[*corev1.Service]
	slices     *access.View[*discoveryv1.EndpointSlice]
	namespaces *access.View[*corev1.Namespace]
	endpoints  *access.View[*corev1.Endpoints] //nolint:staticcheck // deprecated, and written on request
	exports    *access.View[*mcs.ServiceExport]
	imports    *access.View[*mcs.ServiceImport]
	pubs       *access.View[*v1alpha1.PublishedService]
	pubSlices  *access.View[*v1alpha1.PublishedSlice]

	queue    *queue.Queue[types.NamespacedName]
	keeper   *lease.Keeper
	counting sync.RWMutex // held for reading while a publication is counted and written
	counted  atomic.Int64 // when that was last, in Unix nanoseconds

	mu       sync.Mutex
	peers    map[model.ClusterID]*reading
	faulty   map[string]peers.Peer             // named by somebody, and not to be read
	remember map[model.ClusterID]memory        // of peers that were read once
	named    chan struct{}                     // closed when the peers are known first
	recalled []string                          // peers that the lease named, until all sources are read
	initial  map[types.NamespacedName]struct{} // of the own cluster, and not yet decided once
	loaded   bool                              // initial is all there is
	notes    map[types.NamespacedName]*notes
	overlap  string // as last said
}

// reading is a peer and the reading of it.
type reading struct {
	*peer
	stop context.CancelFunc
	over chan struct{}
}

// notes are what is kept of a Service between passes; nothing in them is
// needed for a decision to be right.
type notes struct {
	noticed  time.Time                     // first live change of the own cluster's not yet decided about
	received map[model.ClusterID]time.Time // the same, of peers
	written  []receipt
	said     map[model.Event]bool
	facts    model.Facts
}

// receipt is a write that the own views have to show before the next decision,
// so that nothing is decided on what this process has itself overtaken.
type receipt struct {
	shown    func() bool
	deadline time.Time
}

// patience is how long a view may take to show a write; after that it is taken
// to have been overtaken.
const patience = 5 * time.Second

// newSite makes the views of the own cluster. Nothing is read before run; who does
// not run it shuts its queue down.
func newSite(s *site) (*site, error) {
	s.named = make(chan struct{})
	s.queue = queue.New[types.NamespacedName](5*time.Millisecond, time.Minute)
	s.peers = make(map[model.ClusterID]*reading)
	s.faulty = make(map[string]peers.Peer)
	s.remember = make(map[model.ClusterID]memory)
	s.initial = make(map[types.NamespacedName]struct{})
	s.notes = make(map[types.NamespacedName]*notes)
	err := errors.Join(s.watchOwn(), s.watchPublications(), s.watchMCS())
	if err != nil {
		s.queue.ShutDown()
	}
	return s, err
}

func (s *site) watchOwn() (err error) {
	asked := func() func(error) { return s.saidOnce("own cluster cannot be read", "own cluster") }
	if s.services, err = access.NewView(s.own, &corev1.Service{}, access.ViewOptions[*corev1.Service]{
		Asked: asked(),
		Slim:  func(svc *corev1.Service) { svc.Status = corev1.ServiceStatus{} },
		Changed: func(svc *corev1.Service, initial bool) {
			s.ownChanged(initial, access.KeyOf(svc), access.Labelled(svc, v1alpha1.LabelImport), access.Labelled(svc, mcs.LabelServiceName))
		},
	}); err != nil {
		return err
	}
	if s.slices, err = access.NewView(s.own, &discoveryv1.EndpointSlice{}, access.ViewOptions[*discoveryv1.EndpointSlice]{
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
	if s.namespaces, err = access.NewView(s.own, &corev1.Namespace{}, access.ViewOptions[*corev1.Namespace]{
		Asked:   asked(),
		Changed: s.namespaceChanged,
	}); err != nil {
		return err
	}
	s.endpoints, err = access.NewView(s.own, &corev1.Endpoints{}, access.ViewOptions[*corev1.Endpoints]{ //nolint:staticcheck // as above
		Asked: asked(),
		Slim: func(e *corev1.Endpoints) { //nolint:staticcheck // as above
			if e.Labels[discoveryv1.LabelSkipMirror] == "" {
				e.Subsets = nil // Kubernetes' own: that it is there is all that matters
			}
		},
		Changed: s.endpointsChanged,
	})
	return err
}

// endpointsChanged takes note of Endpoints that may be a replica's, or be left
// behind. Those that Kubernetes keeps for a selector say nothing that their
// slices do not.
func (s *site) endpointsChanged(e *corev1.Endpoints, initial bool) { //nolint:staticcheck // as above
	svc := s.services.Get(e.Namespace, e.Name)
	if e.Labels[discoveryv1.LabelSkipMirror] != "" || svc != nil && len(svc.Spec.Selector) == 0 {
		s.ownChanged(initial, access.KeyOf(e))
	}
}

func (s *site) watchPublications() (err error) {
	asked := func() func(error) {
		return s.saidOnce("own publications cannot be read", "where this cluster publishes")
	}
	labels := v1alpha1.LabelCluster + "=" + string(s.model.Cluster)
	if s.pubs, err = access.NewView(s.publications, &v1alpha1.PublishedService{}, access.ViewOptions[*v1alpha1.PublishedService]{
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
	s.pubSlices, err = access.NewView(s.publications, &v1alpha1.PublishedSlice{}, access.ViewOptions[*v1alpha1.PublishedSlice]{
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

// saidOnce logs why reading fails, once as long as it is for the same reason.
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

// watchMCS also watches what the cluster may not serve: the views are empty
// then, and fill once it does.
func (s *site) watchMCS() (err error) {
	asked := func() func(error) {
		say := s.saidOnce("own cluster cannot be read", "own cluster")
		return func(err error) {
			if !apierrors.IsNotFound(err) {
				say(err)
			}
		}
	}
	if s.exports, err = access.NewView(s.own, &mcs.ServiceExport{}, access.ViewOptions[*mcs.ServiceExport]{
		Asked:   asked(),
		Changed: func(e *mcs.ServiceExport, initial bool) { s.ownChanged(initial, access.KeyOf(e)) },
	}); err != nil {
		return err
	}
	s.imports, err = access.NewView(s.own, &mcs.ServiceImport{}, access.ViewOptions[*mcs.ServiceImport]{
		Asked:   asked(),
		Changed: func(i *mcs.ServiceImport, initial bool) { s.ownChanged(initial, access.KeyOf(i)) },
	})
	return err
}

// ownChanged takes note of a change in the own cluster.
func (s *site) ownChanged(initial bool, keys ...types.NamespacedName) {
	for i, k := range keys {
		if k.Name == "" || i > 0 && k == keys[0] || k == access.APIService() {
			continue
		}
		s.mu.Lock()
		if initial && !s.loaded {
			s.initial[k] = struct{}{}
		} else if n := s.noted(k); n.noticed.IsZero() {
			n.noticed = time.Now()
		}
		s.mu.Unlock()
		s.add(k, initial)
	}
}

// peerChanged takes note of a change of what a peer publishes.
func (s *site) peerChanged(k types.NamespacedName, id model.ClusterID, initial bool) {
	if !initial {
		s.mu.Lock()
		n := s.noted(k)
		if n.received == nil {
			n.received = make(map[model.ClusterID]time.Time)
		}
		if _, ok := n.received[id]; !ok {
			n.received[id] = time.Now()
		}
		s.mu.Unlock()
	}
	s.add(k, initial)
}

func (s *site) add(k types.NamespacedName, backlog bool) {
	if k == access.APIService() {
		return
	}
	if backlog {
		s.queue.Backlog(k)
	} else {
		s.queue.Live(k)
	}
}

// noted are the notes of a Service, made if there are none. s.mu is held.
func (s *site) noted(k types.NamespacedName) *notes {
	n, ok := s.notes[k]
	if !ok {
		n = &notes{}
		s.notes[k] = n
	}
	return n
}

// namespaceChanged has all Services of a namespace decided anew that has come
// or goes.
func (s *site) namespaceChanged(n *corev1.Namespace, initial bool) {
	if initial {
		return
	}
	s.eachKey(func(k types.NamespacedName) {
		if k.Namespace == n.Name {
			s.add(k, true)
		}
	})
}

// eachKey calls do for every Service that anything is known of, some more than once.
func (s *site) eachKey(do func(types.NamespacedName)) {
	s.services.Each(func(svc *corev1.Service) { do(access.KeyOf(svc)) })
	s.pubs.Each(func(p *v1alpha1.PublishedService) { do(access.ServiceOf(p.Spec.Service)) })
	s.exports.Each(func(e *mcs.ServiceExport) { do(access.KeyOf(e)) })
	s.imports.Each(func(i *mcs.ServiceImport) { do(access.KeyOf(i)) })
	for _, p := range s.readings() {
		p.services.Each(func(p *v1alpha1.PublishedService) { do(access.ServiceOf(p.Spec.Service)) })
	}
}

func (s *site) readings() []*reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*reading, 0, len(s.peers))
	for _, r := range s.peers {
		all = append(all, r)
	}
	return all
}

// run works for the cluster until ctx ends: it reads what is there, then lets
// peers in, and decides.
func (s *site) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, read := range s.reads() {
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

// reads are what keeps the own cluster's views.
func (s *site) reads() []func(context.Context) {
	return []func(context.Context){
		s.services.Run, s.slices.Run, s.namespaces.Run, s.endpoints.Run, s.pubs.Run, s.pubSlices.Run, s.exports.Run, s.imports.Run,
	}
}

// load waits until the own cluster is read, and recalls what an earlier
// process knew of peers.
func (s *site) load(ctx context.Context) error {
	need := []cache.InformerSynced{
		s.services.Synced, s.slices.Synced, s.namespaces.Synced, s.endpoints.Synced, s.pubs.Synced, s.pubSlices.Synced,
	}
	readable, err := s.readsMCS(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), append(need, readable...)...) {
		return ctx.Err()
	}
	lease, err := s.keeper.Load(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.loaded = true
	if lease != nil {
		s.recalled = lease.Spec.Peers
		for _, p := range lease.Status.Peers {
			if p.State != "" { // else it names no peer that was read
				s.remember[model.ClusterID(p.Cluster)] = recall(p, time.Now())
			}
		}
	}
	s.mu.Unlock()
	s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) {
		spec.Services, spec.PodRanges = int32(s.pubs.Len()), s.podRanges //nolint:gosec // Services of one cluster
	})
	s.log.Info("own cluster is read", "services", s.services.Len(), "slices", s.slices.Len(), "published", s.pubs.Len())
	return nil
}

// readsMCS are the views of the multi-cluster Services API to wait for: none of
// what the cluster does not serve, or does not let this controller read. Without
// those everything else goes on.
func (s *site) readsMCS(ctx context.Context) ([]cache.InformerSynced, error) {
	served, err := s.servesMCS()
	if err != nil || !served {
		return nil, err
	}
	var readable []cache.InformerSynced
	for resource, synced := range map[string]cache.InformerSynced{"serviceexports": s.exports.Synced, "serviceimports": s.imports.Synced} {
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

// peerPatience is how long the first decisions wait for peers.
const peerPatience = time.Second

// awaitPeers waits a moment for the peers to be read. Without them it would be
// right to begin, too; but what is decided without them is decided twice.
func (s *site) awaitPeers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	select {
	case <-s.named:
	case <-ctx.Done():
	}
	for _, r := range s.readings() {
		for ctx.Err() == nil && !r.synced() && !r.faulty() {
			access.Pause(ctx, 10*time.Millisecond)
		}
	}
}

// work decides about one Service after the other, until ctx ends.
func (s *site) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keeper.Run(ctx) })
	g.Go(func() error { return s.followPeers(ctx) })
	g.Go(func() error { s.measure(ctx); return nil })
	g.Go(func() error { s.overdue(ctx); return nil })
	s.awaitPeers(ctx)
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
	s.settled()
	return g.Wait()
}
