package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/xbernetes/xbernetes/test/lab/program"
)

func (c *Cluster) nodeName() string { return c.Name + "-node" }

// AddNode gives the cluster its node: kube-proxy in nftables mode, and two
// CoreDNS behind the Service kube-dns. The CRDs of ServiceImport must be there.
func (c *Cluster) AddNode(ctx context.Context) (err error) {
	if c.Node, err = c.lab.newNode(c.number, c.Name); err != nil {
		return fmt.Errorf("connect node of %s: %w", c.Name, err)
	}
	if err := c.startProxy(ctx); err != nil {
		return err
	}
	if err := c.createDNSService(ctx); err != nil {
		return err
	}
	for range 2 {
		p, err := c.addDNS(ctx)
		if err != nil {
			return err
		}
		c.dns = append(c.dns, p)
	}
	return nil
}

// RestartDNS replaces each CoreDNS by a new one, which is up before the old
// one drains.
func (c *Cluster) RestartDNS(ctx context.Context) error {
	for i, old := range c.dns {
		p, err := c.addDNS(ctx)
		if err != nil {
			return err
		}
		if err := old.Remove(ctx, old.Drain); err != nil {
			return err
		}
		c.dns[i] = p
	}
	return nil
}

// createNode writes the Node that all pods of the cluster are on. It must stay:
// kube-proxy ends without it.
func (c *Cluster) createNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.nodeName(), Labels: map[string]string{
		corev1.LabelHostname: c.nodeName(), corev1.LabelTopologyZone: c.Name + "-zone",
	}}}
	node, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create node of %s: %w", c.Name, err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP(c.number)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := c.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of node of %s: %w", c.Name, err)
	}
	return nil
}

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
detectLocalMode: ClusterCIDR
clusterCIDR: %s
nodePortAddresses: [primary]
nftables: {minSyncPeriod: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func (c *Cluster) startProxy(ctx context.Context) error {
	binary, err := program.Path(ctx, "kube-proxy")
	if err != nil {
		return err
	}
	config := c.path("kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, c.nodeName(), c.Kubeconfig(), podRange(c.number), cmp.Or(c.ProxyPeriod, 10*time.Millisecond)), 0o600); err != nil {
		return err
	}
	c.proxy, err = c.lab.Start(c.Node, c.Name+"-kube-proxy", nil, binary, "--config="+config)
	if err != nil {
		return err
	}
	inside := http.Client{Transport: &http.Transport{DialContext: c.Node.DialContext, DisableKeepAlives: true}}
	return c.proxy.Await(ctx, "kube-proxy of "+c.Name+" is healthy", func(ctx context.Context) error {
		return answersTo(ctx, &inside, "http://127.0.0.1:10256/healthz")
	})
}

// SendsTo says whether kube-proxy of the cluster sends calls to the pod.
func (c *Cluster) SendsTo(ctx context.Context, p *Pod) (bool, error) {
	rules, err := c.Node.Command(ctx, "nft", "list", "table", "ip", "kube-proxy").CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("list the rules of kube-proxy of %s: %w: %s", c.Name, err, rules)
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(p.IP) + `\b`).Match(rules), nil
}

// RestartProxy kills kube-proxy, whose rules stay, and starts it again.
func (c *Cluster) RestartProxy(ctx context.Context) error {
	c.proxy.Kill()
	return c.startProxy(ctx)
}

func (c *Cluster) createDNSService(ctx context.Context) error {
	_, err := c.Client.CoreV1().Services("kube-system").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns"},
		Spec: corev1.ServiceSpec{
			ClusterIP: dnsIP(c.number),
			Selector:  map[string]string{"k8s-app": "kube-dns"},
			Ports:     []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(53)}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Service kube-dns of %s: %w", c.Name, err)
	}
	return nil
}

const corefile = `.:53 {
    errors
    ready
    kubernetes cluster.local clusterset.local in-addr.arpa {
        kubeconfig %s
        multicluster clusterset.local
        ttl 0
    }
}
`

// addDNS starts a CoreDNS as a pod.
func (c *Cluster) addDNS(ctx context.Context) (*Pod, error) {
	name := fmt.Sprint("coredns-", c.pods)
	binary, err := program.Path(ctx, "coredns")
	if err != nil {
		return nil, err
	}
	p, err := c.newPod("kube-system", name)
	if err != nil {
		return nil, err
	}
	config := c.path("Corefile")
	if err := os.WriteFile(config, fmt.Appendf(nil, corefile, c.Kubeconfig()), 0o600); err != nil {
		return nil, err
	}
	dns, err := c.lab.Start(p.net, c.Name+"-"+name, nil, binary, "-conf", config)
	if err != nil {
		return nil, err
	}
	p.die = dns.Kill
	inside := http.Client{Transport: &http.Transport{DialContext: p.net.DialContext, DisableKeepAlives: true}}
	resolver := p.resolver("127.0.0.1:53")
	if err := dns.Await(ctx, name+" of "+c.Name+" is ready", func(ctx context.Context) error {
		if err := answersTo(ctx, &inside, "http://127.0.0.1:8181/ready"); err != nil {
			return err
		}
		// It says that it is ready a moment before it listens.
		_, err := resolver.LookupNetIP(ctx, "ip4", "kubernetes.default.svc.cluster.local.")
		return err
	}); err != nil {
		return nil, err
	}
	return p, p.create(ctx, map[string]string{"k8s-app": "kube-dns"})
}
