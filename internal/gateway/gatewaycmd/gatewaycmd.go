// Package gatewaycmd is xb gateway: it reads the flags, opens what they name, and runs the
// gateway. It answers no request.
package gatewaycmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway"
	"github.com/xbernetes/xbernetes/internal/gateway/identity"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// flags are those of xb gateway.
type flags struct {
	servers   source.Place
	cacheFile string
	traces    traffic.Traces
	identity  identity.Config

	listen      string
	core        string
	require     bool
	accessLog   bool
	connections int
	limits      traffic.Limits
}

func (f *flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.servers.File, "servers", "", "file of RemoteAPIServers, YAML; read again when it changes")
	fs.StringVar(&f.servers.Kubeconfig, "kubeconfig", "", "kubeconfig of the Kubernetes API whose RemoteAPIServers to serve; in-cluster for that of the pod's service account")
	fs.StringVar(&f.servers.Secrets, "credentials-namespace", "", "namespace of that API whose Secrets servers may name as the gateway's credentials (default: none is read)")
	fs.BoolVar(&f.servers.WriteStatus, "write-status", true, "write to each RemoteAPIServer's status what this gateway sees of it")
	fs.StringVar(&f.cacheFile, "cache-file", "", "file to keep the last known servers in, and who holds which group, to start with when the API is away")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:7443", "where to serve, HOST:PORT")
	fs.StringVar(&f.identity.DataDir, "data-dir", filepath.Join(usage.DataDir(), "gateway"), "the gateway's own things: the CA, certificates and kubeconfig that it makes where it is given none")
	fs.StringSliceVar(&f.identity.SANs, "tls-san", nil, "further host names and IP addresses for the serving certificate that it makes")
	fs.StringVar(&f.identity.CertFile, "tls-cert-file", "", "certificate to serve with, PEM, read again when it changes (default: made)")
	fs.StringVar(&f.identity.KeyFile, "tls-private-key-file", "", "its key")
	fs.StringVar(&f.identity.ClientCAFile, "client-ca-file", "", "CA of the client certificates by which callers are known (default: the gateway's own, which has signed one for you)")
	fs.StringVar(&f.identity.Authentication, "authentication-kubeconfig", "", "kubeconfig of a Kubernetes API that says by TokenReview whose token a caller's is, and by SubjectAccessReview who may read /servers and /metrics and may impersonate")
	fs.StringVar(&f.core, "core-kubeconfig", "", "kubeconfig of the core server whose namespaces, authorization and quotas are held over servers with spec.guard")
	fs.BoolVar(&f.require, "require-conformant", false, "keep out of discovery the groups of a server that does not pass the conformance checks")
	fs.BoolVar(&f.accessLog, "access-log", false, "log each request at its end")
	fs.StringVar(&f.traces.Endpoint, "tracing-endpoint", "", "HOST:PORT of an OpenTelemetry collector on this machine, to send traces to by OTLP over gRPC (default: none are made)")
	fs.Float64Var(&f.traces.Share, "tracing-share", 0.01, "share of requests to trace, 0 to 1, beside those that arrive traced")
	fs.IntVar(&f.connections, "max-connections", 10_000, "connections of callers open at once, in all; of one address as many as are free; -1 for no limit")
	fs.IntVar(&f.limits.UserRequests, "max-user-requests", 0, "requests of one user under way at once; -1 for no limit (default 400)")
	fs.IntVar(&f.limits.UserStreams, "max-user-watches", 0, "watches and streams of one user at once; -1 for no limit (default 5000)")
	fs.IntVar(&f.limits.ServerRequests, "max-server-requests", 0, "requests to one server under way at once, of one user as many as are free; as many again for system:masters; -1 for no limit (default 1000)")
	fs.IntVar(&f.limits.ServerStreams, "max-server-watches", 0, "watches and streams to one server at once, of one user as many as are free; as many again for system:masters; -1 for no limit (default 20000)")
	fs.Float64Var(&f.limits.UserRate, "max-user-rate", 0, "requests a second of one user (default no limit)")
}

// New is xb gateway, with the commands below it.
func New(logs *usage.Log) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve many API servers as one",
		Long: `Serve many Kubernetes API servers at one address: one discovery, one OpenAPI,
and each request sent to the server that has its group.

The servers are RemoteAPIServers, in a file or in any Kubernetes API. One can be
added or removed at any time. The gateway starts, and goes on, without that API
and without any of the servers.`,
		Example: `  xb gateway --servers servers.yaml
  xb gateway crd | kubectl apply -f - && xb gateway --kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := kubelog.Bridge(log, 0, kubelog.Debug); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), log)
		},
	}
	f.register(cmd.Flags())
	cmd.AddCommand(newValidate(logs), newCRD())
	return cmd
}

func newCRD() *cobra.Command {
	return &cobra.Command{
		Use:     "crd",
		Short:   "Print the definition of RemoteAPIServer",
		Long:    "Print the CustomResourceDefinition of RemoteAPIServer, for an API that is to hold them.",
		Example: "  xb gateway crd | kubectl apply -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), v1alpha1.CRD())
			return err
		},
	}
}

// gcPercent lets the heap, most of which is discovery and OpenAPI that stay,
// grow further between collections: requests wait for fewer of them, for some
// megabytes (docs/benchmarks.md).
const gcPercent = 300

func (f *flags) run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := usage.CheckAddress("--listen", f.listen); err != nil {
		return err
	}
	src, err := f.servers.Open(log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; choose another address with --listen, or stop what holds it", f.listen, err)
	}
	defer listener.Close()
	cfg, err := f.config(src, listener, log)
	if err != nil {
		return err
	}
	if f.traces.Endpoint != "" {
		traces, err := f.traces.Provider(ctx)
		if err != nil {
			return err
		}
		defer traffic.SendRest(ctx, traces, log)
		cfg.Backends.Tracer = traces
	}
	id, err := identity.Open(f.identity, listener.Addr(), log)
	if err != nil {
		return err
	}
	defer id.Close()
	cfg.Cert, cfg.ClientCA, cfg.Authenticator, cfg.Authorizer = id.Cert, id.ClientCA, id.Authenticator, id.Authorizer
	if id.Kubeconfig != "" {
		fmt.Fprintf(out, "Serving at https://%s. In another terminal:\n\n  export KUBECONFIG=%s\n  kubectl api-resources\n\n", listener.Addr(), id.Kubeconfig)
	} else {
		fmt.Fprintf(out, "Serving at https://%s.\n", listener.Addr())
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return err
	}
	return g.Run(ctx)
}

// config is what the flags say, but for certificates and traces.
func (f *flags) config(src source.Source, listener net.Listener, log *slog.Logger) (cfg gateway.Config, err error) {
	cfg = gateway.Config{
		Source: src, Listener: listener, CacheFile: f.cacheFile,
		MaxConnections: f.connections, Limits: f.limits, RequireConformant: f.require, Log: log,
	}
	if f.accessLog {
		cfg.Access = log
	}
	if f.core != "" {
		if cfg.Core, err = clientcmd.BuildConfigFromFlags("", f.core); err != nil {
			return cfg, fmt.Errorf("read --core-kubeconfig %s: %w", f.core, err)
		}
		cfg.Core.QPS = -1
	}
	return cfg, nil
}
