package policy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// TestLiveKubernetes is TestLive with a stock kube-apiserver, etcd and
// kube-controller-manager as the core server, as a hosted cluster has them.
func TestLiveKubernetes(t *testing.T) {
	if os.Getenv("XB_BIN") == "" || os.Getenv("KUBE_BIN") == "" {
		t.Skip("XB_BIN names no xb binary, or KUBE_BIN no folder with etcd, kube-apiserver and kube-controller-manager")
	}
	l := newLiveOver(t, startKubernetes(t))
	t.Run("namespace and user", l.testChecks)
	t.Run("quota", l.testQuota)
	t.Run("limit ranges", l.testLimitRanges)
	t.Run("nothing held", l.testRelease)
	t.Run("namespace goes", l.testEmptying)
}

func (l *live) testLimitRanges(t *testing.T) {
	l.namespace(t, "limits", -1)
	r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: liveGroup + "/Gadget",
		Max:  corev1.ResourceList{"storage": resource.MustParse("1Gi")},
	}}}}
	if _, err := l.client.CoreV1().LimitRanges("limits").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[string]bool{"1Gi": true, "2Gi": false} {
		g := gadget("size-" + string(size[0]))
		g.Object["spec"] = map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}}
		_, err := l.gateways[0].gadgets("ann", "limits").Create(t.Context(), g, metav1.CreateOptions{})
		if (err == nil) != want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", size, err)
		}
	}
}

// startKubernetes starts the parts of a stock cluster that keep its API.
func startKubernetes(t *testing.T) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	etcd, peer, port := freeAddress(t), freeAddress(t), freeAddress(t)
	run(t, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+etcd, "--advertise-client-urls", "http://"+etcd,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	key := serviceAccountKey(t, dir)
	const token = "only-for-this-test"
	write(t, filepath.Join(dir, "tokens.csv"), token+",admin,admin,system:masters\n")
	host, number, err := net.SplitHostPort(port)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "kube-apiserver", "--etcd-servers", "http://"+etcd, "--bind-address", host, "--secure-port", number,
		"--cert-dir", filepath.Join(dir, "certs"), "--token-auth-file", filepath.Join(dir, "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none")
	config := &rest.Config{Host: "https://" + port, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	eventually(t, 3*time.Minute, "kube-apiserver starts", func() error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	kubeconfig.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	kubeconfig.CurrentContext = "c"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	run(t, "kube-controller-manager", "--kubeconfig", file, "--leader-elect=false", "--secure-port=0",
		"--controllers", "namespace-controller,resourcequota-controller,root-ca-certificate-publisher-controller",
		"--root-ca-file", filepath.Join(dir, "certs", "apiserver.crt"))
	return config
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(os.Getenv("KUBE_BIN"), name), args...)
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, tail(log.Bytes()))
		}
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func serviceAccountKey(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sa.key")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	return file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testCrash has a gateway die with a create under way that never arrived: its
// place comes back by itself.
func (l *live) testCrash(t *testing.T) {
	l.namespace(t, "crash", 1)
	server, _ := liveServers{}.For(liveGroup)
	a := quota.Request{
		Namespace: "crash", Server: server.Name, Guard: server.Guard,
		Resource: "gadgets." + liveGroup, Version: "v1", By: "dead", Timeout: 2 * time.Second,
	}
	g := l.gateway(t)
	if _, err := g.guard.reserver.Reserve(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	g.stop()
	c := l.gateways[1].gadgets("ann", "crash")
	if _, err := c.Create(t.Context(), gadget("a"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create while another may land: %v", err)
	}
	eventually(t, time.Minute, "the place of the dead gateway's create comes back", func() error {
		_, err := c.Create(t.Context(), gadget("a"), metav1.CreateOptions{})
		return err
	})
	l.usedBecomes(t, "crash", 1)
	eventually(t, time.Minute, "no create is pending", func() error {
		ns, err := l.client.CoreV1().Namespaces().Get(t.Context(), "crash", metav1.GetOptions{})
		if err != nil {
			return err
		}
		found, _, err := l.gateways[0].guard.reserver.Ledgers.At(ledger.Key{Namespace: "crash", UID: string(ns.UID)}).Read(t.Context())
		if err == nil && len(found.Pending) > 0 {
			err = fmt.Errorf("%d are", len(found.Pending))
		}
		return err
	})
	if n := l.there(t, "crash"); n != 1 {
		t.Errorf("%d are there", n)
	}
}
