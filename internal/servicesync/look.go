package servicesync

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/servicesync/migration"
)

// NewMigration returns a migration of a Service, in the first of cfg.Clusters, to the
// cluster to. The migration's preview sees what a process with that configuration would see.
func NewMigration(cfg Config, service types.NamespacedName, to string) (*migration.Migration, error) {
	cfg.Logger, cfg.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	t := &term{cfg: cfg, cluster: cfg.Clusters[0], metrics: newMetrics(cfg.Metrics), log: cfg.Logger}
	if err := t.connect(); err != nil {
		return nil, err
	}
	return &migration.Migration{
		Service: service, At: t.cluster.Name, To: to,
		API: t.own, Publications: t.publications, Namespace: t.namespace, Look: t.look,
	}, nil
}

// lookPatience is how long a look waits for peers.
const lookPatience = 10 * time.Second

// look reads once what the cluster's controller reads, and returns all that it would decide
// on for a Service.
func (t *term) look(ctx context.Context, service types.NamespacedName) (migration.Seen, error) {
	s, err := t.site(ctx)
	if err != nil {
		return migration.Seen{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	g, reading := errgroup.WithContext(ctx)
	defer func() {
		stop()
		s.queue.ShutDown()
		_ = g.Wait() // the readers were stopped
	}()
	for _, read := range s.informers.reads() {
		g.Go(func() error { read(reading); return nil })
	}
	if err := s.load(reading); err != nil {
		return migration.Seen{}, err
	}
	g.Go(func() error { return s.roster.Run(reading) })
	soon, cancel := context.WithTimeout(reading, lookPatience)
	defer cancel()
	silent := s.roster.AwaitRead(soon)
	return migration.Seen{Config: s.model, Input: s.input(service, time.Now()), Silent: silent}, nil
}
