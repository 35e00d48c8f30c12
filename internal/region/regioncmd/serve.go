package regioncmd

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/metrics"
	"github.com/xbernetes/xbernetes/internal/region/facade"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// facadeListen is where xb region serve serves metrics.
const facadeListen = "127.0.0.1:9792"

// serveFlags are those of xb region serve.
type serveFlags struct {
	file        string
	listen      string
	serving     facade.Serving
	connections int
	limits      traffic.Limits
	accessLog   bool

	metrics, token string // where to serve metrics, and the file with the token that they ask for
}

func (f *serveFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "regions", "", "file that names the regions and their kubeconfigs, of which only the addresses and authorities are used (default $XB_REGIONS, or else regions.yaml)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8443", "where to serve, HOST:PORT")
	fs.StringVar(&f.serving.DataDir, "data-dir", filepath.Join(usage.DataDir(), "regions"), "where it keeps the CA and certificate that it makes if it is given none, and their kubeconfig, which has no user")
	fs.StringSliceVar(&f.serving.SANs, "tls-san", nil, "further host names and IP addresses for the serving certificate that it makes")
	fs.StringVar(&f.serving.CertFile, "tls-cert-file", "", "certificate to serve with, PEM, read again when it changes (default: made)")
	fs.StringVar(&f.serving.KeyFile, "tls-private-key-file", "", "its key")
	fs.IntVar(&f.connections, "max-connections", 10_000, "connections of callers open at once, in all; of one address as many as are free; -1 for no limit")
	fs.IntVar(&f.limits.UserRequests, "max-address-requests", 0, "requests of one address under way at once; -1 for no limit (default 400)")
	fs.IntVar(&f.limits.UserStreams, "max-address-watches", 0, "watches and streams of one address at once; -1 for no limit (default 5000)")
	fs.IntVar(&f.limits.ServerRequests, "max-region-requests", 0, "requests to one region under way at once, of one address as many as are free; -1 for no limit (default 1000)")
	fs.IntVar(&f.limits.ServerStreams, "max-region-watches", 0, "watches and streams to one region at once, of one address as many as are free; -1 for no limit (default 20000)")
	fs.StringVar(&f.metrics, "listen-metrics", facadeListen, "where to serve /metrics and /healthz over HTTP, HOST:PORT; empty is nowhere")
	fs.StringVar(&f.token, "metrics-token", "", "file with the token that /metrics asks for, of whoever is not on this machine (or in this pod); without it, nobody else gets them")
	fs.BoolVar(&f.accessLog, "access-log", false, "log each request at its end")
}

func newServe(logs *usage.Log) *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve all regions at one address, with the rights of whoever calls",
		Long: `Serve all regions at one address. /regions/NAME/ leads to the API of a region, and
/serviceclusters/NAME/ to that of the home of a service cluster.

It has no credentials, and stores nothing: each request goes on with its caller's own
bearer token. Any number of these servers can run beside each other.`,
		Example: "  xb region serve --regions regions.yaml --listen 127.0.0.1:8443",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := kubelog.Bridge(log, 0, kubelog.Debug); err != nil {
				return err
			}
			return f.run(cmd, cmd.OutOrStdout(), log)
		},
	}
	f.register(cmd.Flags())
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command, out io.Writer, log *slog.Logger) error {
	if err := usage.CheckAddress("--listen", f.listen); err != nil {
		return err
	}
	regions, err := client.Load(cmp.Or(f.file, os.Getenv("XB_REGIONS"), "regions.yaml"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; choose another address with --listen, or stop what holds it", f.listen, err)
	}
	defer listener.Close()
	certificate, err := f.serving.Open(listener.Addr(), log)
	if err != nil {
		return err
	}
	defer certificate.Close()
	registry := metrics.NewRegistry()
	server, err := f.facade(regions, listener, certificate, registry, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(cmd.Context())
	if f.metrics != "" {
		lis, err := metrics.Listen(f.metrics, "listen-metrics", cmd.Flags().Changed("listen-metrics"), log)
		if err != nil {
			return err
		}
		g.Go(func() error { return metrics.Serve(ctx, lis, metrics.Handler(registry, f.token)) })
	}
	fmt.Fprintf(out, "Serving at https://%s.\n", listener.Addr())
	if certificate.Kubeconfig != "" {
		fmt.Fprintf(out, "In another terminal, with a token that the regions take:\n\n  kubectl --kubeconfig %s --token \"$TOKEN\" --server https://%s/regions/NAME get namespaces\n\n", certificate.Kubeconfig, listener.Addr())
	}
	g.Go(func() error { return server.Run(ctx) })
	return g.Wait()
}

// facade returns what is to serve.
func (f *serveFlags) facade(regions client.Config, listener net.Listener, certificate *facade.Certificate, registry prometheus.Registerer, log *slog.Logger) (*facade.Facade, error) {
	cfg := facade.Config{
		Regions: regions, Listener: listener, Cert: certificate.Provider, MaxConnections: f.connections, Limits: f.limits,
		Metrics: registry, Log: log,
	}
	if f.accessLog {
		cfg.Access = log
	}
	return facade.New(cfg)
}
