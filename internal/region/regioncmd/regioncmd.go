// Package regioncmd is xb region, and xb account, servicecluster and assignment: it reads the
// flags and asks the library of regions. It decides nothing about a name.
package regioncmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/region/report"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// The exit codes of the commands of regions, beside 1 for all other failures.
const (
	exitRefused = 2
	exitOpen    = 3
)

const exits = `
Exit codes: 0 done; 2 refused, because of what there is or is not, and nothing was
changed; 3 the outcome is open; 1 any other failure.`

// target is which regions there are, and for how long to wait for them.
type target struct {
	file    string
	timeout time.Duration
	output  usage.Output
}

func (f *target) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "regions", "", "file that names the regions and their kubeconfigs (default $XB_REGIONS, or else regions.yaml)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for regions that do not answer, and for other clients")
}

// with calls do with the regions, until the time is over.
func (f *target) with(cmd *cobra.Command, do func(context.Context, client.Config, *client.Regions) error) error {
	config, err := client.Load(cmp.Or(f.file, os.Getenv("XB_REGIONS"), "regions.yaml"))
	if err != nil {
		return err
	}
	regions, err := client.Open(config, func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	return exitOf(do(ctx, config, regions))
}

// exitOf gives an error its exit code.
func exitOf(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, client.ErrOpen) || errors.Is(err, client.ErrRemoved) {
		return usage.WithCode(err, exitOpen)
	}
	for _, refused := range []error{client.ErrTaken, client.ErrAbsent, client.ErrInUse, client.ErrContended, client.ErrExpired, client.ErrNotMember, client.ErrLayout} {
		if errors.Is(err, refused) {
			return usage.WithCode(err, exitRefused)
		}
	}
	return err
}

// New are the commands of regions, with those below them.
func New(logs *usage.Log) []*cobra.Command {
	all := []*cobra.Command{newRegion(logs)}
	for _, n := range kinds() {
		all = append(all, newName(n))
	}
	return all
}

func newRegion(logs *usage.Log) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "region",
		Short: "Join, list, remove and serve regions",
		Long: `A region is one Kubernetes API. Accounts, service clusters and assignments have
names that are unique over all regions, without a server in between.

The regions are named in a file:

  register: eu
  regions:
    eu: eu.kubeconfig
    us: us.kubeconfig

The membership is changed in the register. Instead of it, central can name the kubeconfig
of a central store. All clients must have the same. See docs/regions.md.`,
	}
	cmd.AddCommand(newJoin(), newList(), newStatus(), newRemove(), newCollect(), newKubeconfig(), newServe(logs), newAgent(logs))
	return cmd
}

func newJoin() *cobra.Command {
	f := &target{}
	cmd := &cobra.Command{
		Use:   "join REGION",
		Short: "Make a region a member",
		Long: `Make a region a member, with the names of all others. It creates the definitions of
what is stored, if they are not there. The region that has the register must be the first.
If a join is interrupted, the same command goes on with it.
` + exits,
		Example: "  xb region join eu --regions regions.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error { return r.Join(ctx, args[0]) })
		},
	}
	f.register(cmd)
	return cmd
}

func newList() *cobra.Command {
	f := &target{}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show which regions are members, and whether they answer",
		Long:    "Show which regions are members, and whether they answer. The register must answer.\n" + exits,
		Example: "  xb region list --regions regions.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error {
				members, err := r.Members(ctx)
				if err != nil {
					return err
				}
				return f.output.Write(cmd.OutOrStdout(), report.Members(members))
			})
		},
	}
	f.register(cmd)
	f.output.Register(cmd)
	return cmd
}

func newStatus() *cobra.Command {
	f := &target{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the regions stand, and what operations have not ended",
		Long: `Show how the regions stand, and what operations have not ended, since when, and who can
end them. One that began just now may well be under way. The register must answer; operations of
a region that does not are not shown.
` + exits,
		Example: "  xb region status --regions regions.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error {
				status, err := r.Status(ctx)
				if err != nil {
					return err
				}
				return f.output.Write(cmd.OutOrStdout(), report.Status(status))
			})
		},
	}
	f.register(cmd)
	f.output.Register(cmd)
	return cmd
}

func newRemove() *cobra.Command {
	f := &target{}
	gone := false
	cmd := &cobra.Command{
		Use:   "remove REGION",
		Short: "Make a region a member no more",
		Long: `Make a region a member no more. What was acknowledged stays; operations of that region
that were not are finished or taken back. Its later writes are void. It may join again, as new.
If a removal is interrupted, the same command goes on with it.

A region that does not answer is removed with --gone only: it may be alive, and its users
are not told.
` + exits,
		Example: "  xb region remove us --gone",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error {
				err := r.Remove(ctx, args[0], gone)
				if errors.Is(err, client.ErrAway) && !gone {
					err = fmt.Errorf("%w; if it is gone for good, say --gone", err)
				}
				return err
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&gone, "gone", false, "remove it although it does not answer")
	return cmd
}

// kubeconfigTarget is where a kubeconfig is to lead.
type kubeconfigTarget struct{ region, account, cluster, facade string }

func (t kubeconfigTarget) check() error {
	given := min(len(t.region), 1) + min(len(t.account), 1) + min(len(t.cluster), 1)
	switch {
	case t.facade == "" && given != 1:
		return errors.New("name one of a region, --account and --service-cluster")
	case t.facade != "" && (given > 1 || t.account != ""):
		return errors.New("with --facade, name a region, --service-cluster or nothing")
	}
	return nil
}

// text is the kubeconfig.
func (t kubeconfigTarget) text(ctx context.Context, config client.Config, r *client.Regions) ([]byte, error) {
	switch {
	case t.facade != "" && t.cluster != "":
		return config.Through(t.facade, "/serviceclusters/"+t.cluster, "")
	case t.facade != "" && t.region != "":
		return config.Through(t.facade, "/regions/"+t.region, t.region)
	case t.facade != "":
		return config.Through(t.facade, "", "")
	case t.region != "":
		return config.Kubeconfig(t.region)
	}
	kind, name := client.Account, t.account
	if t.cluster != "" {
		kind, name = client.ServiceCluster, t.cluster
	}
	region, err := r.Route(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	return config.Kubeconfig(region)
}

func newCollect() *cobra.Command {
	f := &target{}
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Remove the records of past operations",
		Long: `Remove the records of past operations, which otherwise grow with each create and delete.
What is decided is finished before. Operations that are under way and not yet decided are
aborted, and their users are told so: collect when few names are created and deleted, such
as once a week. Asking again for an operation whose record was removed changes nothing, and
nobody can tell how it ended. All members must answer; the same command goes on.
` + exits,
		Example: "  xb region collect --regions regions.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error { return r.Collect(ctx) })
		},
	}
	f.register(cmd)
	return cmd
}

func newKubeconfig() *cobra.Command {
	f := &target{}
	to := kubeconfigTarget{}
	cmd := &cobra.Command{
		Use:   "kubeconfig [REGION]",
		Short: "Print the kubeconfig of a region",
		Long: `Print the kubeconfig of a region, or of the home of an account or service cluster, with
the credentials that the file of regions leads to.

With --facade, it leads there by way of a server that xb region serve has started; without a
region and a service cluster, to all accounts, service clusters and assignments. The
credentials must be a token then.
` + exits,
		Example: `  xb region kubeconfig --service-cluster tokyo >tokyo.kubeconfig
  xb region kubeconfig --facade ~/.local/share/xbernetes/regions/kubeconfig >all.kubeconfig`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				to.region = args[0]
			}
			if err := to.check(); err != nil {
				return err
			}
			return f.with(cmd, func(ctx context.Context, config client.Config, r *client.Regions) error {
				text, err := to.text(ctx, config, r)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&to.account, "account", "", "of the home of this account")
	cmd.Flags().StringVar(&to.cluster, "service-cluster", "", "of the home of this service cluster")
	cmd.Flags().StringVar(&to.facade, "facade", "", "kubeconfig of a facade to go through, as xb region serve writes it")
	return cmd
}
