package model

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Trust is what a peer may do in this cluster. With the zero value, a peer may
// publish Services of every shared namespace and endpoints of any address that is
// not this cluster's own. Its Services are then used here, as plain ones, and it
// changes nothing of what was created here.
type Trust struct {
	// Namespaces are those whose Services the peer may publish; empty: all that
	// are shared.
	Namespaces []string
	// Ranges hold the addresses that its endpoints may have; empty: all but
	// Config.Reserved.
	Ranges []netip.Prefix
	// Claim lets the peer's annotations move Services that serve here and whose own
	// annotation says nothing of it: they yield to a peer that asks to be the
	// source, and join its union. It also lets the peer's endpoints in beside those
	// of the cluster that a replica follows.
	Claim bool
	// Selector lets replicas here adopt the selector of the peer's Service, and so
	// select pods of this cluster, when the peer hands over to this cluster or asks
	// for a union. The annotation of a replica allows the same for that replica.
	Selector bool
	// Types are the types, beside ClusterIP, that replicas of the peer's Services
	// may have. A replica of another type is a ClusterIP Service, and there is none
	// of an ExternalName.
	Types []corev1.ServiceType
}

// Trusts is what each peer may do. What is said of Everybody holds beside what
// is said of a peer by name, except that a peer's own Namespaces and Ranges
// replace those of Everybody.
type Trusts map[ClusterID]Trust

// Everybody is the name of all peers in Trusts.
const Everybody ClusterID = "*"

// Of is what a peer may do.
func (t Trusts) Of(id ClusterID) Trust {
	own, all := t[id], t[Everybody]
	own.Claim = own.Claim || all.Claim
	own.Selector = own.Selector || all.Selector
	if len(all.Types) > 0 {
		own.Types = slices.Concat(own.Types, all.Types)
	}
	if len(own.Namespaces) == 0 {
		own.Namespaces = all.Namespaces
	}
	if len(own.Ranges) == 0 {
		own.Ranges = all.Ranges
	}
	return own
}

// publishes reports whether the peer may publish Services of a namespace.
func (t Trust) publishes(namespace string) bool {
	return len(t.Namespaces) == 0 || slices.Contains(t.Namespaces, namespace)
}

// Carry lists the labels and annotations of a Service that its replicas have, too:
// those that this cluster publishes, and those that it takes from its peers. A key
// that ends with * stands for all that begin so. Empty: none.
type Carry struct {
	Labels, Annotations []string
}

// listed reports whether a key is in such a list.
func listed(list []string, key string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		prefix, wild := strings.CutSuffix(l, "*")
		return l == key || wild && strings.HasPrefix(key, prefix)
	})
}

// unroutable reports whether an address is never that of a pod in another cluster:
// Kubernetes refuses the same ones in Endpoints.
func unroutable(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Zone() != "" || a.Is4In6() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// metadataServers are those of clouds that are not link-local.
var metadataServers = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
}

// reaches reports whether an endpoint of the peer may have an address. reserved are
// the cluster's own ranges.
func (t Trust) reaches(address string, reserved []netip.Prefix) bool {
	a, err := netip.ParseAddr(address)
	if err != nil || unroutable(a) || slices.Contains(metadataServers, a) {
		return false
	}
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	if len(t.Ranges) > 0 {
		return slices.ContainsFunc(t.Ranges, within)
	}
	return !slices.ContainsFunc(reserved, within)
}
