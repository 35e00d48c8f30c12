package synccmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/servicesync"
	"github.com/xbernetes/xbernetes/internal/servicesync/migration"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// migrateFlags are those of xb servicesync migrate.
type migrateFlags struct {
	flags
	to        string
	wait, dry bool
	timeout   time.Duration
}

func newMigrate(version string, logs *usage.Log) *cobra.Command {
	f := &migrateFlags{flags: flags{version: version}}
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
			log, err := logs.Logger(cmd.ErrOrStderr())
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
	if err := kubelog.Bridge(log, 0, kubelog.WarnOfErrors); err != nil {
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
