package kubeconfig

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Trust is what a kubeconfig may do.
type Trust bool

const (
	// Full: whoever wrote it runs this process.
	Full Trust = true
	// Inline: it came over an API. It may run no command and read no file here.
	Inline Trust = false
)

// Read reads a kubeconfig's bytes, and returns how to reach what a context names, and the
// context's namespace. Without a name, the context is the current one, or the only one. It
// connects to nothing. Errors are part of a sentence that names the kubeconfig, such as "is no
// kubeconfig", and quote a line of it at most.
func Read(data []byte, context string, t Trust) (config *rest.Config, namespace string, err error) {
	file, err := clientcmd.Load(data)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("is no kubeconfig: %s", oneLine(err))
	case len(file.Clusters) == 0:
		return nil, "", errors.New("is no kubeconfig: it names no cluster")
	}
	if t == Inline {
		if err := refuseOutside(file); err != nil {
			return nil, "", err
		}
	}
	if context == "" {
		context = file.CurrentContext
	}
	if context == "" && len(file.Contexts) == 1 {
		for only := range file.Contexts {
			context = only
		}
	}
	chosen, ok := file.Contexts[context]
	if !ok {
		return nil, "", fmt.Errorf("has no context %q; set current-context", context)
	}
	config, err = clientcmd.NewNonInteractiveClientConfig(*file, context, nil, nil).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("context %q cannot be used: %s", context, oneLine(err))
	}
	return config, chosen.Namespace, nil
}

// Find reads FILE or FILE#CONTEXT, and returns how to reach what it names. "" is the pod's service
// account, or else what kubectl would use. Its errors name the flag --kubeconfig.
func Find(file string) (*rest.Config, error) {
	if file == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return config, nil
		}
	}
	path, context, _ := strings.Cut(file, "#")
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig; give --kubeconfig")
	}
	return config, err
}

// refuseOutside refuses what would make this process run or read something.
func refuseOutside(file *clientcmdapi.Config) error {
	for _, user := range file.AuthInfos {
		switch {
		case user.Exec != nil || user.AuthProvider != nil:
			return errors.New("names a command to run, which a kubeconfig from a Secret may not; put a token or a certificate into it")
		case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
			return errors.New("names a file, which a kubeconfig from a Secret may not; put its content there")
		}
	}
	for _, cluster := range file.Clusters {
		if cluster.CertificateAuthority != "" {
			return errors.New("names a file, which a kubeconfig from a Secret may not; put its content there")
		}
	}
	return nil
}

// oneLine is an error as part of a sentence. Parsers quote what they read, and
// that may be a secret: only the first line goes on, cut short.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const enough = 160
	if len(line) > enough {
		line = strings.ToValidUTF8(line[:enough], "") + "…"
	}
	return line
}
