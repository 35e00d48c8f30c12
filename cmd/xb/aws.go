package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/usage"
)

func newAWSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "aws",
		Short: "What a journal needs of AWS",
	}
	cmd.AddCommand(newAWSPolicyCommand())
	return cmd
}

// awsPolicyFlags are a party to a journal, as flags tell of it.
type awsPolicyFlags struct {
	journal, role, account, principal, only string
	notify                                  awspolicy.Notifications
}

func newAWSPolicyCommand() *cobra.Command {
	f := &awsPolicyFlags{}
	cmd := &cobra.Command{
		Use:   "policy --role writer --journal s3://BUCKET/PREFIX",
		Short: "Print the policies that allow a party what it needs of AWS, and nothing more",
		Long: `Print the policies that allow a party to a journal what it needs of AWS, and
nothing more, as one JSON object:

  identity   for the party's IAM role or user
  bucket     of the bucket; it lets a party of another account in, and denies
             everybody to replace an object of the journal
  topic      of the topic (--topic), for a party of another account
  queue      of the party's queue (--topic and --queue)

A reader runs xb fsck and xb journal. A writer runs xb server or xb etcd, adds
records and snapshots, and can replace and delete nothing. An owner runs a server
with --trim always, creates the journal, and deletes what it gave up. A bucket has
one policy: merge the statements if several accounts share it.

Nothing is sent to AWS.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := f.policies()
			if err != nil {
				return err
			}
			var out any = set
			if f.only != "" {
				if out, err = set.Named(f.only); err != nil {
					return err
				}
			}
			return usage.WriteJSON(cmd.OutOrStdout(), out)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.journal, "journal", "", "where the journal is: s3://BUCKET/PREFIX")
	fs.StringVar(&f.role, "role", "", "what the party does: reader, writer or owner")
	fs.StringVar(&f.account, "account", "", "the party's account, if it is not the bucket's: 12 digits")
	fs.StringVar(&f.principal, "principal", "", "ARN of the party's IAM role, if the bucket's policy should let in that one alone")
	fs.StringVar(&f.notify.Topic, "topic", "", "ARN of the SNS topic by which servers tell each other of new records")
	fs.StringVar(&f.notify.Queue, "queue", "", "ARN of the SQS queue that the party's server reads; with a * at the end, of the queues that servers make")
	fs.StringVar(&f.only, "only", "", "print this policy alone: identity, bucket, topic or queue")
	usage.OneOf(cmd, "role", "reader", "writer", "owner")
	usage.OneOf(cmd, "only", "identity", "bucket", "topic", "queue")
	for _, name := range []string{"journal", "role"} {
		cmd.MarkFlagRequired(name) //nolint:errcheck // the flag is there
	}
	return cmd
}

func (f *awsPolicyFlags) policies() (awspolicy.Set, error) {
	role, err := awspolicy.ParseRole(f.role)
	if err != nil {
		return awspolicy.Set{}, fmt.Errorf("--role: %w", err)
	}
	d, u, err := parseJournalURL(f.journal)
	if err != nil {
		return awspolicy.Set{}, err
	}
	if d.scheme != "s3" {
		return awspolicy.Set{}, fmt.Errorf("--journal is a journal in %s, for which AWS has no policies; want s3://BUCKET/PREFIX", d.form)
	}
	cfg, err := s3log.ParseURL(u)
	if err != nil {
		return awspolicy.Set{}, err
	}
	if err := f.notify.Check(); err != nil {
		return awspolicy.Set{}, err
	}
	partition := awspolicy.Partition(cfg.Region)
	principal, err := awspolicy.PrincipalOf(partition, f.account, f.principal)
	if err != nil {
		return awspolicy.Set{}, err
	}
	where := awspolicy.Journal{Partition: partition, Bucket: cfg.Bucket, Prefix: cfg.Prefix}
	return awspolicy.For(where, awspolicy.Party{Role: role, Principal: principal}, f.notify)
}
