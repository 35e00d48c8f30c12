package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/kubelog"
	"github.com/xbernetes/xbernetes/internal/servicesync"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/report"
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
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(found)
			}
			return printReport(cmd.OutOrStdout(), found, time.Now())
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	oneOf(cmd, "output", "json")
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

// printReport prints tables: of clusters and their peers, and of Services.
func printReport(out io.Writer, r *report.Report, now time.Time) error {
	if err := printClusters(out, r.Clusters, now); err != nil {
		return err
	}
	for _, c := range r.Clusters {
		for _, fault := range faultsOf(c) {
			fmt.Fprintf(out, "! %s: %s\n", c.Cluster, fault)
		}
	}
	if len(r.Services) == 0 {
		fmt.Fprintln(out, "\nNo such Services.")
		return nil
	}
	fmt.Fprintln(out)
	return printServices(out, r.Services)
}

// printClusters prints a line for each peer of each cluster.
func printClusters(out io.Writer, clusters []report.Cluster, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tRENEWED\tSERVICES\tPEER\tSTATE\tHEARD")
	for _, c := range clusters {
		published := fmt.Sprint(c.Services)
		if !c.Complete {
			published += " so far"
		}
		row := c.Cluster + "\t" + ago(c.Renewed, now) + "\t" + published
		if len(c.Peers) == 0 {
			fmt.Fprintln(w, row+"\tnone\t\t")
		}
		for _, p := range c.Peers {
			var heard *time.Time
			if p.Heard != nil {
				heard = &p.Heard.Time
			}
			state := cmp.Or(string(p.State), "Unusable")
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row, p.Cluster, state, ago(heard, now))
			row = "\t\t" // the cluster is named in its first line only
		}
	}
	return w.Flush()
}

// faultsOf are a cluster's own faults, and then those of its peers.
func faultsOf(c report.Cluster) []string {
	faults := slices.Clone(c.Faults)
	for _, p := range c.Peers {
		if p.Message != "" {
			faults = append(faults, p.Message)
		}
	}
	return faults
}

// ago says how long before now t was; nil is never.
func ago(t *time.Time, now time.Time) string {
	switch {
	case t == nil:
		return "never"
	case t.After(now):
		return "now"
	}
	return duration.HumanDuration(now.Sub(*t)) + " ago"
}

func printServices(out io.Writer, services []report.Service) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tCLUSTER\tROLE\tREADY IN USE\tNOTE")
	last := ""
	for _, s := range services {
		name := s.Service
		if name == last {
			name = ""
		}
		last = s.Service
		role := string(s.Role)
		if s.Phase != "" {
			role += " (" + string(s.Phase) + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, s.Cluster, role, inUse(s), strings.Join(s.Notes, "; "))
	}
	return w.Flush()
}

// inUse is the ready endpoints of each cluster, its own first.
func inUse(s report.Service) string {
	var parts []string
	for cluster, n := range s.Ready {
		mark := ""
		if slices.Contains(s.Stale, cluster) {
			mark = " stale"
		}
		parts = append(parts, fmt.Sprintf("%s %d%s", cluster, n, mark))
	}
	slices.SortFunc(parts, func(a, b string) int {
		own := s.Cluster + " "
		if x, y := strings.HasPrefix(a, own), strings.HasPrefix(b, own); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
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
	return waitForMigration(cmd, m, f.timeout)
}

// migration is what the controller of the own cluster is to be asked for.
func (f *migrateFlags) migration(cmd *cobra.Command, service types.NamespacedName, log *slog.Logger) (*servicesync.Migration, error) {
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

// waitForMigration shows progress until the migration is done.
func waitForMigration(cmd *cobra.Command, m *servicesync.Migration, timeout time.Duration) error {
	ctx, out, start := cmd.Context(), cmd.OutOrStdout(), time.Now()
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	file, _ := out.(*os.File)
	live := file != nil && term.IsTerminal(int(file.Fd())) //nolint:gosec // a file descriptor
	waits := ""
	err := m.Wait(ctx, func(p servicesync.Progress) {
		line := fmt.Sprintf("%s %-9s %5s  %s", bar(p), phaseName(p), time.Since(start).Round(100*time.Millisecond), p.Waits)
		waits = p.Waits
		if live {
			fmt.Fprintf(out, "\r\x1b[K%s", line)
			if p.Done {
				fmt.Fprintln(out)
			}
			return
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	})
	if err != nil {
		if live {
			fmt.Fprintln(out)
		}
		if waits != "" {
			return fmt.Errorf("stopped waiting: it %s; the migration goes on", waits)
		}
		return fmt.Errorf("stopped waiting: %w; the migration goes on", err)
	}
	fmt.Fprintln(out, "Done.")
	return nil
}

// steps are the phases in their order.
func steps() []v1alpha1.Phase {
	return []v1alpha1.Phase{v1alpha1.PhasePreparing, v1alpha1.PhaseJoining, v1alpha1.PhaseCommitted, v1alpha1.PhaseDone}
}

// bar draws how many steps are behind.
func bar(p servicesync.Progress) string {
	at := slices.Index(steps(), p.Phase) + 1
	if p.Done {
		at = len(steps())
	}
	return "[" + strings.Repeat("#", at) + strings.Repeat(".", len(steps())-at) + "]"
}

func phaseName(p servicesync.Progress) string {
	switch {
	case p.Done:
		return "done"
	case p.Phase != "":
		return strings.ToLower(string(p.Phase))
	case p.Role != "":
		return string(p.Role)
	default:
		return "asked"
	}
}
