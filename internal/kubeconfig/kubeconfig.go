// Package kubeconfig writes the kubeconfigs that xb makes for its user, with mode
// 0600, and reads those that others hand it. It never changes one in part: what was
// in the file is gone.
package kubeconfig

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Access is one way to reach an API server.
type Access struct {
	Name      string // of the context, the cluster and the user in the file
	URL       string // of the server
	CA        []byte // that the server's certificate is of, PEM
	Cert, Key []byte // of the user, PEM
}

// Write writes a kubeconfig with one context, the current one, to file.
func Write(file string, a Access) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[a.Name] = &clientcmdapi.Cluster{Server: a.URL, CertificateAuthorityData: a.CA}
	cfg.AuthInfos[a.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: a.Cert, ClientKeyData: a.Key}
	cfg.Contexts[a.Name] = &clientcmdapi.Context{Cluster: a.Name, AuthInfo: a.Name, Namespace: "default"}
	cfg.CurrentContext = a.Name
	return write(file, cfg)
}

// Merge writes a kubeconfig with the contexts of others to file. Of two that have
// the same name, the later counts.
func Merge(file, current string, others ...string) error {
	merged := clientcmdapi.NewConfig()
	for _, other := range others {
		c, err := clientcmd.LoadFromFile(other)
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		for name, cluster := range c.Clusters {
			merged.Clusters[name] = cluster
		}
		for name, user := range c.AuthInfos {
			merged.AuthInfos[name] = user
		}
		for name, context := range c.Contexts {
			merged.Contexts[name] = context
		}
	}
	merged.CurrentContext = current
	return write(file, merged)
}

func write(file string, cfg *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := privatefile.MkdirAll(filepath.Dir(file)); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := privatefile.Write(file, data); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
