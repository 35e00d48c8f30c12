// Package leader has one of several processes at a time do some work, by a Lease in a Kubernetes
// API. It knows nothing of the work, and never calls it again by itself.
package leader

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Terms of the Lease.
const (
	lasts = 15 * time.Second
	renew = 10 * time.Second
	retry = 2 * time.Second
)

// Election is what processes that elect a leader agree on, and this process's part.
type Election struct {
	Client coordinationv1.LeasesGetter
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Identity is this process's: two processes that run at one time must differ in it, a
	// process that is started again should not.
	Identity string
	Log      *slog.Logger
}

// Hold waits until this process is elected, and calls work with a context that ends with the
// term, or with ctx. It returns what work returns, or nil if the process was not elected before
// ctx ended. The Lease is given back once work has returned.
func (e Election) Hold(ctx context.Context, work func(context.Context) error) error {
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     e.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		LeaseDuration: lasts, RenewDeadline: renew, RetryPeriod: retry,
		ReleaseOnCancel: true, Name: e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				if id != e.Identity {
					e.Log.Info("another process leads", "leader", id)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make leader elector: %w", err)
	}
	// The lease is given back only once the work is over.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(electing)
	}()
	defer func() {
		release()
		<-over
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-over:
		return nil
	case term := <-leading:
		working, stop := context.WithCancel(term)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return work(working)
	}
}

// Identity returns the name by which this process takes part: $POD_NAME, or else one that differs
// at each start.
func Identity() (string, error) {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this host's name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}
