// Package lease keeps a cluster's own ClusterLease: its sign of life, how many Services
// it publishes, and what it remembers of its peers. It never reads a peer's lease.
package lease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// renewals is how often a lease is renewed while it lasts.
const renewals = 4

// Keeper writes the cluster's own ClusterLease: its sign of life, how many
// Services it publishes, and what it remembers of its peers.
type Keeper struct {
	api       *access.API
	namespace string
	cluster   clusterset.ID
	duration  time.Duration
	log       *slog.Logger
	// Peers and Conditions are called before each renewal, for the status to write.
	Peers      func(now time.Time) []v1alpha1.PeerStatus
	Conditions func() []metav1.Condition

	wake chan struct{}

	mu      sync.Mutex
	want    v1alpha1.ClusterLeaseSpec
	round   *round
	current *v1alpha1.ClusterLease // as last written; nil: unknown
}

// round is one write of the lease; several goroutines may wait for its end.
type round struct {
	over chan struct{}
	err  error
}

func New(a *access.API, namespace string, cluster clusterset.ID, duration time.Duration, log *slog.Logger) *Keeper {
	return &Keeper{
		api: a, namespace: namespace, cluster: cluster, duration: duration, log: log,
		wake: make(chan struct{}, 1), round: &round{over: make(chan struct{})},
		want: v1alpha1.ClusterLeaseSpec{
			FormatVersion: v1alpha1.FormatVersion, Cluster: string(cluster), DurationSeconds: int32(duration.Seconds()),
		},
	}
}

// Load reads the lease that an earlier process wrote; nil if there is none.
func (k *Keeper) Load(ctx context.Context) (*v1alpha1.ClusterLease, error) {
	found, err := Read(ctx, k.api, k.namespace, k.cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read own lease: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = found
	// If all Services were published then, they still are. Services that changed since
	// then are published again before a peer could take one for missing.
	k.want.Complete = found.Spec.Complete && found.Spec.FormatVersion == v1alpha1.FormatVersion
	// This process will read the same peers. A peer that hands a Service over meanwhile
	// waits for the answers of all clusters that read it.
	k.want.Peers = slices.Clone(found.Spec.Peers)
	return found, nil
}

// Read returns the lease of a cluster as the API has it.
func Read(ctx context.Context, a *access.API, namespace string, cluster clusterset.ID) (*v1alpha1.ClusterLease, error) {
	found := &v1alpha1.ClusterLease{}
	client, resource, err := a.Resource(found)
	if err != nil {
		return nil, err
	}
	err = client.Get().Namespace(namespace).Resource(resource).Name(string(cluster)).Do(ctx).Into(found)
	return found, err
}

// Set changes the lease's spec. If the spec becomes different, the lease is written soon.
func (k *Keeper) Set(change func(*v1alpha1.ClusterLeaseSpec)) {
	k.mu.Lock()
	before := k.want.DeepCopy()
	change(&k.want)
	changed := !equality.Semantic.DeepEqual(before, &k.want)
	k.mu.Unlock()
	if changed {
		k.nudge()
	}
}

func (k *Keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Announce adds n to the number of published Services, and returns when the written
// lease has the new number. Concurrent calls share a write. Peers count Services only
// once the lease is Complete; before that, Announce returns at once, because the write
// that sets Complete carries the number too.
func (k *Keeper) Announce(ctx context.Context, n int32) error {
	k.mu.Lock()
	k.want.Services += n
	r := k.round
	counts := k.want.Complete || k.current == nil || k.current.Spec.Complete
	k.mu.Unlock()
	if !counts {
		return nil
	}
	k.nudge()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.over:
		return r.err
	}
}

// Retract takes back an announced number whose write was not carried out.
func (k *Keeper) Retract(n int32) {
	k.Set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Services -= n })
}

// Run renews the lease until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var renewed time.Time
	for {
		now := time.Now()
		every := k.duration / renewals
		if now.Sub(renewed) >= every {
			renewed = now
		}
		if err := k.renew(ctx, renewed); err != nil && ctx.Err() == nil {
			k.log.Warn("own lease was not written; if this goes on, peers will take this cluster for stale", "error", err)
			access.Pause(ctx, time.Second)
			renewed = time.Time{}
		}
		timer := time.NewTimer(max(0, time.Until(renewed.Add(every))))
		select {
		case <-ctx.Done():
			timer.Stop()
			k.mu.Lock()
			k.finish(ctx.Err())
			k.mu.Unlock()
			return nil
		case <-k.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// finish ends the current round with err for all who wait for it. k.mu is held.
func (k *Keeper) finish(err error) {
	k.round.err = err
	close(k.round.over)
	k.round = &round{over: make(chan struct{})}
}

// renew writes the wanted spec, and then the status.
func (k *Keeper) renew(ctx context.Context, renewed time.Time) error {
	k.mu.Lock()
	waiting := k.round
	k.round = &round{over: make(chan struct{})}
	want, current := *k.want.DeepCopy(), k.current
	k.mu.Unlock()
	want.RenewTime = metav1.MicroTime{Time: renewed.Truncate(time.Microsecond)}
	slices.Sort(want.Peers)

	written, err := k.write(ctx, current, want)
	waiting.err = err
	close(waiting.over)
	k.mu.Lock()
	k.current = written
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return k.report(ctx, written)
}

// write creates or updates the lease. It returns nil after an error, when the lease's
// state is unknown; the next write then reads it first.
func (k *Keeper) write(ctx context.Context, current *v1alpha1.ClusterLease, want v1alpha1.ClusterLeaseSpec) (*v1alpha1.ClusterLease, error) {
	if current == nil {
		found, err := Read(ctx, k.api, k.namespace, k.cluster)
		switch {
		case apierrors.IsNotFound(err):
			lease := &v1alpha1.ClusterLease{Spec: want}
			lease.Name, lease.Namespace = string(k.cluster), k.namespace
			return k.result(k.api.Apply(ctx, plan.Write{Verb: plan.Create, Object: lease}))
		case err != nil:
			return nil, fmt.Errorf("read own lease: %w", err)
		}
		current = found
	}
	if equality.Semantic.DeepEqual(current.Spec, want) {
		return current, nil
	}
	next := current.DeepCopy()
	next.Spec = want
	return k.result(k.api.Apply(ctx, plan.Write{Verb: plan.Update, Object: next, Before: current}))
}

func (k *Keeper) result(obj plan.Object, err error) (*v1alpha1.ClusterLease, error) {
	if err != nil {
		return nil, err
	}
	return obj.(*v1alpha1.ClusterLease), nil
}

// report writes the lease's status if news says that it is worth writing.
func (k *Keeper) report(ctx context.Context, lease *v1alpha1.ClusterLease) error {
	next := lease.DeepCopy()
	next.Status.Peers = k.Peers(time.Now())
	for _, c := range k.Conditions() {
		meta.SetStatusCondition(&next.Status.Conditions, c)
	}
	if !news(lease.Status, next.Status, k.duration/renewals) {
		return nil
	}
	written, err := k.result(k.api.Apply(ctx, plan.Write{Verb: plan.UpdateStatus, Object: next, Before: lease}))
	k.mu.Lock()
	k.current = written
	k.mu.Unlock()
	return err
}

// news reports whether a status is worth writing. A later time at which a peer was heard
// is written only once per pace, the time between renewals.
func news(before, now v1alpha1.ClusterLeaseStatus, pace time.Duration) bool {
	if len(before.Peers) != len(now.Peers) || !equality.Semantic.DeepEqual(before.Conditions, now.Conditions) {
		return true
	}
	for i, p := range now.Peers {
		was := before.Peers[i]
		if p.Cluster != was.Cluster || p.State != was.State || p.Message != was.Message || p.DurationSeconds != was.DurationSeconds {
			return true
		}
		if p.Heard != nil && (was.Heard == nil || p.Heard.Sub(was.Heard.Time) >= pace) {
			return true
		}
	}
	return false
}
