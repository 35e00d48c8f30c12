package main

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// kubeCluster is a running Kubernetes API.
type kubeCluster struct {
	servers []*process.Process
	config  *rest.Config
}

func (c *kubeCluster) stop() {
	end(c.servers...)
}

// A clusterKind starts a Kubernetes API on a directory, which may hold what an
// earlier one left.
type clusterKind struct {
	name  string
	start func(ctx context.Context, cfg config, dir string) (*kubeCluster, error)
}

var (
	xbServer      = clusterKind{"xb server, file", startXB}
	kubeAPIServer = clusterKind{"kube-apiserver + etcd", startKube}
)

func startXB(ctx context.Context, cfg config, dir string) (*kubeCluster, error) {
	return startXBWith(ctx, cfg, dir, nil)
}

// startXBWith is startXB with an environment and further flags.
func startXBWith(ctx context.Context, cfg config, dir string, env []string, flags ...string) (*kubeCluster, error) {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.RemoveAll(kubeconfig); err != nil {
		return nil, err
	}
	s, err := launch(dir, "xb", env, append([]string{cfg.xb, "server", "--data-dir", filepath.Join(dir, "data"), "--kubeconfig", kubeconfig,
		"--listen", network.FreeAddr("127.0.0.1")}, flags...)...)
	if err != nil {
		return nil, err
	}
	c := &kubeCluster{servers: []*process.Process{s}}
	err = waitFor(ctx, "xb server", func(context.Context) (err error) {
		c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		return err
	})
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		c.stop()
	}
	return c, err
}

func startKube(ctx context.Context, cfg config, dir string) (*kubeCluster, error) {
	return startKubeWith(ctx, cfg, dir)
}

// startKubeWith is startKube with further flags of kube-apiserver.
func startKubeWith(ctx context.Context, cfg config, dir string, flags ...string) (*kubeCluster, error) {
	st, err := etcd.start(cfg, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	c := &kubeCluster{servers: st.servers}
	cert, key, err := writeCerts(dir)
	if err != nil {
		c.stop()
		return nil, err
	}
	address := network.FreeAddr("127.0.0.1")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		c.stop()
		return nil, err
	}
	s, err := launch(dir, "kube-apiserver", nil, append([]string{filepath.Join(cfg.bin, "kube-apiserver"),
		"--etcd-servers", st.endpoint, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", filepath.Join(dir, "certs"), "--client-ca-file", cert, "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.0.0.0/16"}, flags...)...)
	if err == nil {
		c.servers = append(c.servers, s)
		c.config = &rest.Config{
			Host:            "https://" + address,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: cert, KeyFile: key},
		}
		err = c.ready(ctx)
	}
	if err != nil {
		c.stop()
	}
	return c, err
}

// writeCerts writes a self-signed administrator's certificate, which is its
// own CA, and its key.
func writeCerts(dir string) (cert, key string, err error) {
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

// client is a client without a limit of its own.
func (c *kubeCluster) client() (*kubernetes.Clientset, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.QPS = -1
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(cfg)
}

func (c *kubeCluster) ready(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return waitFor(ctx, "the Kubernetes API", func(ctx context.Context) error {
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

// kubeLoad is one workload on the Kubernetes API, with objects of one size.
type kubeLoad struct {
	name  string
	total int
	op    func(ctx context.Context, c kubernetes.Interface, name, payload string, i int) error
}

func object(name, payload string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"payload": payload}}
}

var kubeLoads = []kubeLoad{
	{"create", 2000, func(ctx context.Context, c kubernetes.Interface, name, payload string, _ int) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, object(name, payload), metav1.CreateOptions{})
		return err
	}},
	{"get", 4000, func(ctx context.Context, c kubernetes.Interface, name, _ string, _ int) error {
		_, err := c.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		return err
	}},
	{"patch", 2000, func(ctx context.Context, c kubernetes.Interface, name, _ string, i int) error {
		patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		_, err := c.CoreV1().ConfigMaps("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}},
	{"server-side apply", 2000, func(ctx context.Context, c kubernetes.Interface, name, payload string, i int) error {
		obj := corev1ac.ConfigMap(name, "default").WithData(map[string]string{"payload": payload, "applied": fmt.Sprint(i)})
		_, err := c.CoreV1().ConfigMaps("default").Apply(ctx, obj, metav1.ApplyOptions{FieldManager: "bench", Force: true})
		return err
	}},
}

// kubeAPI measures the Kubernetes API against kube-apiserver on etcd, on the
// same disk: objects of 1 and 10 KiB.
func kubeAPI(ctx context.Context, cfg config) ([]comparison, error) {
	kinds := []clusterKind{xbServer, kubeAPIServer}
	sizes := []int{1 << 10, 10 << 10}
	var rows []*comparison
	for _, size := range sizes {
		for _, l := range kubeLoads {
			rows = append(rows, newComparison(fmt.Sprintf("%s, %d KiB", l.name, size>>10), kinds[0].name, kinds[1].name))
		}
	}
	rows = append(rows, newComparison("list all by pages of 500", kinds[0].name, kinds[1].name))
	for round := range cfg.rounds {
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, "kube-api: round %d, %s\n", round+1, k.name)
			if err := kubeRound(ctx, cfg, k, sizes, rows); err != nil {
				return values(rows), fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	return values(rows), nil
}

// warmUp lets a server end what it does once after its start, caches and
// controllers' first lists, and makes it create some objects.
func warmUp(ctx context.Context, client kubernetes.Interface) error {
	if err := wait.For(ctx, 5*time.Second); err != nil {
		return err
	}
	for i := range 200 {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("warm-%d", i), ""), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

func kubeRound(ctx context.Context, cfg config, k clusterKind, sizes []int, rows []*comparison) error {
	dir := filepath.Join(cfg.dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	c, err := k.start(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	clients := make([]kubernetes.Interface, cfg.clients)
	for i := range clients {
		if clients[i], err = c.client(); err != nil {
			return err
		}
	}
	if err := warmUp(ctx, clients[0]); err != nil {
		return err
	}
	row := 0
	for _, size := range sizes {
		payload := string(randomBytes(size))
		for _, l := range kubeLoads {
			total := max(1, int(float64(l.total)*cfg.scale))
			m, err := drive(ctx, c.servers, cfg.clients, total, func(ctx context.Context, client, i int) error {
				return l.op(ctx, clients[client], fmt.Sprintf("c-%d-%d", size, i%int(2000*cfg.scale)), payload, i)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			rows[row].add(k.name, m)
			row++
		}
	}
	m, err := drive(ctx, c.servers, 1, 5, func(ctx context.Context, client, _ int) error {
		opts := metav1.ListOptions{Limit: 500}
		for {
			list, err := clients[client].CoreV1().ConfigMaps("default").List(ctx, opts)
			if err != nil || list.Continue == "" {
				return err
			}
			opts.Continue = list.Continue
		}
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	rows[row].add(k.name, m)
	return nil
}
