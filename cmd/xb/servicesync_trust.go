package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// trustFlags say what peers may do in the own cluster.
type trustFlags struct {
	namespaces []string
	ranges     []string
	allow      []string
	carry      []string
}

func (f *trustFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.namespaces, "peer-namespaces", nil, "namespaces that a peer may publish Services of, as PEER=NAMESPACE,...; * is every peer; more than once (default: all that are shared)")
	fs.StringArrayVar(&f.ranges, "peer-ranges", nil, "ranges that hold the addresses of a peer's endpoints, as PEER=CIDR,...; * is every peer; more than once (default: all but this cluster's own)")
	fs.StringArrayVar(&f.allow, "allow", nil, "what a peer may do here beyond being used, as PEER=WHAT,...: claim (move or join Services that serve here), selector (have replicas select pods here), NodePort, LoadBalancer, ExternalName (have replicas of that type); * is every peer; more than once (default: nothing)")
	fs.StringSliceVar(&f.carry, "carry", nil, "labels and annotations of Services that replicas have, too, as label:KEY or annotation:KEY; a KEY that ends with * is all that begin so; for what is published and for what is imported (default: none)")
}

// trusts is what the flags let peers do.
func (f *trustFlags) trusts() (model.Trusts, error) {
	all := make(model.Trusts)
	each := func(flag string, values []string, add func(t *model.Trust, word string) error) error {
		for _, v := range values {
			peer, words, ok := strings.Cut(v, "=")
			if peer != string(model.Everybody) && len(validation.IsDNS1123Label(peer)) > 0 || !ok || words == "" {
				return fmt.Errorf("--%s is %q; want PEER=..., where PEER is a peer's name or *", flag, v)
			}
			t := all[model.ClusterID(peer)]
			for word := range strings.SplitSeq(words, ",") {
				if err := add(&t, word); err != nil {
					return fmt.Errorf("--%s is %q: %w", flag, v, err)
				}
			}
			all[model.ClusterID(peer)] = t
		}
		return nil
	}
	if err := each("peer-namespaces", f.namespaces, func(t *model.Trust, ns string) error {
		if why := validation.IsDNS1123Label(ns); len(why) > 0 {
			return fmt.Errorf("%q is no namespace: %s", ns, why[0])
		}
		t.Namespaces = append(t.Namespaces, ns)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each("peer-ranges", f.ranges, func(t *model.Trust, cidr string) error {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("%q is no range such as 10.1.0.0/16", cidr)
		}
		t.Ranges = append(t.Ranges, p.Masked())
		return nil
	}); err != nil {
		return nil, err
	}
	return all, each("allow", f.allow, allow)
}

// allow adds what one word of --allow says.
func allow(t *model.Trust, word string) error {
	switch word {
	case "claim":
		t.Claim = true
	case "selector":
		t.Selector = true
	case string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeExternalName):
		t.Types = append(t.Types, corev1.ServiceType(word))
	default:
		return fmt.Errorf("%q is none of claim, selector, NodePort, LoadBalancer and ExternalName", word)
	}
	return nil
}

// carried is which labels and annotations go along.
func (f *trustFlags) carried() (c model.Carry, err error) {
	for _, v := range f.carry {
		kind, key, _ := strings.Cut(v, ":")
		list, known := map[string]*[]string{"label": &c.Labels, "annotation": &c.Annotations}[kind]
		if !known {
			return c, fmt.Errorf("--carry is %q; want label:KEY or annotation:KEY", v)
		}
		if why := validation.IsQualifiedName(key); len(why) > 0 && !strings.HasSuffix(key, "*") {
			return c, fmt.Errorf("--carry is %q: %q is no key: %s", v, key, why[0])
		}
		*list = append(*list, key)
	}
	return c, nil
}
