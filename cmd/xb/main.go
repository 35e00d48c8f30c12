// Command xb is xbernetes: a Kubernetes API server whose state lives in a data
// service that many regions and accounts can reach. It is the only place that
// names drivers and wires a server together. The commands of what stands on any Kubernetes
// API are rooms of their own beside it: gatewaycmd, synccmd and regioncmd.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xbernetes/xbernetes/internal/dev"
	"github.com/xbernetes/xbernetes/internal/gateway/gatewaycmd"
	"github.com/xbernetes/xbernetes/internal/region/regioncmd"
	"github.com/xbernetes/xbernetes/internal/servicesync/synccmd"
	"github.com/xbernetes/xbernetes/internal/usage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(dev.StopWithParent(ctx)); err != nil {
		code, printed := usage.ExitCode(err)
		if printed {
			fmt.Fprintf(os.Stderr, "xb: %v\n", err)
		}
		os.Exit(code)
	}
}

func newCommand() *cobra.Command {
	// Packages of Kubernetes register flags of their own there, which cobra
	// would take for ours.
	pflag.CommandLine = pflag.NewFlagSet("xb", pflag.ContinueOnError)
	logs := &usage.Log{}
	cmd := &cobra.Command{
		Use:   "xb",
		Short: "A Kubernetes API server whose state lives in a data service instead of etcd",
		Long: `xb serves the Kubernetes API from a journal in a data service: a bucket, a
PostgreSQL database, NATS or a local file. Servers in different regions and
accounts that share a journal serve the same objects; no network joins them.

  xb server       one server, on a local file unless --journal says otherwise
  xb dev          an object store and two accounts on this machine, to try it out

These work with any Kubernetes API, whether xb serves it or not:

  xb gateway      one front for many API servers
  xb servicesync  Services and their endpoints across clusters
  xb region       regions, over which names of accounts have one owner`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	cmd.SetVersionTemplate(versions().text())
	logs.Register(cmd)
	cmd.AddCommand(
		newServerCommand(logs),
		newEtcdCommand(logs),
		newDevCommand(),
		gatewaycmd.New(logs),
		newApplyCommand(),
		newTransactionCommand(),
		newStatusCommand(logs),
		newFsckCommand(logs),
		newJournalCommand(logs),
		synccmd.New(version, logs),
		newAWSCommand(),
		newVersionCommand(),
	)
	cmd.AddCommand(regioncmd.New(logs)...)
	usage.Apply(cmd)
	return cmd
}
