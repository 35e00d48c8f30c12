package gatewaycmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// validateFlags are those of xb gateway validate.
type validateFlags struct {
	kubeconfig, context string
	caFile, serverName  string
	tokenFile           string
	certFile, keyFile   string
	output              usage.Output
	objectFile          string
	timeout             time.Duration
	conformance.Options
}

func newValidate(logs *usage.Log) *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate [URL]",
		Short: "Check that an API server follows the Kubernetes API conventions",
		Long: `Check that an API server follows the Kubernetes API conventions: discovery,
kinds and lists, resourceVersions, watches, errors, tables, pages, OpenAPI.

The server is only read from, unless --write is given: then objects are made,
changed and removed again in the namespace, with names that begin with
xb-conformance- and the label conformance.xbernetes.io/run. They are ConfigMaps,
or like the object in the file --object; of other kinds nothing is created,
except by dry run where the server says that it has dry runs.

Exit status: 0 if the server follows what was checked, 1 if not, or if it could
not be checked.`,
		Example: `  xb gateway validate --kubeconfig ~/.kube/config
  xb gateway validate https://flunders.example.com:8443 --ca-file ca.crt --token-file token
  xb gateway validate --kubeconfig server.kubeconfig --write -n trial --object flunder.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := logs.Logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if err := f.output.Check(); err != nil {
				return err
			}
			config, err := f.config(args)
			if err != nil {
				return err
			}
			if f.Object, err = readObject(f.objectFile); err != nil {
				return err
			}
			return f.validate(cmd, config)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *validateFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file that says where the server is and who you are, instead of URL")
	fs.StringVar(&f.context, "context", "", "context of the kubeconfig (default the current one)")
	fs.StringVar(&f.caFile, "ca-file", "", "certificate authority of the server at URL, PEM")
	fs.StringVar(&f.serverName, "tls-server-name", "", "name in the certificate of the server at URL, if it is not the URL's")
	fs.StringVar(&f.tokenFile, "token-file", "", "file with a bearer token for the server at URL")
	fs.StringVar(&f.certFile, "client-certificate", "", "client certificate for the server at URL, PEM")
	fs.StringVar(&f.keyFile, "client-key", "", "key of the client certificate, PEM")
	fs.BoolVar(&f.Write, "write", false, "make, change and remove objects in the namespace")
	fs.StringVarP(&f.Namespace, "namespace", "n", "", "namespace to write in; it must exist")
	fs.StringVar(&f.objectFile, "object", "", "file with an object, YAML or JSON, the like of which may be created; its name does not matter")
	fs.IntVar(&f.Resources, "resources", 10, "how many resources to look at closely; all are looked at in discovery and OpenAPI")
	fs.StringVar(&f.OpenAPIPath, "openapi-path", "/openapi/v2", "where the server serves OpenAPI v2")
	fs.DurationVar(&f.RequestTimeout, "request-timeout", 15*time.Second, "how long to wait for one answer")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to check")
	f.output.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("kubeconfig", "ca-file")
}

// config is the way to the server: by URL, or by kubeconfig.
func (f *validateFlags) config(args []string) (*rest.Config, error) {
	switch {
	case len(args) == 1 && f.kubeconfig != "":
		return nil, errors.New("both a URL and --kubeconfig are given; give one of them")
	case len(args) == 1 && !strings.HasPrefix(args[0], "https://") && !strings.HasPrefix(args[0], "http://"):
		return nil, fmt.Errorf("%q is no URL of a server; give it with https://", args[0])
	case len(args) == 1:
		return &rest.Config{
			Host:            args[0],
			BearerTokenFile: f.tokenFile,
			TLSClientConfig: rest.TLSClientConfig{CAFile: f.caFile, ServerName: f.serverName, CertFile: f.certFile, KeyFile: f.keyFile},
		}, nil
	case f.kubeconfig == "":
		return nil, errors.New("which server? give its URL, or --kubeconfig")
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", f.kubeconfig, err)
	}
	return config, nil
}

func readObject(file string) (*unstructured.Unstructured, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the object to create: %w", err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &o.Object); err != nil {
		return nil, fmt.Errorf("read the object to create, %s: %w", file, err)
	}
	return o, nil
}

func (f *validateFlags) validate(cmd *cobra.Command, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	report, err := conformance.Run(ctx, config, f.Options)
	if report != nil {
		if err := f.output.Write(cmd.OutOrStdout(), report); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case !report.Conformant():
		return usage.Exit(1)
	}
	return nil
}
