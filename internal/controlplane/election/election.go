// Package election picks the server that runs the controllers, among the servers on one store,
// and picks another one when that server stops. It knows nothing of the controllers.
package election

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is the name of the Lease in kube-system that the leader holds.
const Lease = "xbernetes-controllers"

// Pace says how often the lease is renewed.
type Pace struct {
	// Lease is how long others wait before they take over.
	Lease time.Duration
	// Renew is how long the leader tries to renew before it gives up.
	Renew time.Duration
	// Retry is the time between renewals, one write to the store each.
	Retry time.Duration
}

// Check reports a pace that client-go would refuse.
func (p Pace) Check() error {
	// client-go jitters the retry by up to 1.2.
	if p.Retry <= 0 || float64(p.Renew) <= 1.2*float64(p.Retry) || p.Lease <= p.Renew {
		return fmt.Errorf("leader election wants lease > renew > 1.2 × retry > 0, not %s, %s, %s", p.Lease, p.Renew, p.Retry)
	}
	return nil
}

// A Candidate is a server that stands for election.
type Candidate struct {
	// Client reaches the API server.
	Client kubernetes.Interface
	// ID is used by one process at a time, because its data directory is locked. A
	// leader that was killed and comes back with the same ID is still the leader.
	ID   string
	Pace Pace
	Log  *slog.Logger
}

// Run does the work whenever this server holds the lease, until ctx ends. It
// gives the lease back only once the work has ended.
func (c Candidate) Run(ctx context.Context, work func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := c.compete(ctx, work); err != nil {
			c.Log.Error("the controllers stopped; starting them again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// compete stands for election once, and returns when the term is over.
func (c Candidate) compete(ctx context.Context, work func(context.Context) error) error {
	// The election outlives ctx: it goes on renewing until the work has ended.
	elected, over, stop, err := c.elect(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer func() {
		stop() // gives the lease back, if it is still held
		<-over
	}()
	vacant, unwatch := watchVacancy(c.Client)
	defer unwatch()
	select {
	case <-ctx.Done():
		return nil
	case <-over:
		return nil
	case <-vacant:
		return nil // stand again, at once rather than after the retry period
	case leading := <-elected:
		unwatch()
		return c.lead(ctx, leading, work)
	}
}

// lead does the work until ctx or leading ends.
func (c Candidate) lead(ctx, leading context.Context, work func(context.Context) error) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	c.Log.Info("running the controllers")
	err := work(working)
	if err == nil && ctx.Err() == nil {
		c.Log.Warn("lost the lease of the controllers; another server may run them now")
	}
	return err
}

// elect takes part in the election until it is stopped or loses the lease. A
// context arrives on elected when the lease is won, and ends when it is lost; over
// closes when the election has ended.
func (c Candidate) elect(ctx context.Context) (elected <-chan context.Context, over <-chan struct{}, stop context.CancelFunc, err error) {
	won := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Lease},
			Client:     c.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.ID},
		},
		LeaseDuration:   c.Pace.Lease,
		RenewDeadline:   c.Pace.Renew,
		RetryPeriod:     c.Pace.Retry,
		ReleaseOnCancel: true,
		Name:            Lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { won <- leading },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make leader elector: %w", err)
	}
	electing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(electing)
	}()
	return won, done, stop, nil
}

// watchVacancy returns a channel that receives when a leader gives the lease
// back, or somebody deletes it. A watch costs the store nothing; polling would.
func watchVacancy(client kubernetes.Interface) (vacant <-chan struct{}, unwatch func()) {
	ch := make(chan struct{}, 1)
	signal := func() {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	holder := func(obj any) string {
		if l, ok := obj.(*coordinationv1.Lease); ok && l.Spec.HolderIdentity != nil {
			return *l.Spec.HolderIdentity
		}
		return ""
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", Lease).String()
		}))
	// Only changes count: if the lease is vacant from the start, the elector finds out itself.
	_, err := factory.Coordination().V1().Leases().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if holder(before) != "" && holder(after) == "" {
				signal()
			}
		},
		DeleteFunc: func(any) { signal() },
	})
	stop := make(chan struct{})
	if err == nil { // it never is, before the informer starts
		factory.Start(stop)
	}
	return ch, sync.OnceFunc(func() {
		close(stop)
		factory.Shutdown()
	})
}
