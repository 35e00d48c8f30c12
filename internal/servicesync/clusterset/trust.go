package clusterset

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Trust is what a peer may do in this cluster. With the zero value, a peer may
// publish Services of every shared namespace, and endpoints with any address that is
// not this cluster's own. Replicas of its Services are then plain ClusterIP Services,
// and the peer changes nothing that was created here.
type Trust struct {
	// Namespaces are those whose Services the peer may publish; empty: all that
	// are shared.
	Namespaces []string
	// Ranges hold the addresses that its endpoints may have; empty: all but
	// Config.Reserved.
	Ranges []netip.Prefix
	// Claim lets the peer's annotations change the role of Services that give
	// endpoints here and have no annotation of their own: they yield to the peer if
	// it asks to be the source, and join its union. It also lets replicas here use
	// the peer's endpoints beside those of the cluster that they follow.
	Claim bool
	// Selector lets replicas here adopt the selector of the peer's Service, and so
	// select pods of this cluster, when the peer hands over to this cluster or asks
	// for a union. The annotation of a replica allows the same for that replica.
	Selector bool
	// Types are the types, beside ClusterIP, that replicas of the peer's Services
	// may have. A Service of any other type is replicated as a ClusterIP Service,
	// but an ExternalName Service not at all.
	Types []corev1.ServiceType
}

// Trusts is what each peer may do. A peer may also do what Everybody may, except
// that its own Namespaces and Ranges replace those of Everybody.
type Trusts map[ID]Trust

// Everybody is the name of all peers in Trusts.
const Everybody ID = "*"

// Of returns what a peer may do.
func (t Trusts) Of(id ID) Trust {
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

// MayPublish reports whether the peer may publish Services of a namespace.
func (t Trust) MayPublish(namespace string) bool {
	return len(t.Namespaces) == 0 || slices.Contains(t.Namespaces, namespace)
}

// unroutable reports whether an address cannot be that of a pod in another cluster.
// Kubernetes refuses the same addresses in Endpoints.
func unroutable(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Zone() != "" || a.Is4In6() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// metadataServers are the metadata servers of clouds whose addresses are not
// link-local.
var metadataServers = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
}

// MayReach reports whether an endpoint of the peer may have an address. reserved are
// this cluster's own ranges.
func (t Trust) MayReach(address string, reserved []netip.Prefix) bool {
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
