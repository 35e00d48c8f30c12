package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/transaction/client"
	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/apply"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// kubeFlags say which API server is meant, as whom, and in which namespace, as kubectl's do.
type kubeFlags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func newKubeFlags(cmd *cobra.Command) *kubeFlags {
	f := &kubeFlags{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	flags := cmd.Flags()
	flags.StringVar(&f.rules.ExplicitPath, "kubeconfig", "", "kubeconfig of the server (default: $KUBECONFIG, or ~/.kube/config)")
	flags.StringVar(&f.overrides.CurrentContext, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVarP(&f.overrides.Context.Namespace, "namespace", "n", "", "namespace of objects that say none (default: that of the context)")
	flags.StringVar(&f.overrides.AuthInfo.Impersonate, "as", "", "user to act as")
	flags.StringSliceVar(&f.overrides.AuthInfo.ImpersonateGroups, "as-group", nil, "groups to act as")
	return f
}

// server returns how to reach the server, and the namespace.
func (f *kubeFlags) server() (*rest.Config, string, error) {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, &f.overrides)
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := loaded.Namespace()
	return config, namespace, err
}

func newApplyCommand() *cobra.Command {
	o, out, atomic := apply.Options{}, usage.Output("text"), false
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "apply --atomic -f FILE",
		Short: "Apply manifests together, or none of them",
		Long: `Apply manifests by server-side apply, in one transaction: all objects are changed,
or none is. Objects may be in a namespace that is among them. With --set, what was
applied as part of that set before, and is in no manifest any more, is deleted in
the same transaction. With --dry-run --diff, see before what would be changed.

It needs an API server of xbernetes. As a plugin of kubectl it is kubectl xb apply:
call the program kubectl-xb, or make a link of that name to it.`,
		Args: cobra.NoArgs,
	}
	kube := newKubeFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&atomic, "atomic", false, "change all objects or none (required: kubectl apply does without)")
	flags.StringSliceVarP(&o.Files, "filename", "f", nil, "files or folders with manifests, or - for standard input")
	flags.BoolVarP(&o.Recursive, "recursive", "R", false, "folders with all that is in their folders")
	flags.StringVar(&o.Manager, "field-manager", "xb-apply", "the name of the fields' manager")
	flags.BoolVar(&o.Force, "force-conflicts", false, "take fields from other managers")
	flags.BoolVar(&o.DryRun, "dry-run", false, "check everything, and change nothing")
	flags.BoolVar(&o.Diff, "diff", false, "print what changes of each object; values of Secrets are hidden")
	flags.BoolVar(&wait, "wait", false, "wait until all is ready, and what was deleted is gone")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.StringVar(&o.Set, "set", "", "name of a Secret that remembers what was applied; what is applied no more is deleted")
	out.Register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := out.Check(); err != nil {
			return err
		}
		if !atomic {
			return errors.New("say --atomic: xb applies all objects or none; to apply them one by one, use kubectl apply --server-side")
		}
		if len(o.Files) == 0 {
			return errors.New("-f is missing: say which files or folders to apply")
		}
		o.In = cmd.InOrStdin()
		config, namespace, err := kube.server()
		if err != nil {
			return err
		}
		to, err := apply.Reach(config, namespace)
		if err != nil {
			return err
		}
		report, err := apply.Apply(cmd.Context(), to, o)
		if err != nil {
			return err
		}
		if err := out.Write(cmd.OutOrStdout(), report); err != nil || !wait || o.DryRun {
			return err
		}
		ctx, stop := context.WithTimeout(cmd.Context(), timeout)
		defer stop()
		return apply.Wait(ctx, to, report, cmd.ErrOrStderr())
	}
	return cmd
}

func newTransactionCommand() *cobra.Command {
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "transaction -f FILE",
		Short: "Carry out a transaction: several requests together, or none",
		Long: `Carry out the Transaction in a file, as YAML or JSON, and print its status as JSON.
If the answer is lost, it is asked for again, provided that the transaction has an
idempotency key, or is given one here because it has none.`,
		Args: cobra.NoArgs,
	}
	kube := newKubeFlags(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with a Transaction, or - for standard input (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return errors.New("-f is missing: say which file holds the transaction")
		}
		t, err := readTransaction(file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		config, _, err := kube.server()
		if err != nil {
			return err
		}
		c, err := client.New(config)
		if err != nil {
			return err
		}
		options := metav1.CreateOptions{}
		if dryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		done, err := c.Send(cmd.Context(), t, options)
		if err != nil {
			return err
		}
		return usage.WriteJSON(cmd.OutOrStdout(), done.Status)
	}
	return cmd
}

// readTransaction reads a file. A field that it does not know is an error.
func readTransaction(file string, in io.Reader) (*v1alpha1.Transaction, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	t := &v1alpha1.Transaction{}
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if want := v1alpha1.GroupVersion().String(); t.APIVersion != want || t.Kind != "Transaction" {
		return nil, fmt.Errorf("%s holds a %s %s; want a %s Transaction", file, t.APIVersion, t.Kind, want)
	}
	return t, nil
}
