// Package synccmd is xb servicesync: it reads the flags, finds the clusters that they name, and
// runs the controller, or asks for its work. It decides nothing about a Service.
package synccmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/leader"
	"github.com/xbernetes/xbernetes/internal/metrics"
	"github.com/xbernetes/xbernetes/internal/servicesync"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
	"github.com/xbernetes/xbernetes/internal/servicesync/store"
	"github.com/xbernetes/xbernetes/internal/servicesync/trust"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// target is which clusters are meant, and where they publish.
type target struct {
	kubeconfig string
	clusters   []string
	namespace  string
	store      string
}

func (f *target) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the own cluster (default: the pod's service account, or else as kubectl finds it)")
	fs.StringArrayVar(&f.clusters, "cluster", nil, "name of the own cluster, which its peers know it by; NAME=KUBECONFIG, more than once, for several")
	fs.StringVar(&f.namespace, "namespace", "", "namespace in each cluster for the leader lease and for what it publishes (default $POD_NAMESPACE, or else "+defaultNamespace+")")
	fs.StringVar(&f.store, "store", "", "kubeconfig of a shared API to publish to, for clusters that cannot reach each other's; peers are found there")
}

const defaultNamespace = "xb-servicesync"

// flags are those of xb servicesync.
type flags struct {
	target
	trust trust.Words
	peerFlags
	sharingFlags
	paceFlags
	metricsFlags

	podRanges   []string
	forget      []string
	identity    string
	leaderElect bool
	version     string // of the program
}

// peerFlags say where peers are found.
type peerFlags struct {
	folder  string
	peers   []string
	secrets bool
}

// sharingFlags say what is shared, and how a Service migrates.
type sharingFlags struct {
	scope     model.Scope
	create    bool
	minReady  string
	stableFor time.Duration
	endpoints bool
	exported  bool
}

// paceFlags say how fast it works, and for how long peers believe it.
type paceFlags struct {
	lease   time.Duration
	workers int
	qps     float32
	burst   int
}

// metricsFlags say where metrics are served, and to whom.
type metricsFlags struct{ listen, token string }

const defaultListen = "127.0.0.1:9790"

func (f *flags) register(fs *pflag.FlagSet) {
	f.target.register(fs)
	f.registerModel(fs)
	fs.StringSliceVar(&f.podRanges, "pod-ranges", nil, "the own cluster's pod ranges: no endpoint of a peer may lie in them, and overlaps are warned of (default: as its nodes tell)")
	fs.StringSliceVar(&f.forget, "forget", nil, "peers of which nothing shall be left here")
	fs.DurationVar(&f.lease, "lease", 40*time.Second, "how long peers take this cluster's endpoints for good after its last sign of life")
	fs.IntVar(&f.workers, "workers", 32, "how many Services are written at a time")
	fs.Float32Var(&f.qps, "qps", 2000, "requests a second, to each API")
	fs.IntVar(&f.burst, "burst", 4000, "requests at once, to each API")
	fs.StringVar(&f.listen, "listen", defaultListen, "where to serve /metrics and /healthz, HOST:PORT; empty is nowhere")
	fs.StringVar(&f.token, "metrics-token", "", "file with the token that /metrics asks for, of whoever is not on this machine (or in this pod); without it, nobody else gets them")
	fs.BoolVar(&f.leaderElect, "leader-elect", true, "work only while holding the lease in the own cluster; without it, see to it that no other process runs")
	fs.StringVar(&f.identity, "identity", "", "this process's name in that lease (default $POD_NAME, or else one that differs at each start)")
}

// registerMigrate registers what a dry run needs to see what the controller sees.
func (f *flags) registerMigrate(fs *pflag.FlagSet) {
	f.target.register(fs)
	f.registerModel(fs)
	f.lease, f.workers, f.qps, f.burst = 40*time.Second, 1, 200, 400
}

// registerModel registers where peers are found, and what is decided by.
func (f *flags) registerModel(fs *pflag.FlagSet) {
	fs.StringVar(&f.folder, "peers", "/etc/kubeconfigs", "folder with a kubeconfig for each peer, in a file of the peer's name; followed while running")
	fs.StringArrayVar(&f.peers, "peer", nil, "a peer, as NAME=KUBECONFIG or NAME=KUBECONFIG#CONTEXT; more than once")
	fs.BoolVar(&f.secrets, "peer-secrets", false, "find peers in Secrets of --namespace that carry the label "+peers.Label)
	fs.StringSliceVar(&f.scope.Watch, "namespaces", nil, "share these namespaces only (default $NSTOWATCH, or else all but kube-system)")
	fs.StringSliceVar(&f.scope.Exclude, "exclude", nil, "namespaces not to share (default $EXCLUDE)")
	fs.BoolVar(&f.create, "create-namespaces", false, "create namespaces that a Service of a peer needs; they are never deleted")
	fs.StringVar(&f.minReady, "min-ready", "75%", "how many endpoints must be ready where a Service migrates to: a number, or a share of those given up")
	fs.DurationVar(&f.stableFor, "stable-for", 10*time.Second, "for how long they must have been ready")
	fs.BoolVar(&f.endpoints, "endpoints", false, "write Endpoints, too, for what still reads them")
	fs.StringArrayVar(&f.trust.Namespaces, "peer-namespaces", nil, "namespaces that a peer may publish Services of, as PEER=NAMESPACE,...; * is every peer; more than once (default: all that are shared)")
	fs.StringArrayVar(&f.trust.Ranges, "peer-ranges", nil, "ranges that hold the addresses of a peer's endpoints, as PEER=CIDR,...; * is every peer; more than once (default: all but this cluster's own)")
	fs.StringArrayVar(&f.trust.Allow, "allow", nil, "what a peer may do here beyond being used, as PEER=WHAT,...: claim (move or join Services that serve here), selector (have replicas select pods here), NodePort, LoadBalancer, ExternalName (have replicas of that type); * is every peer; more than once (default: nothing)")
	fs.StringSliceVar(&f.trust.Carry, "carry", nil, "labels and annotations of Services that replicas have, too, as label:KEY or annotation:KEY; a KEY that ends with * is all that begin so; for what is published and for what is imported (default: none)")
	fs.BoolVar(&f.exported, "exported-only", false, "share Services only that have a ServiceExport or a mode")
}

// New is xb servicesync, with the commands below it. The version of the program is published
// with the cluster's own sign of life.
func New(version string, logs *usage.Log) *cobra.Command {
	f := &flags{version: version}
	cmd := &cobra.Command{
		Use:   "servicesync --cluster NAME",
		Short: "Share Services between clusters",
		Long: `Share Services between clusters: publish those of the own cluster, and keep
replicas of those that its peers publish. One runs in each cluster, or one for
several; it writes to its own cluster only.

Peers are found in a folder of kubeconfigs, by flags, in Secrets, or in a store
that all clusters reach. What they publish is used, and changes nothing that was
created here, unless --allow says so. See docs/servicesync.md.`,
		Example: `  xb servicesync --cluster east --kubeconfig east.kubeconfig --peer west=peer-west.kubeconfig
  xb servicesync --cluster east=east.kubeconfig --cluster west=west.kubeconfig
  xb servicesync --cluster east --store store.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.listen != "" {
				if err := usage.CheckAddress("--listen", f.listen); err != nil {
					return err
				}
			}
			cfg, err := f.config(cmd.Flags(), log)
			if err != nil {
				return err
			}
			registry := metrics.NewRegistry()
			cfg.Metrics = registry
			if err := kubelog.Bridge(log, 0, kubelog.WarnOfErrors); err != nil {
				return err
			}
			g, ctx := errgroup.WithContext(cmd.Context())
			if f.listen != "" {
				lis, err := metrics.Listen(f.listen, "listen", cmd.Flags().Changed("listen"), log)
				if err != nil {
					return err
				}
				g.Go(func() error { return metrics.Serve(ctx, lis, metrics.Handler(registry, f.token)) })
			}
			g.Go(func() error { return servicesync.Run(ctx, cfg) })
			return g.Wait()
		},
	}
	f.register(cmd.Flags())
	cmd.AddCommand(newStatus(), newMigrate(version, logs))
	return cmd
}

// config is what the flags and the environment say.
func (f *flags) config(fs *pflag.FlagSet, log *slog.Logger) (cfg servicesync.Config, err error) {
	cfg = servicesync.Config{
		Model: model.Config{
			Scope: f.scopeIn(fs), CreateNamespaces: f.create, StableFor: f.stableFor, Endpoints: f.endpoints, ExportedOnly: f.exported,
		},
		Forget: f.forget, Lease: f.lease, Workers: f.workers,
		Pace:    access.Pace{QPS: f.qps, Burst: f.burst},
		Version: f.version, Logger: log,
	}
	if cfg.Clusters, err = f.resolve(); err != nil {
		return cfg, err
	}
	cfg.Clusters[0].PodRanges, cfg.Namespace = f.podRanges, f.namespace
	if cfg.Store, err = f.storeConfig(); err != nil {
		return cfg, err
	}
	if cfg.Model.MinReady, err = f.checked(); err != nil {
		return cfg, err
	}
	if cfg.Model.Trust, err = f.trust.Trusts(); err != nil {
		return cfg, err
	}
	if cfg.Model.Carry, err = f.trust.Carried(); err != nil {
		return cfg, err
	}
	if cfg.Identity, err = f.leaseHolder(); err != nil {
		return cfg, err
	}
	cfg.Peers, err = f.sources(fs, cfg.Clusters, cfg.Store, cfg.Pace)
	return cfg, err
}

// scopeIn is which namespaces are shared: as the flags say, or else the environment.
func (f *flags) scopeIn(fs *pflag.FlagSet) model.Scope {
	scope := f.scope
	if !fs.Changed("namespaces") {
		scope.Watch = namesIn(os.Getenv("NSTOWATCH"))
	}
	if !fs.Changed("exclude") {
		scope.Exclude = namesIn(os.Getenv("EXCLUDE"))
	}
	return scope
}

// checked refuses numbers that cannot be meant, and returns --min-ready.
func (f *flags) checked() (minReady intstr.IntOrString, err error) {
	minReady = intstr.Parse(f.minReady)
	n, err := intstr.GetScaledValueFromIntOrPercent(&minReady, 100, true)
	switch {
	case err != nil || n < 0:
		return minReady, fmt.Errorf("--min-ready is %q; want a number or a percentage", f.minReady)
	case f.lease < 4*time.Second:
		return minReady, fmt.Errorf("--lease is %s; want 4s or more, for it is renewed four times while it lasts", f.lease)
	case f.lease > model.LongestLease:
		return minReady, fmt.Errorf("--lease is %s; want %s or less: peers take no more for granted", f.lease, model.LongestLease)
	case f.workers < 1:
		return minReady, fmt.Errorf("--workers is %d; want 1 or more", f.workers)
	}
	return minReady, nil
}

// leaseHolder is this process's name in the leader lease; "" if it takes none.
func (f *flags) leaseHolder() (string, error) {
	if !f.leaderElect {
		return "", nil
	}
	if f.identity != "" {
		return f.identity, nil
	}
	name, err := leader.Identity()
	if err != nil {
		return "", fmt.Errorf("%w; or set --identity", err)
	}
	return name, nil
}

// sources joins all that name peers.
func (f *flags) sources(fs *pflag.FlagSet, clusters []access.Cluster, shared *rest.Config, pace access.Pace) (func(access.Cluster, kubernetes.Interface) peers.Source, error) {
	files := make(map[string]string)
	for _, p := range f.peers {
		name, file, ok := strings.Cut(p, "=")
		if !ok || name == "" || file == "" {
			return nil, fmt.Errorf("--peer is %q; want NAME=KUBECONFIG", p)
		}
		files[name] = file
	}
	var common []peers.Source
	if len(files) > 0 {
		common = append(common, peers.Files(files))
	}
	if shared == nil || fs.Changed("peers") {
		common = append(common, peers.Folder(f.folder))
	}
	if shared != nil {
		found, err := store.Peers(shared, pace)
		if err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
		common = append(common, found)
	} else {
		var own []peers.Peer
		for _, c := range clusters {
			own = append(own, peers.Peer{Name: c.Name, Origin: "--cluster", Config: c.Config, Namespace: f.namespace})
		}
		if len(own) > 1 {
			common = append([]peers.Source{peers.Fixed(own...)}, common...)
		}
	}
	return func(_ access.Cluster, kube kubernetes.Interface) peers.Source {
		if f.secrets {
			return peers.Join(append([]peers.Source{peers.Secrets(kube, f.namespace)}, common...)...)
		}
		return peers.Join(common...)
	}, nil
}

// resolve finds how to reach the clusters.
func (f *target) resolve() ([]access.Cluster, error) {
	if f.namespace == "" {
		if f.namespace = os.Getenv("POD_NAMESPACE"); f.namespace == "" {
			f.namespace = defaultNamespace
		}
	}
	if len(f.clusters) == 0 {
		return nil, errors.New("say which cluster this is, with --cluster NAME")
	}
	var clusters []access.Cluster
	for _, c := range f.clusters {
		name, file, named := strings.Cut(c, "=")
		if len(f.clusters) > 1 && !named {
			return nil, fmt.Errorf("--cluster is %q; with several, each needs its kubeconfig: NAME=KUBECONFIG", c)
		}
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			return nil, fmt.Errorf("--cluster names a cluster %q: %s", name, why[0])
		}
		if !named {
			file = f.kubeconfig
		}
		config, err := kubeconfig.Find(file)
		if err != nil {
			return nil, fmt.Errorf("find cluster %s: %w", name, err)
		}
		clusters = append(clusters, access.Cluster{Name: name, Config: config})
	}
	return clusters, nil
}

func (f *target) storeConfig() (*rest.Config, error) {
	if f.store == "" {
		return nil, nil
	}
	config, err := kubeconfig.Find(f.store)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	return config, nil
}

// namesIn reads a list as it stands in the environment: names with commas or
// spaces between them, in brackets or not.
func namesIn(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(", \t\n[]\"'", r) })
}
