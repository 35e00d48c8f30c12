package controlplane

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// writeKubeconfig replaces file by a kubeconfig with one context.
func writeKubeconfig(file, name, url string, ca, cert, key []byte) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	cfg.CurrentContext = name
	b, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := privatefile.MkdirAll(filepath.Dir(file)); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := privatefile.Write(file, b); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
