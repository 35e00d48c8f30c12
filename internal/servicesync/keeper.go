package servicesync

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
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// renewals is how often a lease is renewed while it lasts.
const renewals = 4

// keeper writes the cluster's own ClusterLease: its sign of life, how many
// Services it publishes, and what it remembers of its peers.
type keeper struct {
	api       *api
	namespace string
	cluster   model.ClusterID
	duration  time.Duration
	log       *slog.Logger
	// peers and conditions are asked before each renewal.
	peers      func(now time.Time) []v1alpha1.PeerStatus
	conditions func() []metav1.Condition

	wake chan struct{}

	mu      sync.Mutex
	want    v1alpha1.ClusterLeaseSpec
	round   *round
	current *v1alpha1.ClusterLease // as last written; nil: unknown
}

// round is one write of the lease, which several may wait for.
type round struct {
	over chan struct{}
	err  error
}

func newKeeper(a *api, namespace string, cluster model.ClusterID, duration time.Duration, log *slog.Logger) *keeper {
	return &keeper{
		api: a, namespace: namespace, cluster: cluster, duration: duration, log: log,
		wake: make(chan struct{}, 1), round: &round{over: make(chan struct{})},
		want: v1alpha1.ClusterLeaseSpec{
			FormatVersion: v1alpha1.FormatVersion, Cluster: string(cluster), DurationSeconds: int32(duration.Seconds()),
		},
	}
}

// load reads the lease that an earlier process left, or nil.
func (k *keeper) load(ctx context.Context) (*v1alpha1.ClusterLease, error) {
	found, err := k.read(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read own lease: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = found
	// What was complete is: what has changed since is published before anything
	// that others could take for absent.
	k.want.Complete = found.Spec.Complete && found.Spec.FormatVersion == v1alpha1.FormatVersion
	// Whom it read it will read again: who hands over meanwhile waits for it.
	k.want.Peers = slices.Clone(found.Spec.Peers)
	return found, nil
}

func (k *keeper) read(ctx context.Context) (*v1alpha1.ClusterLease, error) {
	found := &v1alpha1.ClusterLease{}
	client, resource, err := k.api.place(found)
	if err != nil {
		return nil, err
	}
	err = client.Get().Namespace(k.namespace).Resource(resource).Name(string(k.cluster)).Do(ctx).Into(found)
	return found, err
}

// set changes what the lease says, from its next writing on; soon, if it
// changes anything.
func (k *keeper) set(change func(*v1alpha1.ClusterLeaseSpec)) {
	k.mu.Lock()
	before := k.want.DeepCopy()
	change(&k.want)
	changed := !equality.Semantic.DeepEqual(before, &k.want)
	k.mu.Unlock()
	if changed {
		k.nudge()
	}
}

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// announce adds n to how many Services are published, and returns when the
// lease says so. Those that announce at the same time share a write. As long as
// the lease does not say that all is published, nobody counts, and nothing is
// waited for: by the time that it does, it has the number.
func (k *keeper) announce(ctx context.Context, n int32) error {
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

// retract takes back what was announced and did not come about.
func (k *keeper) retract(n int32) {
	k.set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Services -= n })
}

// run renews the lease until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	var renewed time.Time
	for {
		now := time.Now()
		every := k.duration / renewals
		if now.Sub(renewed) >= every {
			renewed = now
		}
		if err := k.renew(ctx, renewed); err != nil && ctx.Err() == nil {
			k.log.Warn("own lease was not written; peers will take this cluster for stale if that goes on", "error", err)
			pause(ctx, time.Second)
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

// finish ends the round that others wait for. k.mu is held.
func (k *keeper) finish(err error) {
	k.round.err = err
	close(k.round.over)
	k.round = &round{over: make(chan struct{})}
}

// renew writes the lease as it is wanted now, and then its status.
func (k *keeper) renew(ctx context.Context, renewed time.Time) error {
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

// write creates or updates the lease. It returns nil where it is not known what
// there is, which has it read anew.
func (k *keeper) write(ctx context.Context, current *v1alpha1.ClusterLease, want v1alpha1.ClusterLeaseSpec) (*v1alpha1.ClusterLease, error) {
	if current == nil {
		found, err := k.read(ctx)
		switch {
		case apierrors.IsNotFound(err):
			lease := &v1alpha1.ClusterLease{Spec: want}
			lease.Name, lease.Namespace = string(k.cluster), k.namespace
			return k.result(k.api.apply(ctx, model.Write{Verb: model.Create, Object: lease}))
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
	return k.result(k.api.apply(ctx, model.Write{Verb: model.Update, Object: next, Before: current}))
}

func (k *keeper) result(obj model.Object, err error) (*v1alpha1.ClusterLease, error) {
	if err != nil {
		return nil, err
	}
	return obj.(*v1alpha1.ClusterLease), nil
}

// report writes the lease's status, if it says something new.
func (k *keeper) report(ctx context.Context, lease *v1alpha1.ClusterLease) error {
	next := lease.DeepCopy()
	next.Status.Peers = k.peers(time.Now())
	for _, c := range k.conditions() {
		meta.SetStatusCondition(&next.Status.Conditions, c)
	}
	if !news(lease.Status, next.Status, k.duration/renewals) {
		return nil
	}
	written, err := k.result(k.api.apply(ctx, model.Write{Verb: model.UpdateStatus, Object: next, Before: lease}))
	k.mu.Lock()
	k.current = written
	k.mu.Unlock()
	return err
}

// news tells whether a status is worth writing: when a peer was heard is, at
// the pace of renewals.
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

// recall is what a lease's status remembers of a peer, for a process that
// begins to read it now. An absence of this process is no silence of the
// peer's: one that was not given up is given time to be heard.
func recall(s v1alpha1.PeerStatus, began time.Time) memory {
	switch {
	case s.Heard == nil && s.State == string(model.Expired):
		return memory{}
	case s.Heard == nil:
		return memory{heard: began}
	}
	m := memory{heard: s.Heard.Time, read: true, duration: time.Duration(s.DurationSeconds) * time.Second}
	if s.State == string(model.Expired) {
		return m
	}
	if grace := began.Add(-m.duration / 8); m.heard.Before(grace) {
		m.heard = grace // stale after 3/8 of the lease, which is more than one renewal
	}
	return m
}

// unknown is what people are told of a peer that was not reached yet: it is only
// taken for alive, for a while.
const unknown = "Unknown"

// state is what people are told of a peer.
func (m memory) state(health model.Health) string {
	if !m.read && health != model.Expired {
		return unknown
	}
	return string(health)
}

// statusOf is what recall makes a memory of.
func statusOf(id model.ClusterID, m memory, health model.Health) v1alpha1.PeerStatus {
	status := v1alpha1.PeerStatus{Cluster: string(id), State: m.state(health), DurationSeconds: int32(m.duration.Seconds())}
	if m.read {
		status.Heard = &metav1.MicroTime{Time: m.heard.Truncate(time.Microsecond)}
	}
	return status
}
