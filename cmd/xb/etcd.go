package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newEtcdCommand(logs *logFlags) *cobra.Command {
	f := &engineFlags{}
	cmd := &cobra.Command{
		Use:   "etcd --journal URL",
		Short: "Serve the etcd v3 API alone, on any journal",
		Long: `Serve the etcd v3 API on a journal, so that an unmodified kube-apiserver,
etcdctl and etcd's own benchmark run on it. Several of these, on different
machines, may share one journal that is not a local file.

Served: KV without nested transactions, Watch, Lease, Maintenance's Status, and
a member list of one. Not served: auth, membership, snapshots, alarms.

Who reaches the etcd API controls all that is in the journal. Without
certificates that is every user of this machine; a Unix socket is for the user
who started xb alone.`,
		Example: "  xb etcd --journal file:///var/lib/xb/journal\n  etcdctl --endpoints http://127.0.0.1:2379 put greeting hello",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			e, err := openEngine(cmd.Context(), f, log)
			if err != nil {
				return err
			}
			go func() {
				select {
				case <-e.replica.Ready():
					fmt.Fprintf(cmd.OutOrStdout(), "Serving the etcd API at %s\n", clientURL(e.lis, e.lisTLS))
				case <-e.replica.Done():
				}
			}()
			return e.run(cmd.Context())
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.etcd.listen, "listen", "127.0.0.1:2379", "where to serve: unix:///PATH, for this user alone, or HOST:PORT, with http:// or https:// before it or not; without the three files below HOST must be a loopback address, and every user of this machine then has full control")
	f.etcd.register(cmd.Flags(), "")
	cmd.MarkFlagRequired("journal") //nolint:errcheck // the flag is there
	return cmd
}
