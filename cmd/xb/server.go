package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/xbernetes/xbernetes/internal/collector"
	"github.com/xbernetes/xbernetes/internal/controlplane"
	"github.com/xbernetes/xbernetes/internal/privatefile"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// serverFlags are those of xb server.
type serverFlags struct {
	engine     engineFlags
	dataDir    string
	listen     string
	kubeconfig string
	advertise  string
	sans       []string
	context    string
	options    controlplane.Options
}

func (f *serverFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.dataDir, "data-dir", usage.DataDir(), "this server's own things: its CA, certificates, keys, and its journal if --journal is not given")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:6443", "where to serve the Kubernetes API, HOST:PORT")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file to write the administrator's kubeconfig to, mode 0600, in place of what is there (default DATA-DIR/kubeconfig)")
	fs.StringVar(&f.context, "context", "xb", "name of the context in the kubeconfig")
	fs.StringVar(&f.advertise, "advertise-url", "", "URL that clients reach this server at, for the kubeconfig (default made from --listen)")
	fs.StringSliceVar(&f.sans, "tls-san", nil, "further host names and IP addresses for the serving certificate")
	f.engine.register(cmd)
	fs.StringVar(&f.engine.name, "name", "", "what to call this server, in xb status and metrics (default its ID, which is drawn at random)")
	fs.StringVar(&f.engine.etcd.Host, "etcd-listen", "", "also serve the etcd API here: unix:///PATH, for this user alone, or HOST:PORT; without the three files below HOST must be a loopback address, and every user of this machine then has full control of all objects, secrets too")
	registerEtcdFiles(&f.engine.etcd, fs, "etcd-")
	o := &f.options
	fs.StringVar(&o.EncryptionProviderConfig, "encryption-provider-config", "", "EncryptionConfiguration file: what it names is encrypted in the journal; the same keys on every server")
	fs.StringVar(&o.AuditPolicyFile, "audit-policy-file", "", "audit policy file")
	fs.StringVar(&o.AuditLogPath, "audit-log-path", "", "audit log file, - for standard output")
	fs.StringVar(&o.AuthenticationConfig, "authentication-config", "", "AuthenticationConfiguration file (OIDC and other JWT issuers)")
	fs.StringVar(&o.AuthorizationConfig, "authorization-config", "", "AuthorizationConfiguration file (webhooks beside RBAC)")
	fs.StringVar(&o.AdmissionControlConfig, "admission-control-config-file", "", "AdmissionConfiguration file")
	fs.StringVar(&o.ServiceAccountIssuer, "service-account-issuer", controlplane.DefaultIssuer, "issuer of service account tokens, the same on every server")
	fs.IntVar(&o.MaxConnections, "max-connections", controlplane.DefaultMaxConnections, "connections of callers open at once, in all; of one address as many as are free; -1 for no limit")
	fs.IntVar(&o.MaxWatches, "max-watches", controlplane.DefaultMaxWatches, "watches and streams of callers at once, in all; of one user as many as are free; system:masters are not counted; -1 for no limit")
	fs.IntVarP(&o.Verbosity, "v", "v", 0, "verbosity of the Kubernetes parts, as klog counts it")
}

func newServerCommand(logs *usage.Log) *cobra.Command {
	f := &serverFlags{}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Serve the Kubernetes API from a journal",
		Long: `Serve the Kubernetes API from a journal. With no flags: on a file journal in
the user's data directory, on loopback, with its own CA.

Servers that share a journal serve the same objects; each has its own data
directory, CA and kubeconfig, and none needs to reach another.`,
		Example: `  xb server
  xb server --journal 's3://bucket/prefix?region=eu-west-1' --data-dir /var/lib/xb`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), log)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *serverFlags) run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	if err := f.findFolders(); err != nil {
		return err
	}
	privatefile.Warn(log, f.dataDir)
	// A port that is taken is said before anything is changed.
	if err := canListen(f.listen); err != nil {
		return err
	}
	e, err := openEngine(ctx, &f.engine, log)
	if err != nil {
		return err
	}
	legacyregistry.Registerer().MustRegister(e.collector()) // what /metrics of the Kubernetes API serves
	api, err := controlplane.New(controlplane.Config{
		Etcd:         controlplane.Endpoint{InProcess: e.api.InProcess(), Away: e.away},
		DataDir:      f.dataDir,
		Listen:       f.listen,
		AdvertiseURL: f.advertise,
		ExtraSANs:    f.sans,
		Kubeconfig:   f.kubeconfig,
		ContextName:  f.context,
		Logger:       log,
		Alone:        e.store.Info().Exclusive && f.engine.etcd.Host == "",
		Options:      f.options,
	})
	if err != nil {
		e.close()
		return err
	}
	return serve(ctx, e, api, func() {
		greet(out, api)
		e.announce(ctx, cmp.Or(f.engine.name, api.ID()))
	})
}

// findFolders makes the data directory absolute. The journal is in it if none is named.
func (f *serverFlags) findFolders() (err error) {
	if f.dataDir == "" {
		return fmt.Errorf("no home directory to keep data in; set --data-dir")
	}
	if f.dataDir, err = filepath.Abs(f.dataDir); err != nil {
		return err
	}
	if f.engine.journal == "" {
		f.engine.journal = "file://" + filepath.Join(f.dataDir, "journal")
	}
	return nil
}

// settled is how long after it is ready a server is at rest.
const settled = 5 * time.Second

// serve runs the control plane on the engine until ctx ends or either fails.
// The control plane stops first: until then it needs its store.
func serve(ctx context.Context, e *engine, api *controlplane.Server, ready func()) error {
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	above, fail := context.WithCancel(ctx)
	defer fail()
	engineEnded := make(chan error, 1)
	go func() {
		engineEnded <- e.run(below)
		fail()
	}()
	go func() {
		select {
		case <-api.Ready():
			ready()
			tendMemory(above)
		case <-above.Done():
		}
	}()
	// A journal that cannot be read is said before the server makes anything
	// of its own.
	var err error
	select {
	case <-e.replica.Ready():
		err = api.Run(above)
	case <-above.Done():
	}
	stop()
	if cause := <-engineEnded; cause != nil {
		return cause
	}
	return err
}

// tendMemory gives back what starting took and running does not need, and then paces
// the collector, until ctx ends.
func tendMemory(ctx context.Context) {
	select {
	case <-time.After(settled):
		debug.FreeOSMemory()
		collector.Run(ctx)
	case <-ctx.Done():
	}
}

func canListen(addr string) error {
	if err := usage.CheckAddress("--listen", addr); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for the Kubernetes API at %s: %w; choose another address with --listen, or stop what holds it", addr, err)
	}
	return lis.Close()
}

// greet says what to type next.
func greet(w io.Writer, api *controlplane.Server) {
	fmt.Fprintf(w, `Serving the Kubernetes API at %s. In another terminal:

  export KUBECONFIG=%s
  kubectl get namespaces

`, api.URL(), api.KubeconfigFile())
}
