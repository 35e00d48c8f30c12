package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// fsckFlags are those of xb fsck.
type fsckFlags struct {
	url    string
	output usage.Output
}

func newFsckCommand(logs *usage.Log) *cobra.Command {
	f := &fsckFlags{}
	cmd := &cobra.Command{
		Use:   "fsck --journal URL",
		Short: "Check a journal and its snapshots",
		Long: `Check every record of a journal, and every snapshot against the state that the
records give. Nothing is changed. Servers may go on meanwhile.

Exit status: 0 if the journal is sound, 1 if something is wrong with it, 2 if
it could not be checked.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return notChecked(fmt.Errorf("%q is left over; give the journal with --journal", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, logs) },
	}
	cmd.Flags().StringVar(&f.url, "journal", "", journalHelp())
	f.output.Register(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return notChecked(err) })
	return cmd
}

func (f *fsckFlags) run(cmd *cobra.Command, logs *usage.Log) error {
	log, err := logs.Logger(cmd.ErrOrStderr())
	if err != nil {
		return notChecked(err)
	}
	if f.url == "" {
		return notChecked(errors.New("which journal? give it with --journal"))
	}
	if err := f.output.Check(); err != nil {
		return notChecked(err)
	}
	report := f.check(cmd, log)
	if err := f.output.Write(cmd.OutOrStdout(), report); err != nil {
		return err
	}
	if code := report.ExitCode(); code != 0 {
		return usage.Exit(code)
	}
	return nil
}

// check returns a report of whatever could be checked.
func (f *fsckFlags) check(cmd *cobra.Command, log *slog.Logger) *fsck.Report {
	store, err := openReadOnly(cmd.Context(), f.url, log)
	if err != nil {
		return fsck.Unopened(err)
	}
	defer store.Close()
	progress, clear := progressOn(cmd.ErrOrStderr())
	report, err := fsck.Check(cmd.Context(), store, fsck.Options{Progress: progress, Policy: snapshotPolicy(store.remote)})
	clear()
	if err != nil {
		log.Error("check ended early", "error", err)
	}
	return report
}

// notChecked keeps what was asked wrongly apart from what was found.
func notChecked(err error) error { return usage.WithCode(err, 2) }

// progressOn shows progress on one line of a terminal; elsewhere it is silent.
func progressOn(w io.Writer) (show func(fsck.Progress), clear func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	return func(p fsck.Progress) { fmt.Fprintf(f, "\r%s: slot %d, %d MiB\x1b[K", p.Phase, p.Slot, p.Bytes>>20) },
		func() { fmt.Fprint(f, "\r\x1b[K") }
}
