package roster

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A Member is what one server publishes. Nothing in it is secret.
type Member struct {
	// CA is the certificate, PEM, that signs the server's serving and client certificates.
	CA []byte `json:"ca"`
	// ServiceAccountKeys are public keys, PEM, that verify the tokens it issues.
	ServiceAccountKeys [][]byte `json:"serviceAccountKeys"`
}

// decodeMember refuses an entry with parts that cannot be trust anchors.
func decodeMember(b []byte) (Member, error) {
	var m Member
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decode member: %w", err)
	}
	if _, err := parseCertificate(m.CA); err != nil {
		return m, fmt.Errorf("decode member CA: %w", err)
	}
	for _, k := range m.ServiceAccountKeys {
		if _, err := parsePublicKey(k); err != nil {
			return m, fmt.Errorf("decode member service-account key: %w", err)
		}
	}
	return m, nil
}

func parseCertificate(b []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not one PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("not a CA")
	}
	return cert, nil
}

// A Key verifies service-account tokens.
type Key struct {
	// ID is the one that a token names in its header.
	ID     string
	Public crypto.PublicKey
}

func parsePublicKey(b []byte) (Key, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PUBLIC KEY" {
		return Key{}, errors.New("not a PEM public key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	// The id that k8s.io/kubernetes/pkg/serviceaccount puts in a token's header.
	sum := sha256.Sum256(block.Bytes)
	return Key{ID: base64.RawURLEncoding.EncodeToString(sum[:]), Public: key}, nil
}

// Trust is what the servers on one store trust, at one moment. It never changes.
type Trust struct {
	// Bundle has the CA certificates of all servers, PEM, in the order of their ids.
	Bundle []byte
	// Roots are the certificates in Bundle.
	Roots *x509.CertPool
	// Keys are the service-account keys of all servers, each once.
	Keys []Key
}

// newTrust combines self and the other members, which have been checked by
// decodeMember. A server always trusts itself, as it is now, whatever the store
// says about it. The order depends on ids alone, so that all servers with one
// roster make the same bundle.
func newTrust(id string, self Member, members map[string]Member) *Trust {
	all := maps.Clone(members)
	if all == nil {
		all = map[string]Member{}
	}
	all[id] = self
	t := &Trust{Roots: x509.NewCertPool()}
	seen := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := all[id]
		t.Bundle = append(t.Bundle, m.CA...)
		if cert, err := parseCertificate(m.CA); err == nil {
			t.Roots.AddCert(cert)
		}
		for _, pem := range m.ServiceAccountKeys {
			if k, err := parsePublicKey(pem); err == nil && !seen[k.ID] {
				seen[k.ID] = true
				t.Keys = append(t.Keys, k)
			}
		}
	}
	return t
}

// equal reports whether both trust the same.
func (t *Trust) equal(other *Trust) bool {
	return bytes.Equal(t.Bundle, other.Bundle) &&
		slices.EqualFunc(t.Keys, other.Keys, func(a, b Key) bool { return a.ID == b.ID })
}

// find is the key with the id; none if no server has published it.
func (t *Trust) find(id string) []Key {
	for _, k := range t.Keys {
		if k.ID == id {
			return []Key{k}
		}
	}
	return nil
}
