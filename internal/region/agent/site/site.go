// Package site works for the service clusters whose home is one region: it finds out how each is, and
// makes the namespaces of assignments and the instances of the catalog there. A service cluster that is
// slow or away holds up no other. Which assignments and entries there are, it never decides.
package site

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/region/agent/offering"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/status"
	"github.com/xbernetes/xbernetes/internal/region/agent/views"
	"github.com/xbernetes/xbernetes/internal/region/cluster"
	"github.com/xbernetes/xbernetes/internal/region/local"
)

const (
	probeEvery  = 20 * time.Second // a service cluster that can be used
	probeAgain  = 5 * time.Second  // one that cannot
	siteWorkers = 4
	callTimeout = 15 * time.Second
	// kubeconfigKey is where a Secret has the kubeconfig.
	kubeconfigKey = "kubeconfig"
)

// between is how long to wait before something that failed is tried again.
var between = backoff.Backoff{First: 100 * time.Millisecond, Last: 30 * time.Second}

// Sites are the service clusters whose home is here. Each has goroutines and a queue of its own.
type Sites struct {
	api   *local.API
	log   *slog.Logger
	views *views.Views
	ctx   context.Context //nolint:containedctx // that of the elected agent, in which all sites live
	all   errgroup.Group

	mu sync.Mutex
	of map[string]*site // guarded by mu
}

// New returns the sites that work until ctx ends, which are none yet.
func New(ctx context.Context, api *local.API, v *views.Views, log *slog.Logger) *Sites {
	return &Sites{api: api, log: log, views: v, ctx: ctx, of: map[string]*site{}}
}

// Start has a site work for a service cluster, if none does yet, and look at it now.
func (s *Sites) Start(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[name]; have != nil {
		have.queue.Add(probe)
		return
	}
	if s.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	made := &site{
		api: s.api, log: s.log, views: s.views, name: name, end: cancel,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](between.First, between.Last)),
	}
	made.offers = offering.New(s.api, name, func(at offering.Item, after time.Duration) { made.queue.AddAfter(item{Item: at}, after) })
	s.of[name] = made
	s.all.Go(func() error {
		made.run(ctx)
		return nil
	})
}

// Assignment has the site of a service cluster look at an assignment, if there is such a site.
func (s *Sites) Assignment(name, assignment string) { s.nudge(name, item{assignment: assignment}) }

// Entry has the site of a service cluster look at an entry of the catalog, if there is such a site.
func (s *Sites) Entry(name string, entry types.NamespacedName) {
	s.nudge(name, item{Item: offering.Item{Entry: entry}})
}

func (s *Sites) nudge(name string, at item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[name]; have != nil {
		have.queue.Add(at)
	}
}

// End ends the work for a service cluster.
func (s *Sites) End(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[name]; have != nil {
		have.end()
		delete(s.of, name)
	}
}

// Stop returns once all sites have ended. Their context must be over.
func (s *Sites) Stop() { _ = s.all.Wait() }

// item is what a site looks at: an assignment, or an item of the catalog. The zero item is the
// service cluster itself.
type item struct {
	assignment string
	offering.Item
}

var probe item

// site works for one service cluster.
type site struct {
	api   *local.API
	log   *slog.Logger
	views *views.Views
	name  string
	end   context.CancelFunc
	queue workqueue.TypedRateLimitingInterface[item]

	offers *offering.Offers

	mu     sync.Mutex       // guards what follows
	remote *cluster.Cluster // nil: nobody can connect now
	opened *cluster.Cluster // of the kubeconfig with this sum; it need not be usable
	sum    [sha256.Size]byte
}

// run works until ctx ends.
func (s *site) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.queue.ShutDown)
	defer stop()
	s.queue.Add(probe)
	var g errgroup.Group
	for range siteWorkers {
		g.Go(func() error {
			for s.next(ctx) {
			}
			return nil
		})
	}
	_ = g.Wait() // they return none
	s.offers.Stop()
}

// next works on one item; false: there are no more.
func (s *site) next(ctx context.Context) bool {
	at, over := s.queue.Get()
	if over {
		return false
	}
	defer s.queue.Done(at)
	soon, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	if at == probe {
		if err := s.look(soon); err != nil && !projection.IsWaiting(err) && ctx.Err() == nil {
			s.log.Warn("a service cluster is looked at again", "servicecluster", s.name, "error", err)
		}
		again := probeEvery
		if s.usable() == nil {
			again = probeAgain
		}
		s.queue.AddAfter(probe, again)
		return true
	}
	var err error
	switch remote := s.usable(); {
	case at.assignment != "":
		err = s.assign(soon, at.assignment, remote)
	case at.Instance.Name != "":
		err = s.offers.Sync(soon, at.Item, remote)
	default:
		err = s.offers.Offer(ctx, soon, at.Entry, remote)
	}
	if err != nil && ctx.Err() == nil {
		if !projection.IsWaiting(err) {
			s.log.Warn("tried again", "servicecluster", s.name, "assignment", at.assignment, "entry", at.Entry, "instance", at.Instance, "error", err)
		}
		s.queue.AddRateLimited(at)
		return true
	}
	s.queue.Forget(at)
	return true
}

// usable is the connection to the service cluster; nil if nobody can connect now.
func (s *site) usable() *cluster.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote
}

// look finds out how the service cluster is, and says so in its conditions. Once it can be used
// again, all its assignments are looked at.
func (s *site) look(ctx context.Context) error {
	c, err := s.api.ServiceClusters.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !s.api.Connects(c) {
		return err
	}
	remote, problem, err := s.connect(ctx, c)
	if err != nil {
		return err
	}
	if problem == nil {
		problem = remote.Probe(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	next := *c.Status.DeepCopy()
	if problem == nil {
		status.Set(&next.Conditions, v1alpha1.ConditionReachable, true, "Answers", "its API answers")
		status.Set(&next.Conditions, v1alpha1.ConditionReady, true, status.Ready, "its API answers, and the kubeconfig has the rights that are needed")
	} else {
		remote = nil
		status.Set(&next.Conditions, v1alpha1.ConditionReachable, problem.Reachable, problem.Reason, problem.Message)
		status.Set(&next.Conditions, v1alpha1.ConditionReady, false, problem.Reason, problem.Message)
	}
	s.mu.Lock()
	again := (s.remote == nil) != (remote == nil)
	s.remote = remote
	s.mu.Unlock()
	if again {
		s.lookAtAll()
	}
	return status.ServiceCluster(ctx, s.api, c, next)
}

// lookAtAll has all assignments and entries of the service cluster looked at.
func (s *site) lookAtAll() {
	assignments, entries := s.views.Of(s.name)
	again := func(at item) {
		s.queue.Forget(at)
		s.queue.Add(at)
	}
	for _, name := range assignments {
		again(item{assignment: name})
	}
	for _, e := range entries {
		again(item{Item: offering.Item{Entry: e}})
	}
}

// connect reads the service cluster's Secret. A kubeconfig that has not changed keeps its
// connections.
func (s *site) connect(ctx context.Context, c *v1alpha1.ServiceCluster) (*cluster.Cluster, *cluster.Problem, error) {
	ref := c.Spec.KubeconfigSecret
	no := func(reason, message string, of ...any) (*cluster.Cluster, *cluster.Problem, error) {
		return nil, &cluster.Problem{Reason: reason, Message: fmt.Sprintf("the Secret %s/%s %s", ref.Namespace, ref.Name, fmt.Sprintf(message, of...))}, nil
	}
	secret, err := s.api.Kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return no("SecretMissing", "is not in region %s", s.api.Region)
	case apierrors.IsForbidden(err):
		return no("SecretForbidden", "may not be read by this agent: it must be in the namespace of an account that is a Provider")
	case err != nil:
		return nil, nil, err
	case secret.Labels[v1alpha1.LabelServiceCluster] != c.Name:
		return no("SecretNotLabelled", "does not have the label %s=%s, by which its owner gives it to this service cluster", v1alpha1.LabelServiceCluster, c.Name)
	case len(secret.Data[kubeconfigKey]) == 0:
		return no("SecretEmpty", "has no key %s", kubeconfigKey)
	}
	sum := sha256.Sum256(secret.Data[kubeconfigKey])
	s.mu.Lock()
	opened := s.opened
	if sum != s.sum {
		opened = nil
	}
	s.mu.Unlock()
	if opened == nil {
		if opened, err = cluster.Open(secret.Data[kubeconfigKey]); err != nil {
			return no("KubeconfigRefused", "%s", err)
		}
	}
	s.mu.Lock()
	s.opened, s.sum = opened, sum
	s.mu.Unlock()
	return opened, nil, nil
}
