package controlplane

import (
	"context"
	"fmt"
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

// controllersLease names the Lease in kube-system that the controllers' leader holds.
const controllersLease = "xbernetes-controllers"

// Run competes for the lease, and runs the controllers while this server holds
// it, until ctx ends. The lease is given back only once all of them are down.
func (c *controllers) Run(ctx context.Context, pace LeaderElection) error {
	client, err := kubernetes.NewForConfig(c.as("leader-election"))
	if err != nil {
		return fmt.Errorf("make leader election client: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: controllersLease},
		Client:    client.CoordinationV1(),
		// The data directory is locked, so its id is held by one process. One that
		// was killed finds itself still the leader when it comes back.
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.id.id},
	}
	for ctx.Err() == nil {
		if err := c.compete(ctx, client, lock, pace); err != nil {
			c.log.Error("the controllers stopped; starting them again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// compete stands for election once, and returns when the term is over.
func (c *controllers) compete(ctx context.Context, client kubernetes.Interface, lock resourcelock.Interface, pace LeaderElection) error {
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   pace.Lease,
		RenewDeadline:   pace.Renew,
		RetryPeriod:     pace.Retry,
		ReleaseOnCancel: true,
		Name:            controllersLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { elected <- leading },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make leader elector: %w", err)
	}
	// The election outlives ctx: it goes on renewing until the controllers are down.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(electing)
	}()
	defer func() {
		stop() // gives the lease back, if it is still held
		<-over
	}()
	vacant, unwatch := watchVacancy(client)
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
		working, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(leading, cancel)()
		c.log.Info("running the controllers")
		err := c.lead(working)
		if err == nil && ctx.Err() == nil {
			c.log.Warn("lost the lease of the controllers; another server may run them now")
		}
		return err
	}
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
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", controllersLease).String()
		}))
	// Only changes count: what is vacant from the start, the elector finds itself.
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
