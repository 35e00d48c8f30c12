package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/xbernetes/xbernetes/test/lab/network"
)

// routed is a router, in a namespace, with a cable to this machine, where the
// API servers are, and one to each node. Cluster n has the pods
// 10.213.<100+n>.0/24 and its node the address 10.213.<n>.2; all reach all.
type routed struct {
	router *network.Namespace
	host   string // this machine's address on its cable
}

// octet is the second of all addresses of a lab. Two labs on one machine need
// two: LAB_OCTET.
var octet = cmp.Or(os.Getenv("LAB_OCTET"), "213")

// PodRanges are the addresses of all pods of all clusters of a lab.
var PodRanges = "10." + octet + ".0.0/16"

// CanHaveNodes is nil if this machine can have nodes, and says otherwise what is
// missing.
func CanHaveNodes() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("the program nft (Debian's nftables) is not installed")
	}
	return network.Possible()
}

// startNetwork makes the router and its cable to this machine, once.
func (l *Lab) startNetwork() error {
	if l.network != nil {
		return nil
	}
	router, err := l.newNamespace("router")
	if err != nil {
		return err
	}
	if err := router.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return fmt.Errorf("let the router forward: %w", err)
	}
	cable := network.HostCable()
	l.network = &routed{router: router, host: "10." + octet + ".255.1"}
	if err := (*network.Namespace)(nil).Do(
		"link add "+cable+" type veth peer name host netns "+router.Name,
		"address add "+l.network.host+"/30 dev "+cable,
		"link set "+cable+" up",
	); err != nil {
		return err
	}
	if err := router.Do("address add 10."+octet+".255.2/30 dev host", "link set host up"); err != nil {
		return err
	}
	return (*network.Namespace)(nil).Do("route replace " + PodRanges + " via 10." + octet + ".255.2 dev " + cable)
}

// newNode makes a namespace for the only node of cluster n, with a cable to
// the router.
func (l *Lab) newNode(n int, name string) (*network.Namespace, error) {
	node, err := l.newNamespace(name)
	if err != nil {
		return nil, err
	}
	router := l.network.router
	gateway, cable := fmt.Sprintf("10."+octet+".%d.1", n), "node"+fmt.Sprint(n)
	if err := node.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return nil, fmt.Errorf("let node %s forward: %w", name, err)
	}
	// Whoever calls a Service without endpoints is refused each time: refusals are
	// limited to a few a second else, and a connection that gets none tries again
	// after a second.
	if err := node.Sysctl("net/ipv4/icmp_ratelimit", "0"); err != nil {
		return nil, fmt.Errorf("let node %s refuse: %w", name, err)
	}
	if err := node.Do("link add eth0 type veth peer name " + cable + " netns " + router.Name); err != nil {
		return nil, err
	}
	if err := router.Do("address add "+gateway+"/30 dev "+cable, "link set "+cable+" up"); err != nil {
		return nil, err
	}
	if err := node.Do("address add "+nodeIP(n)+"/30 dev eth0", "link set eth0 up", "route add default via "+gateway); err != nil {
		return nil, err
	}
	return node, router.Do("route add " + podRange(n) + " via " + nodeIP(n))
}

// newPod makes a namespace with the k-th pair of addresses of cluster n, and
// returns the pod's.
func (l *Lab) newPod(node *network.Namespace, n, k int, name string) (*network.Namespace, string, error) {
	if k > 126 {
		return nil, "", fmt.Errorf("cluster %d has had 126 pods, which are all its addresses", n)
	}
	pod, err := l.newNamespace(name)
	if err != nil {
		return nil, "", err
	}
	base := strings.TrimSuffix(podRange(n), "0/24")
	gateway, ip, cable := fmt.Sprint(base, 2*k), fmt.Sprint(base, 2*k+1), fmt.Sprint("pod", k)
	if err := pod.Do("link add eth0 type veth peer name " + cable + " netns " + node.Name); err != nil {
		return nil, "", err
	}
	if err := node.Do("address add "+gateway+"/31 dev "+cable, "link set "+cable+" up"); err != nil {
		return nil, "", err
	}
	return pod, ip, pod.Do("address add "+ip+"/31 dev eth0", "link set eth0 up", "route add default via "+gateway)
}

func nodeIP(n int) string       { return fmt.Sprintf("10."+octet+".%d.2", n) }
func podRange(n int) string     { return fmt.Sprintf("10."+octet+".%d.0/24", 100+n) }
func serviceRange(n int) string { return fmt.Sprintf("10.%d.0.0/16", 20+n) }
func dnsIP(n int) string        { return fmt.Sprintf("10.%d.0.10", 20+n) }
