package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/test/lab/apiserver"
	"github.com/xbernetes/xbernetes/test/lab/certificate"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// A Cluster is an API server and the controllers that a test asks for. It has
// no kubelet and no scheduler: pods are what AddPod writes.
type Cluster struct {
	Name   string
	Config *rest.Config // the administrator's
	Client kubernetes.Interface
	Node   *network.Namespace // nil without a data path

	// ProxyPeriod is kube-proxy's minSyncPeriod; 0 is 10 ms. It runs nft each time.
	ProxyPeriod time.Duration

	lab         *Lab
	number      int // from 1; addresses follow from it
	dir         string
	apiserver   *process.Process
	controllers *process.Process
	proxy       *process.Process
	dns         []*Pod
	pods        int // how many addresses were given out
}

// Controllers of kube-controller-manager: those that make slices, that which
// empties a namespace, and those that others' suites have make their pods.
const controllers = "endpointslice-controller,endpointslice-mirroring-controller,endpoints-controller," +
	"namespace-controller,deployment-controller,replicaset-controller"

const adminToken = "lab-admin"

// GuestToken is of the user guest, who has no rights but those that a test gives.
const GuestToken = "lab-guest"

// Kubeconfig is a file that lets its holder in as administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// StartCluster starts cluster number n (1 to 99) and waits until it answers.
// withNetwork puts its API server where nodes reach it.
func (l *Lab) StartCluster(ctx context.Context, n int, name string, withNetwork bool) (*Cluster, error) {
	c := &Cluster{Name: name, lab: l, number: n, dir: filepath.Join(l.Dir, name)}
	host := "127.0.0.1"
	if withNetwork {
		if err := l.startNetwork(); err != nil {
			return nil, fmt.Errorf("start network: %w", err)
		}
		host = l.network.host
	}
	l.clusters = append(l.clusters, c)
	if err := c.prepare(host); err != nil {
		return nil, fmt.Errorf("prepare cluster %s: %w", name, err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, err
	}
	if err := c.createNode(ctx); err != nil || l.NoControllers {
		return c, err
	}
	return c, c.StartControllers(ctx)
}

// prepare writes keys and configuration.
func (c *Cluster) prepare(host string) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if err := certificate.WriteNewKey(c.path("signer.key")); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(adminToken+`,admin,admin,"system:masters"`+"\n"+GuestToken+",guest,guest\n"), 0o600); err != nil {
		return err
	}
	c.Config = &rest.Config{
		Host: "https://" + network.FreeAddr(host), BearerToken: adminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile()},
	}
	return c.WriteKubeconfig(c.Kubeconfig(), c.Config.Host, adminToken)
}

// CAFile is the certificate that the API server makes itself.
func (c *Cluster) CAFile() string { return filepath.Join(c.dir, "certs", "apiserver.crt") }

// WriteKubeconfig writes a kubeconfig for the cluster behind a URL.
func (c *Cluster) WriteKubeconfig(path, server, token string) error {
	return c.WriteKubeconfigAs(path, "user", server, token)
}

// WriteKubeconfigAs is WriteKubeconfig with the name of the user's entry, which
// must differ in files that are merged.
func (c *Cluster) WriteKubeconfigAs(path, user, server, token string) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[c.Name] = &clientcmdapi.Cluster{Server: server}
	if strings.HasPrefix(server, "https:") {
		cfg.Clusters[c.Name].CertificateAuthority = c.CAFile()
	}
	cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: user}
	cfg.CurrentContext = c.Name
	return clientcmd.WriteToFile(*cfg, path)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// StartAPIServer starts the API server where it was before.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	binary, err := program.Path(ctx, "kube-apiserver")
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(c.Config.Host[len("https://"):])
	if err != nil {
		return err
	}
	flags := apiserver.Config{
		Etcd: c.lab.etcd, Host: host, Port: port, CertDir: c.path("certs"), Tokens: c.path("tokens.csv"), Signer: c.path("signer.key"),
		Services: serviceRange(c.number) + fmt.Sprintf(",fd00:214:%d::/112", c.number),
	}.Flags("--etcd-prefix=/" + c.Name)
	c.apiserver, err = c.lab.Start(nil, c.Name+"-apiserver", c.lab.APIServerEnv, append([]string{binary}, flags...)...)
	if err != nil {
		return err
	}
	return c.apiserver.Await(ctx, c.Name+" answers", func(ctx context.Context) error {
		if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
			return err // it has no certificate yet
		}
		if _, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		_, err := c.Client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// StartControllers starts kube-controller-manager with the few controllers
// that make EndpointSlices.
func (c *Cluster) StartControllers(ctx context.Context) error {
	binary, err := program.Path(ctx, "kube-controller-manager")
	if err != nil {
		return err
	}
	c.controllers, err = c.lab.Start(nil, c.Name+"-controllers", nil, binary,
		"--kubeconfig="+c.Kubeconfig(), "--controllers="+controllers, "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=false", "--kube-api-qps=1000", "--kube-api-burst=1000",
		"--concurrent-service-endpoint-syncs=10", "--concurrent-namespace-syncs=10")
	return err
}

// RestartAPIServer kills the API server, which would wait a minute for watches
// to end, and starts it again.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.StopAPIServer()
	return c.StartAPIServer(ctx)
}

// StopAPIServer kills the API server.
func (c *Cluster) StopAPIServer() { c.apiserver.Kill() }

// RestartControllers kills the controllers and starts them again.
func (c *Cluster) RestartControllers(ctx context.Context) error {
	c.controllers.Kill()
	return c.StartControllers(ctx)
}
