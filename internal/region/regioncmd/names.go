package regioncmd

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/region/report"
)

// named is a kind of thing as the commands call it.
type named struct {
	kind     client.Kind
	command  string
	words    string // what one is called in a sentence
	plural   string
	args     []string // what its name is made of
	sample   string
	whatItIs string
	spec     specFlags // of a create; nil: its name says all
}

// The three kinds, each of which has a command.
func kinds() []named {
	return []named{
		{client.Account, "account", "an account", "accounts", []string{"NAME"}, "team-a", "An account is a name that is unique over all regions.", accountFlags},
		{client.ServiceCluster, "servicecluster", "a service cluster", "service clusters", []string{"NAME"}, "tokyo", "A service cluster is a name that is unique over all regions, and leads to its region.", serviceClusterFlags},
		{client.Assignment, "assignment", "an assignment", "assignments", []string{"SERVICECLUSTER", "ACCOUNT"}, "tokyo team-a", "An assignment is a service cluster and an account: there is one in all regions.", nil},
	}
}

// nameFlags are those of the commands of names.
type nameFlags struct {
	target
	options client.Options
	region  string
}

func (f *nameFlags) registerRegion(cmd *cobra.Command) {
	f.register(cmd)
	f.output.Register(cmd)
	cmd.Flags().StringVar(&f.region, "region", "", "the region to ask in, and the home of what is created (default $XB_REGION)")
}

func (f *nameFlags) registerOptions(cmd *cobra.Command) {
	f.registerRegion(cmd)
	cmd.Flags().StringVar(&f.options.Operation, "operation", "", "ID of an operation to ask for again, or go on with; it is carried out once (default a new one)")
	cmd.Flags().BoolVar(&f.options.DryRun, "dry-run", false, "check, and write nothing")
}

// in calls do with the region that is asked.
func (f *nameFlags) in(cmd *cobra.Command, do func(context.Context, *client.Region) error) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	region := cmp.Or(f.region, os.Getenv("XB_REGION"))
	if region == "" {
		return errors.New("--region must name the region to ask in")
	}
	return f.with(cmd, func(ctx context.Context, _ client.Config, r *client.Regions) error {
		in, err := r.In(region)
		if err != nil {
			return err
		}
		return do(ctx, in)
	})
}

func newName(n named) *cobra.Command {
	cmd := &cobra.Command{
		Use:   n.command,
		Short: "Create, list and delete " + n.plural + " over all regions",
		Long:  n.whatItIs + "\nSee docs/regions.md.",
	}
	cmd.AddCommand(
		newChange(n, change{"create", "created", "all of them have it", (*client.Region).Create, n.spec}),
		newNameGet(n),
		newNameList(n),
		newChange(n, change{"delete", "deleted", "none of them has it", (*client.Region).Delete, nil}),
	)
	return cmd
}

// change is what a command does to a name.
type change struct {
	verb, done string
	until      string // when it returns
	carryOut   func(*client.Region, context.Context, client.Kind, string, client.Options) (client.Owned, error)
	spec       specFlags // nil: it takes none
}

func newChange(n named, c change) *cobra.Command {
	f := &nameFlags{}
	spec := func() (client.Spec, error) { return client.Spec{}, nil }
	cmd := &cobra.Command{
		Use:   c.verb + " " + strings.Join(n.args, " "),
		Short: title(c.verb) + " " + n.words,
		Long: title(c.verb) + " " + n.words + " in all regions: it returns once " + c.until + `. If one does not
answer, it waits until --timeout; then asking again with the --operation that was printed goes on.
` + exits,
		Example: "  xb " + n.command + " " + c.verb + " " + n.sample + " --region eu",
		Args:    cobra.ExactArgs(len(n.args)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.options.Spec, err = spec(); err != nil {
				return err
			}
			return f.in(cmd, func(ctx context.Context, r *client.Region) error {
				changed, err := c.carryOut(r, ctx, n.kind, strings.Join(args, "/"), f.options)
				if err != nil {
					return err
				}
				return f.output.Write(cmd.OutOrStdout(), report.Change{Owned: changed, Done: c.done, DryRun: f.options.DryRun})
			})
		},
	}
	f.registerOptions(cmd)
	if c.spec != nil {
		spec = c.spec(cmd.Flags())
	}
	return cmd
}

func title(verb string) string { return strings.ToUpper(verb[:1]) + verb[1:] }

func newNameGet(n named) *cobra.Command {
	f := &nameFlags{}
	cmd := &cobra.Command{
		Use:     "get " + strings.Join(n.args, " "),
		Short:   "Show " + n.words,
		Long:    "Show " + n.words + ". The one region that is asked knows all.\n" + exits,
		Example: "  xb " + n.command + " get " + n.sample + " --region eu -o json",
		Args:    cobra.ExactArgs(len(n.args)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.in(cmd, func(ctx context.Context, r *client.Region) error {
				found, err := r.Get(ctx, n.kind, strings.Join(args, "/"))
				if err != nil {
					return err
				}
				return f.output.Write(cmd.OutOrStdout(), report.Name{Owned: found})
			})
		},
	}
	f.registerRegion(cmd)
	return cmd
}

func newNameList(n named) *cobra.Command {
	f := &nameFlags{}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the " + n.plural + " of all regions",
		Long:    "List the " + n.plural + " of all regions. The one region that is asked knows all.\n" + exits,
		Example: "  xb " + n.command + " list --region eu -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.in(cmd, func(ctx context.Context, r *client.Region) error {
				all, err := r.List(ctx, n.kind)
				if err != nil {
					return err
				}
				return f.output.Write(cmd.OutOrStdout(), report.Names(all))
			})
		},
	}
	f.registerRegion(cmd)
	return cmd
}
