// Package trust reads what people write of what peers may do in their cluster. It knows no
// peer.
package trust

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// Words are the values of the flags of the same names.
type Words struct {
	Namespaces []string // --peer-namespaces: PEER=NAMESPACE,...
	Ranges     []string // --peer-ranges: PEER=CIDR,...
	Allow      []string // --allow: PEER=WHAT,...
	Carry      []string // --carry: label:KEY or annotation:KEY
}

// Trusts is what the words let peers do. What cannot be understood is an error.
func (w Words) Trusts() (model.Trusts, error) {
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
	if err := each("peer-namespaces", w.Namespaces, func(t *model.Trust, ns string) error {
		if why := validation.IsDNS1123Label(ns); len(why) > 0 {
			return fmt.Errorf("%q is no namespace: %s", ns, why[0])
		}
		t.Namespaces = append(t.Namespaces, ns)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each("peer-ranges", w.Ranges, func(t *model.Trust, cidr string) error {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("%q is no range such as 10.1.0.0/16", cidr)
		}
		t.Ranges = append(t.Ranges, p.Masked())
		return nil
	}); err != nil {
		return nil, err
	}
	return all, each("allow", w.Allow, allow)
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

// Carried is which labels and annotations go along.
func (w Words) Carried() (c model.Carry, err error) {
	for _, v := range w.Carry {
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
