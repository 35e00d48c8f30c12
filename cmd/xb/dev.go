package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/dev"
	"github.com/xbernetes/xbernetes/internal/usage"
)

const (
	devPort    = 7800 // no other command has a default near it
	maxRegions = 16
)

// devFlags are those of xb dev.
type devFlags struct {
	dir     string
	regions int
	latency time.Duration
	port    int
}

func newDevCommand() *cobra.Command {
	f := &devFlags{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an object store and two accounts on this machine, to try xbernetes out",
		Long: `Run, on this machine, an S3-compatible object store and two accounts over it,
vendor and tenant, each with a server process of its own. They share a bucket,
each with its own credentials, and nothing else: no server knows the other's
address. Kill one, and the other goes on; xb dev says how to start it again.
Everything binds to loopback, and a second start finds it all again.

The object store does not sync to disk: it is for trying things out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return dev.Run(cmd.Context(), dev.Config{
				Dir: f.dir, Accounts: f.regions, Latency: f.latency,
				Port: f.port, FixedPorts: cmd.Flags().Changed("port"),
			}, cmd.OutOrStdout())
		},
	}
	dir := usage.DataDir()
	if dir != "" {
		dir = filepath.Join(dir, "dev")
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", dir, "where everything is kept")
	cmd.Flags().IntVar(&f.regions, "regions", 2, "how many accounts: vendor, tenant, tenant-2, …, each as if in a region of its own")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "round trip to put between each account and the object store, such as 80ms")
	cmd.Flags().IntVar(&f.port, "port", devPort, "port of the object store; the accounts' servers have those that follow. A default that is taken gives way to a free port")
	cmd.AddCommand(newDevStartCommand(f), newDevStoreCommand())
	return cmd
}

func (f *devFlags) validate() error {
	if f.regions < 1 || f.regions > maxRegions {
		return fmt.Errorf("--regions is %d; want 1 to %d", f.regions, maxRegions)
	}
	if f.latency < 0 || f.latency > 10*time.Second {
		return fmt.Errorf("--latency is %v; want 0 to 10s", f.latency)
	}
	if f.port < 1 || f.port+f.regions > 65535 {
		return fmt.Errorf("--port is %d; want 1 to %d, so that the accounts' ports can follow", f.port, 65535-f.regions)
	}
	return f.findDir()
}

func (f *devFlags) findDir() (err error) {
	if f.dir == "" {
		return errors.New("no home directory to keep things in; set --dir")
	}
	f.dir, err = filepath.Abs(f.dir)
	return err
}

// newDevStartCommand asks a running xb dev for a process that is down.
func newDevStartCommand(f *devFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "start NAME",
		Short: "Start an account's server, or the object store, of a running xb dev again",
		Long: `Start an account's server, or the object store, again after it ended. NAME is
vendor, tenant, … or store. It belongs to the xb dev that runs in --dir, as before.`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return dev.Names(f.dir), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.findDir(); err != nil {
				return err
			}
			if err := dev.Start(cmd.Context(), f.dir, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is ready\n", args[0])
			return nil
		},
	}
}

// newDevStoreCommand runs the object store of xb dev alone.
func newDevStoreCommand() *cobra.Command {
	var s dev.Store
	cmd := &cobra.Command{
		Use:    "store --dir DIR --accounts FILE",
		Short:  "Run the object store of xb dev alone",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return s.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().StringVar(&s.Dir, "dir", "", "where the objects are kept")
	cmd.Flags().StringVar(&s.AccountsFile, "accounts", "", "JSON file: [{name, accessKey, secretKey}, …]; the first owns the bucket")
	cmd.Flags().StringVar(&s.Listen, "listen", "127.0.0.1:0", "where to serve, HOST:PORT")
	cmd.Flags().StringVar(&s.Bucket, "bucket", dev.Bucket, "the bucket that the accounts share")
	cmd.Flags().StringVar(&s.ReadyFile, "ready-file", "", "file to write the store's URL to once it serves")
	cmd.Flags().BoolVar(&s.AllowRemote, "allow-remote", false, "serve at an address that other machines reach")
	return cmd
}
