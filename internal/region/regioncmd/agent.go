package regioncmd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/leader"
	"github.com/xbernetes/xbernetes/internal/metrics"
	"github.com/xbernetes/xbernetes/internal/region/agent"
	"github.com/xbernetes/xbernetes/internal/usage"
)

const (
	agentNamespace = "xb-region"
	agentListen    = "127.0.0.1:9791"
)

// agentFlags are those of xb region agent.
type agentFlags struct {
	agent.Config
	kubeconfig, regions string
	listen, token       string // of metrics
}

func (f *agentFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the region (default: the pod's service account, or else as kubectl finds it)")
	fs.StringVar(&f.Region, "region", "", "the region's name, as in the file of regions (default $XB_REGION)")
	fs.StringVar(&f.Namespace, "namespace", "", "namespace of the Lease by which one of several agents is elected (default $POD_NAMESPACE, or else "+agentNamespace+")")
	fs.StringVar(&f.Identity, "identity", "", "this process's name in that Lease (default $POD_NAME, or else one that differs at each start)")
	fs.StringVar(&f.regions, "regions", "", "file that names the regions, with the credentials by which operations that clients left behind are ended (default: they are not)")
	fs.DurationVar(&f.Grace, "finish-after", 2*time.Minute, "with --regions, how long an operation must have stood still")
	fs.StringVar(&f.listen, "listen", agentListen, "where to serve /metrics and /healthz, HOST:PORT; empty is nowhere")
	fs.StringVar(&f.token, "metrics-token", "", "file with the token that /metrics asks for, of whoever is not on this machine (or in this pod); without it, nobody else gets them")
}

// complete checks the flags, and fills in what they leave to the environment.
func (f *agentFlags) complete() (err error) {
	if f.Region = cmp.Or(f.Region, os.Getenv("XB_REGION")); f.Region == "" {
		return errors.New("--region must name the region to work for")
	}
	if f.Grace < time.Second {
		return errors.New("--finish-after must be a second or more")
	}
	if f.listen != "" {
		if err := usage.CheckAddress("--listen", f.listen); err != nil {
			return err
		}
	}
	f.Namespace = cmp.Or(f.Namespace, os.Getenv("POD_NAMESPACE"), agentNamespace)
	if f.API, err = kubeconfig.Find(f.kubeconfig); err != nil {
		return err
	}
	f.API.QPS = -1 // the API server protects itself by priority and fairness
	if f.regions != "" {
		config, err := client.Load(f.regions)
		if err != nil {
			return err
		}
		if f.Regions, err = client.Open(config, nil); err != nil {
			return err
		}
	}
	if f.Identity == "" {
		f.Identity, err = leader.Identity()
	}
	return err
}

// run works until ctx ends; asked says whether --listen was given.
func (f *agentFlags) run(ctx context.Context, asked bool, log *slog.Logger) error {
	registry := metrics.NewRegistry()
	f.Log, f.Metrics = log, registry
	g, ctx := errgroup.WithContext(ctx)
	if f.listen != "" {
		lis, err := metrics.Listen(f.listen, "listen", asked, log)
		if err != nil {
			return err
		}
		g.Go(func() error { return metrics.Serve(ctx, lis, metrics.Handler(registry, f.token)) })
	}
	g.Go(func() error { return agent.Run(ctx, f.Config) })
	return g.Wait()
}

func newAgent(logs *usage.Log) *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent --region REGION",
		Short: "Make in one region what follows from the names",
		Long: `Make in one region what follows from the names: an account's namespace and the rights of
its subjects, and an assignment's namespace on a service cluster whose home is this region.
One works in each region; of several, one at a time does. It has rights in its own region
only, and connects to service clusters with the kubeconfigs that their Secrets have.

With --regions it also ends operations of its region that clients have left behind, with the
credentials in that file. Without, they stay until somebody asks for them again.

The ClusterRoles that it binds, and its own, are in deploy/region. See docs/regions.md.`,
		Example: "  xb region agent --region eu --kubeconfig eu.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := f.complete(); err != nil {
				return err
			}
			if err := kubelog.Bridge(log, 0, kubelog.WarnOfErrors); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.Flags().Changed("listen"), log)
		},
	}
	f.register(cmd.Flags())
	return cmd
}
