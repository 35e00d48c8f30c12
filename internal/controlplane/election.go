package controlplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
		if err := c.compete(ctx, lock, pace); err != nil {
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
func (c *controllers) compete(ctx context.Context, lock resourcelock.Interface, pace LeaderElection) error {
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
	select {
	case <-ctx.Done():
		return nil
	case <-over:
		return nil
	case leading := <-elected:
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
