package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/metrics"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// metricsFlags say where metrics are served, and to whom.
type metricsFlags struct{ listen, token string }

func newEtcdCommand(logs *usage.Log) *cobra.Command {
	f := &engineFlags{}
	m := &metricsFlags{}
	cmd := &cobra.Command{
		Use:   "etcd --journal URL",
		Short: "Serve the etcd v3 API alone, on any journal",
		Long: `Serve the etcd v3 API on a journal, so that an unmodified kube-apiserver,
etcdctl and etcd's own benchmark run on it. Several of these, on different
machines, may share one journal that is not a local file.

Served: KV without nested transactions, Watch, Lease, Maintenance's Status, and
a member list of one. Not served: auth, membership, snapshots, alarms.

Who reaches the etcd API controls all that is in the journal. Without
certificates that is every user of this machine; a Unix socket is for the user
who started xb alone.`,
		Example: "  xb etcd --journal file:///var/lib/xb/journal\n  etcdctl --endpoints http://127.0.0.1:2379 put greeting hello",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return runEtcd(cmd, f, m, log)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.etcd.Host, "listen", "127.0.0.1:2379", "where to serve: unix:///PATH, for this user alone, or HOST:PORT, with http:// or https:// before it or not; without the three files below HOST must be a loopback address, and every user of this machine then has full control")
	registerEtcdFiles(&f.etcd, cmd.Flags(), "")
	cmd.Flags().StringVar(&f.name, "name", "", "what to call this server, in xb status and metrics; without it, it does not announce itself beside the journal")
	cmd.Flags().StringVar(&m.listen, "listen-metrics", "", "where to serve /metrics and /health over HTTP, HOST:PORT; empty is nowhere")
	cmd.Flags().StringVar(&m.token, "metrics-token", "", "file with the token that /metrics asks for, of whoever is not on this machine; without it, nobody else gets them")
	cmd.MarkFlagRequired("journal") //nolint:errcheck // the flag is there
	return cmd
}

func runEtcd(cmd *cobra.Command, f *engineFlags, m *metricsFlags, log *slog.Logger) error {
	if m.listen != "" {
		if err := usage.CheckAddress("--listen-metrics", m.listen); err != nil {
			return err
		}
	}
	e, err := openEngine(cmd.Context(), f, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(cmd.Context())
	if m.listen != "" {
		if err := e.serveMetrics(ctx, g, m, log); err != nil {
			e.close()
			return err
		}
	}
	go func() {
		select {
		case <-e.replica.Ready():
			fmt.Fprintf(cmd.OutOrStdout(), "Serving the etcd API at %s\n", e.lis.URL())
			if f.name != "" {
				e.announce(ctx, f.name)
			}
		case <-e.replica.Done():
		}
	}()
	g.Go(func() error { return e.run(ctx) })
	return g.Wait()
}

// serveMetrics serves /metrics and etcd's /health, as part of g, until ctx ends.
func (e *engine) serveMetrics(ctx context.Context, g *errgroup.Group, m *metricsFlags, log *slog.Logger) error {
	registry := metrics.NewRegistry()
	registry.MustRegister(e.collector())
	lis, err := metrics.Listen(m.listen, "listen-metrics", true, log)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", e.api.ServeHealth)
	mux.Handle("/", metrics.Handler(registry, m.token))
	g.Go(func() error { return metrics.Serve(ctx, lis, mux) })
	return nil
}
