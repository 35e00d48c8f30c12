package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/status"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// statusFlags are those of xb status.
type statusFlags struct {
	url    string
	output usage.Output
}

func newStatusCommand(logs *usage.Log) *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status --journal URL",
		Short: "Show a journal, its snapshots and its servers",
		Long: `Show a journal, its snapshots and its servers, by what is stored: servers may run
or not, and none is asked. Nothing is changed. The last 4,096 records are read;
records carry no times, so that a server is behind by slots. What a server says
of itself (name, account, version, start) is not checked: whoever can write to the
store can write it. Use xb fsck to check a journal.

Exit status: 0 if nothing is wrong as far as this shows, 1 if the journal cannot be
read, 2 if something is wrong.`,
		Example: "  xb status --journal 's3://bucket/prefix?region=eu-west-1'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, logs) },
	}
	cmd.Flags().StringVar(&f.url, "journal", "", journalHelp())
	cmd.MarkFlagRequired("journal") //nolint:errcheck // the flag is there
	f.output.Register(cmd)
	return cmd
}

func (f *statusFlags) run(cmd *cobra.Command, logs *usage.Log) error {
	log, err := logs.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := f.output.Check(); err != nil {
		return err
	}
	store, err := openReadOnly(cmd.Context(), f.url, log)
	if err != nil {
		return err
	}
	defer store.Close()
	report, err := status.Read(cmd.Context(), store)
	if err != nil {
		return fmt.Errorf("read journal %s: %w", journalName(f.url), err)
	}
	err = f.output.Write(cmd.OutOrStdout(), report)
	if err == nil && len(report.Problems) > 0 {
		err = usage.Exit(2)
	}
	return err
}
