package servicesync

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/leader"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/preflight"
	"github.com/xbernetes/xbernetes/internal/servicesync/roster"
)

// Config says for which clusters a process works, and with which peers.
type Config struct {
	// Clusters are the clusters that this process works for; at least one.
	Clusters []access.Cluster
	// Peers finds the clusters to import from. A cluster that Peers names as its own
	// peer is ignored there.
	Peers func(own access.Cluster, kube kubernetes.Interface) peers.Source
	// Store is a shared API that clusters publish to, each in the namespace of its
	// name; nil: each publishes in its own API, in Namespace.
	Store *rest.Config
	// Namespace holds a cluster's leader lock, and the publications that the cluster
	// makes in its own API. Peers are read in it too, if their kubeconfigs name no other.
	Namespace string
	// Identity is this process's identity in leader election. Processes that run at
	// the same time must have different ones; a process that is started again should
	// keep its own. Empty: there is no other process, and no leader is elected.
	Identity string
	// Model is what holds for all Services. What it says of one cluster (Cluster,
	// Namespace, Families and Reserved) is set for each of the Clusters.
	Model model.Config
	// Forget names clusters whose replicas and endpoints are all to be removed.
	Forget []string
	// Lease is how long after the last renewal peers still count this cluster as alive.
	Lease time.Duration
	// Workers is how many Services are written at a time.
	Workers int
	Pace    access.Pace
	Version string
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// leaderName is the name of the leader lock.
const leaderName = "xb-servicesync"

// Run works for all clusters until ctx ends. If something fails in a cluster, or with a
// peer, Run logs it and tries again.
func Run(ctx context.Context, cfg Config) error {
	m := newMetrics(cfg.Metrics)
	g, ctx := errgroup.WithContext(ctx)
	for _, cluster := range cfg.Clusters {
		t := &term{cfg: cfg, cluster: cluster, metrics: m, log: cfg.Logger, beside: len(cfg.Clusters) == 1}
		if len(cfg.Clusters) > 1 {
			t.log = t.log.With("cluster", cluster.Name)
		}
		g.Go(func() error { return t.run(ctx) })
	}
	return g.Wait()
}

// term is the work for one cluster, from one election to the next.
type term struct {
	cfg     Config
	cluster access.Cluster
	metrics *metrics
	log     *slog.Logger
	// beside says that the cluster is near, so that compressing each event would cost
	// both ends more than it saves.
	beside bool

	own, publications *access.API
	namespace         string // of publications
	rights            metav1.Condition
}

// between is how long to wait after a term that failed.
var between = backoff.Backoff{First: time.Second, Last: 15 * time.Second}

// connect makes the clients.
func (t *term) connect() (err error) {
	agent := "xb-servicesync/" + t.cfg.Version + " " + t.cluster.Name
	own := rest.CopyConfig(t.cluster.Config)
	own.DisableCompression = own.DisableCompression || t.beside
	if t.own, err = access.New(own, t.cfg.Pace, agent); err != nil {
		return err
	}
	t.publications, t.namespace = t.own, t.cfg.Namespace
	if t.cfg.Store != nil {
		t.namespace = t.cluster.Name
		t.publications, err = access.New(t.cfg.Store, t.cfg.Pace, agent)
	}
	return err
}

// run serves one term after the other.
func (t *term) run(ctx context.Context) error {
	if err := t.connect(); err != nil {
		return err
	}
	said, failed := "", 0
	for ctx.Err() == nil {
		start := time.Now()
		err := t.hold(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		why := access.Explain(err, "cluster "+t.cluster.Name)
		if time.Since(start) > between.Last {
			said, failed = "", 0
		}
		if why != said {
			t.log.Error("service sync stopped; it is started again and again", "reason", why, "error", err)
			said = why
		}
		failed++
		_ = between.Pause(ctx, failed) // the loop sees that ctx has ended
	}
	return nil
}

// hold prepares the cluster, waits to be elected, and works until it no longer
// leads, or ctx ends.
func (t *term) hold(ctx context.Context) error {
	check := t.preflight()
	if err := check.Services(ctx); err != nil {
		return err
	}
	rights, missing, err := check.Rights(ctx)
	if err != nil {
		return err
	}
	t.metrics.rights.WithLabelValues(t.cluster.Name).Set(float64(missing))
	t.rights = rights
	if err := check.OwnNamespace(ctx, t.cfg.Namespace); err != nil {
		return err
	}
	if t.cfg.Identity == "" {
		return t.lead(ctx)
	}
	election := leader.Election{Client: t.own.Kube.CoordinationV1(), Namespace: t.cfg.Namespace, Name: leaderName, Identity: t.cfg.Identity, Log: t.log}
	return election.Hold(ctx, t.lead)
}

// lead works for the cluster until ctx ends.
func (t *term) lead(ctx context.Context) error {
	gauge := t.metrics.leading.WithLabelValues(t.cluster.Name)
	gauge.Set(1)
	defer gauge.Set(0)
	check := t.preflight()
	if err := check.Types(ctx); err != nil {
		return err
	}
	if check.Shared {
		if err := check.StoreNamespace(ctx); err != nil {
			return err
		}
	}
	s, err := t.site(ctx)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.own.Kube.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	s.recorder = broadcaster.NewRecorder(t.own.Scheme, corev1.EventSource{Component: access.FieldManager})
	t.log.Info("working for cluster", "name", t.cluster.Name, "server", t.own.Config.Host, "publishes", t.publications.Config.Host, "namespace", t.namespace)
	err = s.run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// site is the cluster as the model and the peers are configured for it.
func (t *term) site(ctx context.Context) (*site, error) {
	addresses := preflight.ReadAddresses(ctx, t.own, t.cluster.PodRanges, t.log)
	cfg := t.cfg.Model
	cfg.Cluster, cfg.Namespace, cfg.Families = model.ClusterID(t.cluster.Name), t.namespace, addresses.Families
	cfg.Reserved = slices.Concat(addresses.Pods, addresses.Services, addresses.Servers)
	return newSite(&site{
		model: cfg,
		own:   t.own, publications: t.publications, workers: t.cfg.Workers, log: t.log, metrics: t.metrics,
		standing: standing{podRanges: addresses.ForLease(), rights: t.rights},
	}, t.cfg.Lease, roster.Config{
		Source: t.cfg.Peers(t.cluster, t.own.Kube), Pace: t.cfg.Pace, Namespace: t.cfg.Namespace, Forgotten: forgotten(t.cfg.Forget),
	})
}

func forgotten(names []string) map[model.ClusterID]bool {
	m := make(map[model.ClusterID]bool, len(names))
	for _, n := range names {
		m[model.ClusterID(n)] = true
	}
	return m
}

// preflight is the cluster as it is checked before the work.
func (t *term) preflight() *preflight.Cluster {
	return &preflight.Cluster{
		Own: t.own, Publications: t.publications, Namespace: t.namespace, Shared: t.cfg.Store != nil,
		CreateNamespaces: t.cfg.Model.CreateNamespaces, Endpoints: t.cfg.Model.Endpoints, Log: t.log,
	}
}
