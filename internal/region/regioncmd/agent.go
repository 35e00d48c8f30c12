package regioncmd

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/leader"
	"github.com/xbernetes/xbernetes/internal/region/agent"
	"github.com/xbernetes/xbernetes/internal/usage"
)

const agentNamespace = "xb-region"

func newAgent(logs *usage.Log) *cobra.Command {
	c := agent.Config{}
	file := ""
	cmd := &cobra.Command{
		Use:   "agent --region REGION",
		Short: "Make in one region what follows from the names",
		Long: `Make in one region what follows from the names: an account's namespace and the rights of
its subjects, and an assignment's namespace on a service cluster whose home is this region.
One works in each region; of several, one at a time does. It has rights in its own region
only, and connects to service clusters with the kubeconfigs that their Secrets have.

The ClusterRoles that it binds, and its own, are in deploy/region. See docs/regions.md.`,
		Example: "  xb region agent --region eu --kubeconfig eu.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			c.Log = log
			if c.Region = cmp.Or(c.Region, os.Getenv("XB_REGION")); c.Region == "" {
				return errors.New("--region must name the region to work for")
			}
			c.Namespace = cmp.Or(c.Namespace, os.Getenv("POD_NAMESPACE"), agentNamespace)
			if c.API, err = kubeconfig.Find(file); err != nil {
				return err
			}
			c.API.QPS = -1 // the API server protects itself by priority and fairness
			if c.Identity == "" {
				if c.Identity, err = leader.Identity(); err != nil {
					return err
				}
			}
			if err := kubelog.Bridge(log, 0, kubelog.WarnOfErrors); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&file, "kubeconfig", "", "kubeconfig of the region (default: the pod's service account, or else as kubectl finds it)")
	cmd.Flags().StringVar(&c.Region, "region", "", "the region's name, as in the file of regions (default $XB_REGION)")
	cmd.Flags().StringVar(&c.Namespace, "namespace", "", "namespace of the Lease by which one of several agents is elected (default $POD_NAMESPACE, or else "+agentNamespace+")")
	cmd.Flags().StringVar(&c.Identity, "identity", "", "this process's name in that Lease (default $POD_NAME, or else one that differs at each start)")
	return cmd
}
