// Package kubeserver starts a Kubernetes API: xb server, or kube-apiserver on etcd. It never
// puts load on one.
package kubeserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Cluster is a running Kubernetes API.
type Cluster struct {
	Servers []*process.Process
	Config  *rest.Config // of an administrator
}

// Stop ends the servers.
func (c *Cluster) Stop() {
	measure.End(c.Servers...)
}

// A Kind starts a Kubernetes API on a directory, which may hold what an
// earlier one left.
type Kind struct {
	Name  string
	Start func(ctx context.Context, cfg measure.Config, dir string) (*Cluster, error)
}

// The two that are measured.
var (
	XB   = Kind{"xb server, file", StartXB}
	Kube = Kind{"kube-apiserver + etcd", startKube}
)

// StartXB starts xb server on a journal in a file.
func StartXB(ctx context.Context, cfg measure.Config, dir string) (*Cluster, error) {
	return StartXBWith(ctx, cfg, dir, nil)
}

// StartXBWith is StartXB with an environment and further flags.
func StartXBWith(ctx context.Context, cfg measure.Config, dir string, env []string, flags ...string) (*Cluster, error) {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.RemoveAll(kubeconfig); err != nil {
		return nil, err
	}
	s, err := measure.Launch(dir, "xb", env, append([]string{cfg.XB, "server", "--data-dir", filepath.Join(dir, "data"), "--kubeconfig", kubeconfig,
		"--listen", network.FreeAddr("127.0.0.1")}, flags...)...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Servers: []*process.Process{s}}
	err = measure.WaitFor(ctx, "xb server", func(context.Context) (err error) {
		c.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		return err
	})
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		c.Stop()
	}
	return c, err
}

// startKube starts kube-apiserver on etcd.
func startKube(ctx context.Context, cfg measure.Config, dir string) (*Cluster, error) {
	return StartKubeWith(ctx, cfg, dir)
}

// StartKubeWith is startKube with further flags of kube-apiserver.
func StartKubeWith(ctx context.Context, cfg measure.Config, dir string, flags ...string) (*Cluster, error) {
	st, err := store.Etcd.Start(cfg, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	c := &Cluster{Servers: st.Servers}
	cert, key, err := WriteCerts(dir)
	if err != nil {
		c.Stop()
		return nil, err
	}
	address := network.FreeAddr("127.0.0.1")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		c.Stop()
		return nil, err
	}
	s, err := measure.Launch(dir, "kube-apiserver", nil, append([]string{filepath.Join(cfg.Bin, "kube-apiserver"),
		"--etcd-servers", st.Endpoint, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", filepath.Join(dir, "certs"), "--client-ca-file", cert, "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.0.0.0/16"}, flags...)...)
	if err == nil {
		c.Servers = append(c.Servers, s)
		c.Config = &rest.Config{
			Host:            "https://" + address,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: cert, KeyFile: key},
		}
		err = c.ready(ctx)
	}
	if err != nil {
		c.Stop()
	}
	return c, err
}

// WriteCerts writes a self-signed administrator's certificate, which is its
// own CA, and its key.
func WriteCerts(dir string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, "admin.crt"), filepath.Join(dir, "admin.key")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &priv.PublicKey, priv)
	if err != nil {
		return "", "", err
	}
	keyDER, err := x509.MarshalECPrivateKey(priv)
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600)
}

// Client is a client without a limit of its own.
func (c *Cluster) Client() (*kubernetes.Clientset, error) {
	cfg := rest.CopyConfig(c.Config)
	cfg.QPS = -1
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(cfg)
}

func (c *Cluster) ready(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return measure.WaitFor(ctx, "the Kubernetes API", func(ctx context.Context) error {
		var status int
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Error()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("readyz: %d", status)
		}
		if err == nil {
			_, err = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		}
		return err
	})
}
