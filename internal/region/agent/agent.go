// Package agent makes in one region what follows from the names that the region knows: objects
// of the kinds Account, ServiceCluster, ServiceClusterAssignment and Region, an account's
// namespace and rights, and an assignment's namespace on its service cluster. It never writes to
// another region, and changes and removes nothing that it did not make.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/leader"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/site"
	"github.com/xbernetes/xbernetes/internal/region/agent/views"
	"github.com/xbernetes/xbernetes/internal/region/leftover"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Config is which region an agent works for, and how.
type Config struct {
	// Region is the region's name, as the regions know it.
	Region string
	// API reaches the region's API.
	API *rest.Config
	// Namespace has the Lease by which one of several agents is elected. It is created.
	Namespace string
	Identity  string // of this process, for that Lease
	Log       *slog.Logger
	// Regions are all regions, with the credentials by which the agent ends operations that clients
	// have left behind; nil: it ends none.
	Regions *client.Regions
	// Grace is how long such an operation must have stood still.
	Grace time.Duration
	// Metrics takes the agent's metrics.
	Metrics prometheus.Registerer
}

const (
	leaseName = "xb-region-agent"
	workers   = 8 // names that are worked on at a time
	// callTimeout ends calls to the own region; those of a watch last longer.
	callTimeout = 15 * time.Second
)

// between is how long to wait before a failed name is tried again.
var between = backoff.Backoff{First: 100 * time.Millisecond, Last: 30 * time.Second}

// Run works for the region whenever this process is the elected one, until ctx ends.
func Run(ctx context.Context, c Config) error {
	api, err := local.New(c.Region, c.API)
	if err != nil {
		return fmt.Errorf("reach region %s: %w", c.Region, err)
	}
	counts := newMetrics(c.Metrics)
	leftovers, err := c.leftovers()
	if err != nil {
		return err
	}
	election := leader.Election{Client: api.Kube.CoordinationV1(), Namespace: c.Namespace, Name: leaseName, Identity: c.Identity, Log: c.Log}
	for n := 1; ctx.Err() == nil; n++ {
		err := prepare(ctx, api, c.Namespace)
		if err == nil {
			err = election.Hold(ctx, func(ctx context.Context) error {
				n = 0
				return lead(ctx, api, counts, leftovers, c.Log)
			})
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Error("the agent stopped; it is started again and again", "region", c.Region, "error", err)
			_ = between.Pause(ctx, max(n, 1)) // the loop sees that ctx has ended
		}
	}
	return nil
}

// leftovers is how operations that were left behind are ended; nil if they are not.
func (c Config) leftovers() (*leftover.Config, error) {
	if c.Regions == nil {
		return nil, nil
	}
	here, err := c.Regions.In(c.Region)
	if err != nil {
		return nil, err
	}
	return &leftover.Config{Region: here, Grace: c.Grace, Log: c.Log, Metrics: leftover.NewMetrics(c.Metrics)}, nil
}

// prepare makes the namespace of the Lease.
func prepare(ctx context.Context, api *local.API, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := api.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the namespace %s for the agents' Lease: %w", namespace, err)
	}
	return nil
}

// term is the work of one agent while it is elected.
type term struct {
	api    *local.API
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[stored.Key]
	views  *views.Views
	sites  *site.Sites
	counts *metrics
	// self is the user that the agent is to its region.
	self string
}

// lead works until ctx ends.
func lead(ctx context.Context, api *local.API, counts *metrics, leftovers *leftover.Config, log *slog.Logger) error {
	review, err := api.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask who this agent is: %w", err)
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	api = withEvents(api, events)
	t := &term{
		api: api, log: log, counts: counts, self: review.Status.UserInfo.Username,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[stored.Key](between.First, between.Last)),
	}
	defer t.queue.ShutDown()
	t.views = views.New(api, t.queue.Add)
	g, ctx := errgroup.WithContext(ctx)
	t.sites = site.New(ctx, api, t.views, log)
	defer t.sites.Stop()
	defer counts.lead(t.views)()
	g.Go(func() error { return t.views.Run(ctx) })
	if leftovers != nil {
		g.Go(func() error {
			leftover.Run(ctx, *leftovers)
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		t.queue.ShutDown()
		return nil
	})
	if t.views.Wait(ctx) {
		log.Info("working for region", "region", api.Region, "as", t.self)
		for range workers {
			g.Go(func() error {
				for t.next(ctx) {
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// withEvents returns the same API, with a recorder of Events.
func withEvents(api *local.API, to record.EventBroadcaster) *local.API {
	to.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: api.Kube.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme)) // the kinds are compiled in
	with := *api
	with.Events = to.NewRecorder(scheme, corev1.EventSource{Component: leaseName})
	return &with
}

// next works on one name; false: there are no more.
func (t *term) next(ctx context.Context) bool {
	key, over := t.queue.Get()
	if over {
		return false
	}
	defer t.queue.Done(key)
	soon, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	err := t.reconcile(soon, key)
	t.counts.worked(key.Kind, err)
	switch {
	case err == nil:
		t.queue.Forget(key)
	case ctx.Err() == nil:
		if !projection.IsWaiting(err) {
			t.log.Warn("a name is tried again", "kind", key.Kind, "name", key.Name, "error", err)
		}
		t.queue.AddRateLimited(key)
	}
	return true
}

// reconcile makes what follows from a name as it should be.
func (t *term) reconcile(ctx context.Context, key stored.Key) error {
	switch key.Kind {
	case projection.KindAccount:
		return projection.Reconcile(ctx, t.api, key, t.accounts())
	case projection.KindServiceCluster:
		return projection.Reconcile(ctx, t.api, key, t.serviceClusters())
	case projection.KindAssignment:
		return projection.Reconcile(ctx, t.api, key, t.assignments())
	case projection.KindEntry:
		return t.entry(ctx, key)
	case projection.KindRegion:
		return t.regions(ctx)
	}
	return nil // a key that nothing follows from
}
