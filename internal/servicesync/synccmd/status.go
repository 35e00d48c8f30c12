package synccmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/report"
	"github.com/xbernetes/xbernetes/internal/usage"
)

func newStatus() *cobra.Command {
	f := &target{}
	output, problems := "", false
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/SERVICE...]",
		Short: "Show how Services are shared, and what is wrong",
		Long: `Show, of the own cluster or of those named, how peers stand, and for each shared
Service its role, which clusters' endpoints are in use, and what a migration
waits for. It reads the clusters' APIs; the controller need not run.`,
		Example: `  xb servicesync status --kubeconfig east.kubeconfig
  xb servicesync status --cluster east=east.kubeconfig --cluster west=west.kubeconfig shop/web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			services, err := serviceNames(args)
			if err != nil {
				return err
			}
			if output != "" && output != "json" {
				return fmt.Errorf("-o is %q; want json, or nothing for a table", output)
			}
			clusters, err := f.find(cmd)
			if err != nil {
				return err
			}
			store, err := f.storeConfig()
			if err != nil {
				return err
			}
			found, err := report.Inspect(cmd.Context(), clusters, store, f.namespace, services)
			if err != nil {
				return err
			}
			if problems {
				found.Services = slices.DeleteFunc(found.Services, func(s report.Service) bool { return len(s.Notes)+len(s.Stale) == 0 })
			}
			if output == "json" {
				return usage.WriteJSON(cmd.OutOrStdout(), found)
			}
			return found.Print(cmd.OutOrStdout(), time.Now())
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	usage.OneOf(cmd, "output", "json")
	cmd.Flags().BoolVar(&problems, "problems", false, "show only Services that are stale, in conflict, or wait")
	return cmd
}

// find is resolve, where the cluster's name may be left to itself.
func (f *target) find(cmd *cobra.Command) ([]access.Cluster, error) {
	if len(f.clusters) == 0 {
		f.clusters = []string{"unknown"}
		clusters, err := f.resolve()
		if err != nil {
			return nil, err
		}
		clusters[0].Name, err = report.WhoIs(cmd.Context(), clusters[0].Config, f.namespace)
		return clusters, err
	}
	return f.resolve()
}

func serviceNames(args []string) ([]types.NamespacedName, error) {
	var names []types.NamespacedName
	for _, arg := range args {
		namespace, name, ok := strings.Cut(arg, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is no Service; want NAMESPACE/NAME", arg)
		}
		names = append(names, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return names, nil
}
