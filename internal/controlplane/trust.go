package controlplane

import (
	"crypto/x509"
	"maps"
	"slices"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

// newTrust combines self and the other members, which have been checked by
// decodeMember. A server always trusts itself, as it is now, whatever the store
// says about it. The order depends on ids alone, so that all servers with one
// roster make the same bundle.
func newTrust(id string, self member, members map[string]member) *trust {
	all := maps.Clone(members)
	if all == nil {
		all = map[string]member{}
	}
	all[id] = self
	t := &trust{roots: x509.NewCertPool()}
	seen := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := all[id]
		t.bundle = append(t.bundle, m.CA...)
		if cert, err := parseCertificate(m.CA); err == nil {
			t.roots.AddCert(cert)
		}
		for _, pem := range m.ServiceAccountKeys {
			if k, err := parsePublicKey(pem); err == nil && !seen[k.KeyID] {
				seen[k.KeyID] = true
				t.keys = append(t.keys, k)
			}
		}
	}
	return t
}

func sameKeys(a, b []serviceaccount.PublicKey) bool {
	return slices.EqualFunc(a, b, func(x, y serviceaccount.PublicKey) bool { return x.KeyID == y.KeyID })
}
