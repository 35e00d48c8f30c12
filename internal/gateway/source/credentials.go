package source

import (
	"bytes"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Credentials are the gateway's own credentials for one server, as they were read.
type Credentials struct {
	CertPEM, KeyPEM []byte
	Token           string
}

// Equal says whether two are the same.
func (c Credentials) Equal(d Credentials) bool {
	return bytes.Equal(c.CertPEM, d.CertPEM) && bytes.Equal(c.KeyPEM, d.KeyPEM) && c.Token == d.Token
}

// Credentials reads the gateway's own credentials for a server from the files that the
// server's spec names.
func (f *File) Credentials(s *v1alpha1.RemoteAPIServer) (Credentials, error) {
	if err := Check(s, true); err != nil {
		return Credentials{}, err
	}
	c := s.Spec.Identity.Credentials
	if c == nil {
		return Credentials{}, nil
	}
	if c.Kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		if err != nil {
			return Credentials{}, fmt.Errorf("read credentials from kubeconfig %s: %w", c.Kubeconfig, err)
		}
		return FromConfig(cfg)
	}
	var out Credentials
	for _, f := range []struct {
		path string
		into *[]byte
	}{{c.ClientCertificateFile, &out.CertPEM}, {c.ClientKeyFile, &out.KeyPEM}} {
		if f.path == "" {
			continue
		}
		var err error
		if *f.into, err = os.ReadFile(f.path); err != nil {
			return Credentials{}, fmt.Errorf("read credentials: %w", err)
		}
	}
	if c.TokenFile != "" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return Credentials{}, fmt.Errorf("read credentials: %w", err)
		}
		out.Token = string(token)
	}
	return out, nil
}

// fromSecret reads the credentials in a Secret.
func fromSecret(secret *corev1.Secret) (Credentials, error) {
	if kubeconfig := secret.Data["kubeconfig"]; len(kubeconfig) > 0 {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return Credentials{}, fmt.Errorf("read credentials from Secret %q: %w", secret.Name, err)
		}
		if cfg.CertFile != "" || cfg.KeyFile != "" || cfg.CAFile != "" || cfg.BearerTokenFile != "" {
			return Credentials{}, fmt.Errorf("read credentials from Secret %q: its kubeconfig names files, which the gateway does not read for a Secret; put their contents into the kubeconfig", secret.Name)
		}
		return FromConfig(cfg)
	}
	c := Credentials{CertPEM: secret.Data[corev1.TLSCertKey], KeyPEM: secret.Data[corev1.TLSPrivateKeyKey], Token: string(secret.Data[corev1.ServiceAccountTokenKey])}
	if len(c.CertPEM) == 0 && c.Token == "" {
		return Credentials{}, fmt.Errorf("read credentials from Secret %q: it has none of the keys kubeconfig, tls.crt and tls.key, token", secret.Name)
	}
	return c, nil
}

// FromConfig returns the credentials of a client's configuration, and ignores the rest.
func FromConfig(cfg *rest.Config) (Credentials, error) {
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.Username != "" {
		return Credentials{}, fmt.Errorf("read credentials from kubeconfig: its user has exec, auth-provider or a password; the gateway takes a client certificate or a token")
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return Credentials{}, fmt.Errorf("read credentials from kubeconfig: %w", err)
	}
	token := cfg.BearerToken
	if cfg.BearerTokenFile != "" {
		b, err := os.ReadFile(cfg.BearerTokenFile)
		if err != nil {
			return Credentials{}, fmt.Errorf("read credentials from kubeconfig: %w", err)
		}
		token = string(b)
	}
	return Credentials{CertPEM: cfg.CertData, KeyPEM: cfg.KeyData, Token: token}, nil
}
