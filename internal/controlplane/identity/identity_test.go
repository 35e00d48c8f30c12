package identity

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIdentityIsReissuedWhereItMust(t *testing.T) {
	dir := t.TempDir()
	open := func(sans ...string) *Identity {
		t.Helper()
		id, err := Open(dir, "", sans)
		if err != nil {
			t.Fatal(err)
		}
		id.Close()
		return id
	}
	first := open("localhost")
	if !ValidID(first.ID) {
		t.Fatalf("made up the server id %q", first.ID)
	}
	again := open("localhost")
	if again.ID != first.ID || !bytes.Equal(again.Serving.CertPEM, first.Serving.CertPEM) {
		t.Fatal("a second start made a new identity")
	}
	wider := open("localhost", "api.example.org")
	if bytes.Equal(wider.Serving.CertPEM, first.Serving.CertPEM) {
		t.Fatal("the serving certificate was not issued again for a new name")
	}
	if !bytes.Equal(wider.CA.CertPEM, first.CA.CertPEM) || !bytes.Equal(wider.Admin.CertPEM, first.Admin.CertPEM) {
		t.Fatal("a new name changed more than the serving certificate")
	}
	// A crash between the key and the certificate.
	if err := os.Remove(filepath.Join(dir, "pki/admin.crt")); err != nil {
		t.Fatal(err)
	}
	if id := open("localhost"); bytes.Equal(id.Admin.CertPEM, first.Admin.CertPEM) {
		t.Fatal("the administrator's certificate was not made again")
	}
	// A key that is gone is not made up for: it is a CA, people trust it.
	if err := os.Remove(filepath.Join(dir, "pki/ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "", nil); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Fatalf("CA without its key: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server-id"), []byte("Bad Id"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "", nil); err == nil || !strings.Contains(err.Error(), "server-id") {
		t.Fatalf("corrupt server id: %v", err)
	}
}

func TestUnwritableDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "data"), "", nil); err == nil || !strings.Contains(err.Error(), "create data directory") {
		t.Fatalf("data directory below a file: %v", err)
	}
}
