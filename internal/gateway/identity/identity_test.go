package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/internal/gateway/identity"
)

var address = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8443}

func open(t *testing.T, cfg identity.Config) *identity.Identity {
	t.Helper()
	id, err := identity.Open(cfg, address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(id.Close)
	return id
}

// parsed is the certificate of the file that is made in a data directory.
func parsed(t *testing.T, certPEM, keyPEM []byte) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// TestOwn: a gateway that is given nothing makes a certificate for where it listens, and a
// kubeconfig, for nobody else's eyes, by which it knows its administrator.
func TestOwn(t *testing.T) {
	dir := t.TempDir()
	id := open(t, identity.Config{DataDir: dir, SANs: []string{"gateway.example"}})
	serving := parsed(t, first(id.Cert.CurrentCertKeyContent()), second(id.Cert.CurrentCertKeyContent()))
	for _, name := range []string{"localhost", "127.0.0.1", "192.0.2.7", "gateway.example"} {
		if err := serving.VerifyHostname(name); err != nil {
			t.Errorf("the serving certificate: %v", err)
		}
	}
	if info, err := os.Stat(id.Kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig %s: %v, %v", id.Kubeconfig, info, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", id.Kubeconfig)
	if err != nil || config.Host != "https://127.0.0.1:8443" {
		t.Fatalf("the kubeconfig leads to %+v, %v", config, err)
	}
	admin := parsed(t, config.CertData, config.KeyData)
	got, known, err := id.Authenticator.AuthenticateRequest(withCertificate(admin))
	if err != nil || !known || !slices.Contains(got.User.GetGroups(), user.SystemPrivilegedGroup) {
		t.Errorf("the administrator is known: %v, %v", known, err)
	}
	if allowed(t, id, user.SystemPrivilegedGroup) != authorizer.DecisionAllow || allowed(t, id, "others") == authorizer.DecisionAllow {
		t.Error("the administrator alone may do all, and does not, or somebody else may")
	}
}

func first(a, _ []byte) []byte  { return a }
func second(_, b []byte) []byte { return b }

// withCertificate is a request of a caller with that certificate.
func withCertificate(c *x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
	return r
}

// allowed is what a member of a group may do at the gateway itself.
func allowed(t *testing.T, id *identity.Identity, group string) authorizer.Decision {
	t.Helper()
	decision, _, err := id.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "somebody", Groups: []string{group}}, Verb: "get", Path: "/servers"})
	if err != nil {
		t.Fatal(err)
	}
	return decision
}

// TestStrangersCertificate: a certificate of another authority is nobody's.
func TestStrangersCertificate(t *testing.T) {
	id := open(t, identity.Config{DataDir: t.TempDir()})
	other, err := identity.LoadOwn(filepath.Join(t.TempDir(), "pki"), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, known, _ := id.Authenticator.AuthenticateRequest(withCertificate(parsed(t, other.Admin.CertPEM, other.Admin.KeyPEM))); known {
		t.Error("the administrator of another gateway is known here")
	}
}

// TestKept: what was made is found again, and one gateway at a time uses a data directory.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	id := open(t, identity.Config{DataDir: dir})
	if _, err := identity.Open(identity.Config{DataDir: dir}, address, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "is in use by another gateway") {
		t.Errorf("a second gateway opens the data directory: %v", err)
	}
	before := first(id.Cert.CurrentCertKeyContent())
	id.Close()
	if after := first(open(t, identity.Config{DataDir: dir}).Cert.CurrentCertKeyContent()); string(after) != string(before) {
		t.Error("a restart made another certificate")
	}
}

// TestGiven: a gateway that is given all that it needs writes nothing.
func TestGiven(t *testing.T) {
	own, err := identity.LoadOwn(filepath.Join(t.TempDir(), "pki"), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	id := open(t, identity.Config{DataDir: dir, CertFile: own.Serving.CertFile, KeyFile: own.Serving.KeyFile, ClientCAFile: own.CA.CertFile})
	if _, err := os.Stat(dir); !os.IsNotExist(err) || id.Kubeconfig != "" {
		t.Errorf("there is a data directory (%v) or a kubeconfig (%q)", err, id.Kubeconfig)
	}
	if _, known, err := id.Authenticator.AuthenticateRequest(withCertificate(parsed(t, own.Admin.CertPEM, own.Admin.KeyPEM))); !known || err != nil {
		t.Errorf("a caller with a certificate of the given CA is known: %v, %v", known, err)
	}
}

// TestReviews: where a Kubernetes API is named, it says whose a token is, and what its owner
// may do.
func TestReviews(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		_ = json.NewDecoder(r.Body).Decode(&review)
		spec := review["spec"].(map[string]any)
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			review["status"] = map[string]any{"authenticated": spec["token"] == "good", "user": map[string]any{"username": "ann"}}
		} else {
			review["status"] = map[string]any{"allowed": spec["user"] == "somebody" && slices.Contains(spec["groups"].([]any), any("readers"))}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: " + api.URL + "}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id := open(t, identity.Config{DataDir: t.TempDir(), Authentication: kubeconfig})
	for token, want := range map[string]bool{"good": true, "bad": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if got, known, _ := id.Authenticator.AuthenticateRequest(r); known != want || known && got.User.GetName() != "ann" {
			t.Errorf("the owner of a %s token is known: %v", token, known)
		}
	}
	if allowed(t, id, "readers") != authorizer.DecisionAllow || allowed(t, id, "others") == authorizer.DecisionAllow {
		t.Error("the API's word on who may do what is not taken")
	}
}

// TestOpenRefuses: what is given and cannot be read is named.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for want, cfg := range map[string]identity.Config{
		"load serving certificate":             {CertFile: "/nowhere/cert", KeyFile: "/nowhere/key", ClientCAFile: "/nowhere/ca"},
		"load client CA":                       {DataDir: filepath.Join(dir, "a"), ClientCAFile: "/nowhere/ca"},
		"read --authentication-kubeconfig /no": {DataDir: filepath.Join(dir, "b"), Authentication: "/nowhere/kubeconfig"},
	} {
		if _, err := identity.Open(cfg, address, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want it to say %q", err, want)
		}
	}
}
