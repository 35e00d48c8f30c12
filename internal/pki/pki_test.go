package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T, dir, file string) Pair {
	t.Helper()
	ca, err := Authority(dir, file, "ca of "+file)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestIssue(t *testing.T) {
	dir := t.TempDir()
	ca := authority(t, dir, "ca")
	if again := authority(t, dir, "ca"); !bytes.Equal(again.CertPEM, ca.CertPEM) {
		t.Fatal("the CA was replaced")
	}
	leaf := Leaf{Name: "server", SANs: []string{"localhost", "127.0.0.1"}, Server: true}
	issued := func(ca Pair, leaf Leaf) Pair {
		t.Helper()
		p, err := ca.Issue(dir, "leaf", leaf)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := issued(ca, leaf)
	if again := issued(ca, leaf); !bytes.Equal(again.CertPEM, first.CertPEM) {
		t.Error("a certificate that fits was issued again")
	}
	if err := first.cert.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(first.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v (%v)", info.Mode(), err)
	}
	for name, change := range map[string]func(*Leaf){
		"another name":  func(l *Leaf) { l.Name = "other" },
		"another group": func(l *Leaf) { l.Groups = []string{"people"} },
		"one more host": func(l *Leaf) { l.SANs = append(l.SANs, "api.example.org") },
	} {
		changed := leaf
		change(&changed)
		if ca.signed(first, changed) {
			t.Errorf("%s: the old certificate will do", name)
		}
	}
	if authority(t, dir, "other").signed(first, leaf) {
		t.Error("a certificate of another CA will do")
	}
	old := *first.cert
	old.NotAfter = time.Now().Add(leafReserve - time.Hour)
	if ca.signed(Pair{cert: &old}, leaf) {
		t.Error("a certificate near its end will do")
	}
}

// TestForeignCertificate: a certificate that its owner put there is not
// overwritten; one of ours, of a CA that is gone, is made anew.
func TestForeignCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, other := authority(t, dir, "ca"), authority(t, dir, "other")
	leaf := Leaf{Name: "server", SANs: []string{"api.example.org"}, Server: true}
	theirs, err := other.Issue(dir, "leaf", leaf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Issue(dir, "leaf", leaf); err == nil || !strings.Contains(err.Error(), "ca of other") || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("issued over a certificate of somebody else: %v", err)
	}
	for file, want := range map[string][]byte{theirs.CertFile: theirs.CertPEM, theirs.KeyFile: theirs.KeyPEM} {
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was changed (%v)", file, err)
		}
	}
	for _, file := range []string{other.CertFile, other.KeyFile} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := authority(t, dir, "other").Issue(dir, "leaf", leaf); err != nil || bytes.Equal(again.CertPEM, theirs.CertPEM) {
		t.Errorf("not made anew under a new CA of the same name: %v", err)
	}
}

func TestHalfAPair(t *testing.T) {
	dir := t.TempDir()
	ca := authority(t, dir, "ca")
	first, err := ca.Issue(dir, "leaf", Leaf{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	// A crash between the key and the certificate.
	if err := os.Remove(first.CertFile); err != nil {
		t.Fatal(err)
	}
	if again, err := ca.Issue(dir, "leaf", Leaf{Name: "x"}); err != nil || bytes.Equal(again.CertPEM, first.CertPEM) {
		t.Errorf("not made again: %v", err)
	}
	// A key that is gone is not made up for: people trust the CA.
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Authority(dir, "ca", "x"); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("CA without its key: %v", err)
	}
}
