package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/servicesync"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/migration"
	"github.com/xbernetes/xbernetes/internal/servicesync/report"
	"github.com/xbernetes/xbernetes/internal/usage"
)

func newServicesyncStatusCommand() *cobra.Command {
	f := &syncTarget{}
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
func (f *syncTarget) find(cmd *cobra.Command) ([]access.Cluster, error) {
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

// migrateFlags are those of xb servicesync migrate.
type migrateFlags struct {
	syncFlags
	to        string
	wait, dry bool
	timeout   time.Duration
}

func newServicesyncMigrateCommand(logs *logFlags) *cobra.Command {
	f := &migrateFlags{}
	cmd := &cobra.Command{
		Use:   "migrate NAMESPACE/SERVICE --to CLUSTER",
		Short: "Have another cluster serve a Service",
		Long: `Have another cluster serve a Service: annotate it, in the own cluster, as
receiver, or as source where the own cluster is the one that shall serve. The
controllers then move it without a moment of no ready endpoint; see
docs/servicesync.md.

Interrupted, the wait ends and the migration goes on. To take it back, migrate to
where it was.`,
		Example: `  xb servicesync migrate shop/web --to west --kubeconfig east.kubeconfig --wait
  xb servicesync migrate shop/web --to west --kubeconfig east.kubeconfig --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			services, err := serviceNames(args)
			if err != nil {
				return err
			}
			if f.to == "" {
				return errors.New("say where it shall be served, with --to CLUSTER")
			}
			log, err := logs.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return f.run(cmd, services[0], log)
		},
	}
	f.registerMigrate(cmd.Flags())
	cmd.Flags().StringVar(&f.to, "to", "", "the cluster that shall serve it")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until it does, and show how far it is")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait; 0 is for ever")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "print what would be written, and write nothing")
	return cmd
}

func (f *migrateFlags) run(cmd *cobra.Command, service types.NamespacedName, log *slog.Logger) error {
	m, err := f.migration(cmd, service, log)
	if err != nil {
		return err
	}
	if f.dry {
		return m.Preview(cmd.Context(), cmd.OutOrStdout())
	}
	if err := m.Start(cmd.Context()); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Asked for %s to be served by %s.\n", service, f.to)
	if !f.wait {
		fmt.Fprintf(cmd.OutOrStdout(), "See how far it is:  xb servicesync status %s\n", service)
		return nil
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	file, _ := out.(*os.File)
	return m.Follow(ctx, out, file != nil && term.IsTerminal(int(file.Fd())))
}

// migration is what the controller of the own cluster is to be asked for.
func (f *migrateFlags) migration(cmd *cobra.Command, service types.NamespacedName, log *slog.Logger) (*migration.Migration, error) {
	if err := kubelog.Bridge(log, 0, syncLevel); err != nil {
		return nil, err
	}
	clusters, err := f.find(cmd)
	if err != nil {
		return nil, err
	}
	if len(clusters) > 1 {
		return nil, errors.New("--cluster is given more than once; name the one whose Service is to be annotated")
	}
	f.clusters = []string{clusters[0].Name}
	cfg, err := f.config(cmd.Flags(), log)
	if err != nil {
		return nil, err
	}
	return servicesync.NewMigration(cfg, service, f.to)
}
