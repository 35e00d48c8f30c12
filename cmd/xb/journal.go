package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/snapshot"
	"github.com/xbernetes/xbernetes/internal/usage"
)

func newJournalCommand(logs *usage.Log) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Read the records of a journal",
	}
	cmd.AddCommand(newDumpCommand(logs), newTailCommand(logs), newAcceptLossCommand(logs))
	return cmd
}

// dumpFlags are what dump and tail take.
type dumpFlags struct {
	url, output string
	opts        fsck.DumpOptions
}

func (f *dumpFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "journal", "", journalHelp())
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text (a line a record) or json (an object a line)")
	cmd.Flags().BoolVar(&f.opts.Values, "values", false, "also print the values that are put; they may be secrets")
	cmd.MarkFlagRequired("journal") //nolint:errcheck // the flag is there
	usage.OneOf(cmd, "output", "text", "json")
}

// format reads -o.
func (f *dumpFlags) format() error {
	if f.opts.Format = fsck.Format(f.output); f.opts.Format != fsck.Text && f.opts.Format != fsck.JSON {
		return fmt.Errorf("-o is %q; want text or json", f.output)
	}
	return nil
}

func (f *dumpFlags) run(cmd *cobra.Command, logs *usage.Log, prepare func(journal.Store) error) error {
	log, err := logs.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := f.format(); err != nil {
		return err
	}
	store, err := openReadOnly(cmd.Context(), f.url, log)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := prepare(store); err != nil {
		return err
	}
	servers, _, err := announce.List(cmd.Context(), store)
	if err != nil {
		log.Warn("servers are shown without names", "error", err)
	}
	f.opts.Names = map[mvcc.WriterID]string{}
	for _, s := range servers {
		f.opts.Names[s.Writer] = s.Label()
	}
	return fsck.Dump(cmd.Context(), store, cmd.OutOrStdout(), f.opts)
}

func (f *dumpFlags) salvage(cmd *cobra.Command) error {
	if err := f.format(); err != nil {
		return err
	}
	d, u, err := parseJournalURL(f.url)
	if err != nil {
		return err
	}
	if d.salvage == nil {
		return fmt.Errorf("--salvage reads the files of a file journal; each record of %s is an object of its own, and dump reads those that are there", u.Redacted())
	}
	return fsck.DumpRecords(cmd.OutOrStdout(), f.opts, func(yield func(journal.Slot, []byte, string) error) error {
		return d.salvage(u, yield)
	})
}

func newAcceptLossCommand(logs *usage.Log) *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "accept-loss --journal URL",
		Short: "Make a journal that has lost its end go on from what is left",
		Long: `Make a journal that has lost its end go on from what is left. What the missing
records said is lost for good, though clients were told that it was stored:
put the end back from a copy instead, if there is one. Copy the journal first,
and stop every server of it. A damaged or missing record before the end is not
accepted. Clients that watched the lost changes must list again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			store, err := openStore(cmd.Context(), url, openOptions{log: log, acceptLoss: true})
			if err != nil {
				return err
			}
			defer store.Close()
			tail, err := fsck.Last(cmd.Context(), store)
			if err != nil {
				return err
			}
			dropped, err := snapshot.DeleteAbove(cmd.Context(), store, tail)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "journal %s ends with slot %d now; %d snapshots of later slots were deleted\n", store.Info().ID, tail, len(dropped))
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "journal", "", journalHelp())
	cmd.MarkFlagRequired("journal") //nolint:errcheck // the flag is there
	return cmd
}

func newDumpCommand(logs *usage.Log) *cobra.Command {
	f := &dumpFlags{}
	var from, to uint64
	var salvage bool
	cmd := &cobra.Command{
		Use:   "dump --journal URL",
		Short: "Print the records of a journal, a line each",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if salvage {
				f.opts.From, f.opts.To = journal.Slot(from), journal.Slot(to)
				return f.salvage(cmd)
			}
			return f.run(cmd, logs, func(journal.Store) error {
				f.opts.From, f.opts.To = journal.Slot(from), journal.Slot(to)
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&salvage, "salvage", false, "print every whole record of a file journal that is too damaged to be opened, in the order of its files")
	cmd.Flags().Uint64Var(&from, "from", 0, "first slot (default the first that there is)")
	cmd.Flags().Uint64Var(&to, "to", 0, "last slot (default the last that there is)")
	return cmd
}

func newTailCommand(logs *usage.Log) *cobra.Command {
	f := &dumpFlags{}
	var last uint64
	cmd := &cobra.Command{
		Use:   "tail --journal URL",
		Short: "Print the last records of a journal, and new ones as they come",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, logs, func(store journal.Store) error {
				end, err := fsck.Last(cmd.Context(), store)
				if err != nil {
					return err
				}
				f.opts.Follow = true
				f.opts.From = end + 1 - min(end, journal.Slot(last))
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.Flags().Uint64VarP(&last, "lines", "n", 10, "how many of the last records to begin with")
	cmd.Flags().DurationVar(&f.opts.Poll, "poll-interval", time.Second, "how often to look for new records")
	return cmd
}
