package preflight

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/servicesync/access"
)

// Addresses are the addresses that are a cluster's own, so that no endpoint of a peer
// may have them.
type Addresses struct {
	Pods, Services, Servers []netip.Prefix // nil: unknown
	// Families are the IP families that the cluster's Services can have; nil: unknown.
	Families []corev1.IPFamily
}

// ReadAddresses reads the addresses of a cluster; configured are its pod ranges if a
// person has stated them. What cannot be read is left unknown.
func ReadAddresses(ctx context.Context, own *access.API, configured []string, log *slog.Logger) Addresses {
	a := Addresses{Pods: podRanges(ctx, own, configured, log), Services: serviceRanges(ctx, own), Servers: serverAddresses(ctx, own)}
	a.Families = families(ctx, own, a.Services)
	return a
}

// serviceRanges returns the addresses of the cluster's Services; nil if the cluster
// does not serve them.
func serviceRanges(ctx context.Context, own *access.API) (found []netip.Prefix) {
	ranges, err := own.Kube.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	for _, cidr := range ranges.Spec.CIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			found = append(found, p.Masked())
		}
	}
	return found
}

// serverAddresses returns the addresses of the cluster's own API servers; nil if they
// cannot be read.
func serverAddresses(ctx context.Context, own *access.API) (found []netip.Prefix) {
	all, err := own.Kube.DiscoveryV1().EndpointSlices(access.APIService().Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + access.APIService().Name,
	})
	if err != nil {
		return nil
	}
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				if a, err := netip.ParseAddr(address); err == nil {
					found = append(found, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	return found
}

// families returns the IP families that Services of the cluster can have, from the
// Services' ranges or else from the API server's own Service; nil if neither can be read.
func families(ctx context.Context, own *access.API, services []netip.Prefix) []corev1.IPFamily {
	if len(services) == 0 {
		svc, err := own.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return svc.Spec.IPFamilies
	}
	var families []corev1.IPFamily
	for _, p := range services {
		if p.Addr().Is4() {
			families = append(families, corev1.IPv4Protocol)
		} else {
			families = append(families, corev1.IPv6Protocol)
		}
	}
	return families
}

// mostRanges is how many pod ranges a lease lists. Clusters of more nodes usually
// have adjacent ranges, which merge to fewer.
const mostRanges = 100

// podRanges returns the addresses of the cluster's pods: the configured ones, or else
// those in the specs of its nodes; nil if the nodes state none.
func podRanges(ctx context.Context, own *access.API, configured []string, log *slog.Logger) (found []netip.Prefix) {
	if len(configured) > 0 {
		for _, cidr := range configured {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				found = append(found, p.Masked())
			}
		}
		return found
	}
	options := metav1.ListOptions{Limit: 500}
	for {
		nodes, err := own.Kube.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			log.Debug("nodes cannot be listed; pod ranges are not known", "error", err)
			return nil
		}
		for _, n := range nodes.Items {
			for _, cidr := range n.Spec.PodCIDRs {
				if p, err := netip.ParsePrefix(cidr); err == nil {
					found = append(found, p.Masked())
				}
			}
		}
		if options.Continue = nodes.Continue; options.Continue == "" {
			break
		}
	}
	return merge(found)
}

// ForLease returns the pod ranges as a lease lists them, at most mostRanges.
func (a Addresses) ForLease() (ranges []string) {
	for _, p := range a.Pods[:min(len(a.Pods), mostRanges)] {
		ranges = append(ranges, p.String())
	}
	return ranges
}

// merge returns the same addresses in the fewest prefixes, sorted.
func merge(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Prefix.Compare)
	var merged []netip.Prefix
	for _, p := range all {
		if n := len(merged); n > 0 && merged[n-1].Bits() <= p.Bits() && merged[n-1].Contains(p.Addr()) {
			continue
		}
		merged = append(merged, p)
		for n := len(merged); n > 1; n = len(merged) {
			a, b := merged[n-2], merged[n-1]
			if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().Is4() != b.Addr().Is4() {
				break
			}
			parent := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
			if !parent.Contains(b.Addr()) {
				break
			}
			merged = append(merged[:n-2], parent)
		}
	}
	return merged
}
