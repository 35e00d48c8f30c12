package roster

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
)

func open(t *testing.T, serverID string) *identity.Identity {
	t.Helper()
	id, err := identity.Open(t.TempDir(), serverID, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(id.Close)
	return id
}

func keyID(t *testing.T, public []byte) string {
	t.Helper()
	key, err := parsePublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key.ID
}

func TestTrustIsTheUnion(t *testing.T) {
	a, b := open(t, "a"), open(t, "b")
	of := func(id *identity.Identity) Member {
		return Member{CA: id.CA.CertPEM, ServiceAccountKeys: [][]byte{id.ServiceAccountPub}}
	}
	members := map[string]Member{"a": of(a), "b": of(b)}
	atA, atB := newTrust("a", of(a), members), newTrust("b", of(b), members)
	if diff := cmp.Diff(string(atA.Bundle), string(atB.Bundle)); diff != "" {
		t.Fatalf("bundles differ: %s", diff)
	}
	for _, id := range []*identity.Identity{a, b} {
		block, _ := pem.Decode(id.Admin.CertPEM)
		admin, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Verify(x509.VerifyOptions{Roots: atA.Roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("administrator of %s: %v", id.ID, err)
		}
		if keys := atA.find(keyID(t, id.ServiceAccountPub)); len(keys) != 1 {
			t.Errorf("keys of %s: %v", id.ID, keys)
		}
	}
	alone := newTrust("a", of(a), map[string]Member{"a": of(b)}) // the store has it wrong
	if keys := alone.find(keyID(t, a.ServiceAccountPub)); len(keys) != 1 || !bytes.Equal(alone.Bundle, a.CA.CertPEM) {
		t.Error("a server must trust itself, whatever the store says")
	}
	if keys := alone.find(keyID(t, b.ServiceAccountPub)); len(keys) != 0 {
		t.Error("a key that nobody published is trusted")
	}
}

func FuzzDecodeMember(f *testing.F) {
	id, err := identity.Open(f.TempDir(), "x", nil)
	if err != nil {
		f.Fatal(err)
	}
	id.Close()
	good, err := json.Marshal(Member{CA: id.CA.CertPEM, ServiceAccountKeys: [][]byte{id.ServiceAccountPub}})
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := json.Marshal(Member{CA: id.Serving.CertPEM})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := decodeMember(leaf); err == nil {
		f.Fatal("a certificate that is no CA was taken for one")
	}
	f.Add(good)
	f.Add(leaf)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"ca":null,"serviceAccountKeys":["AAAA"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMember(b)
		if err != nil {
			return
		}
		// What decodes can be trusted, and comes back the same.
		tr := newTrust("other", m, map[string]Member{"m": m})
		if len(tr.Bundle) == 0 || len(tr.Keys) > len(m.ServiceAccountKeys) {
			t.Fatalf("%d keys, bundle of %d bytes", len(tr.Keys), len(tr.Bundle))
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if m2, err := decodeMember(again); err != nil || !cmp.Equal(m, m2) {
			t.Fatalf("decoded again: %v", err)
		}
	})
}
