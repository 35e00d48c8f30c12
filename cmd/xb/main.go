// Command xb is xbernetes: a Kubernetes API server whose state lives in a data
// service that many regions and accounts can reach. It is the only place that
// names drivers and wires parts together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xbernetes/xbernetes/internal/dev"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// exitCode is an error that ends xb with a code of its own; what it has to
// say is said already.
type exitCode int

// withCode is an error that ends xb with a code of its own.
type withCode struct {
	error
	code int
}

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(dev.StopWithParent(ctx)); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(int(code))
		}
		fmt.Fprintf(os.Stderr, "xb: %v\n", err)
		if coded := (withCode{}); errors.As(err, &coded) {
			os.Exit(coded.code)
		}
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	// Packages of Kubernetes register flags of their own there, which cobra
	// would take for ours.
	pflag.CommandLine = pflag.NewFlagSet("xb", pflag.ContinueOnError)
	logs := &logFlags{level: "info", format: "text"}
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
	cmd.PersistentFlags().StringVar(&logs.level, "log-level", logs.level, "what to log on standard error: debug, info, warn or error")
	cmd.PersistentFlags().StringVar(&logs.format, "log-format", logs.format, "how to log: text or json")
	cmd.AddCommand(
		newServerCommand(logs),
		newEtcdCommand(logs),
		newDevCommand(),
		newGatewayCommand(logs),
		newApplyCommand(),
		newTransactionCommand(),
		newStatusCommand(logs),
		newFsckCommand(logs),
		newJournalCommand(logs),
		newServicesyncCommand(logs),
		newRegionCommand(logs),
		newAWSCommand(),
		newVersionCommand(),
	)
	for _, n := range regionNames() {
		cmd.AddCommand(newNameCommand(n))
	}
	usage.OneOf(cmd, "log-level", "debug", "info", "warn", "error")
	usage.OneOf(cmd, "log-format", "text", "json")
	usage.Apply(cmd)
	return cmd
}

type logFlags struct{ level, format string }

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, fmt.Errorf("--log-level is %q; want debug, info, warn or error", f.level)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("--log-format is %q; want text or json", f.format)
	}
}
