package clientcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// signer is a CA for tests.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var serial atomic.Int64

// newCA makes a CA, signed by parent, or by itself if parent is nil.
func newCA(t testing.TB, name string, parent *signer) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &signer{key: key}
	if parent == nil {
		parent = ca
	}
	ca.cert = parent.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(24 * time.Hour),
	}, key)
	return ca
}

func (s *signer) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber, template.NotBefore = big.NewInt(serial.Add(1)), time.Now().Add(-time.Minute)
	issuer := s.cert
	if issuer == nil {
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client makes the certificate of a user.
func (s *signer) client(t testing.TB, name string, lives time.Duration) *x509.Certificate {
	return s.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"staff", "night shift"}}, NotAfter: time.Now().Add(lives),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, s.key)
}

// bundle is CAs that change.
type bundle struct{ pem atomic.Pointer[[]byte] }

func bundleOf(cas ...*signer) *bundle {
	b := &bundle{}
	b.set(cas...)
	return b
}

func (b *bundle) set(cas ...*signer) {
	var out []byte
	for _, ca := range cas {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})...)
	}
	b.pem.Store(&out)
}

func (b *bundle) CurrentCABundleContent() []byte { return *b.pem.Load() }

var errStranger = errors.New("nobody knows this caller")

// upstream stands for the authenticators behind: it knows nobody, and counts.
type upstream struct{ asked atomic.Int64 }

func (u *upstream) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	u.asked.Add(1)
	return nil, false, errStranger
}

func request(certs ...*x509.Certificate) *http.Request {
	return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: certs}}
}

// who says whom a request is from; "" for whom upstream was asked.
func who(t testing.TB, a *Authenticator, r *http.Request) string {
	t.Helper()
	resp, ok, err := a.AuthenticateRequest(r)
	switch {
	case errors.Is(err, errStranger) && !ok:
		return ""
	case err != nil || !ok:
		t.Fatalf("answer is %v, %v, %v", resp, ok, err)
	}
	return resp.User.GetName()
}

func expect(t testing.TB, when, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: the request is from %q, want %q", when, got, want)
	}
}

// spoilt is a certificate that cannot be verified any more, but has the same bytes: it
// is accepted only if it is remembered.
func spoilt(c *x509.Certificate) *x509.Certificate {
	copied := *c
	copied.Signature = slices.Repeat([]byte{1}, len(c.Signature))
	copied.RawTBSCertificate = []byte("changed")
	return &copied
}

// TestRemovedCA: once the CA of a certificate was removed, requests on connections that
// were made before are refused.
func TestRemovedCA(t *testing.T) {
	stays, goes, proxy := newCA(t, "stays", nil), newCA(t, "goes", nil), newCA(t, "proxy", nil)
	clients, next := bundleOf(stays, goes), &upstream{}
	a := New(next, clients, bundleOf(proxy))
	alice, mallory := request(stays.client(t, "alice", time.Hour)), request(goes.client(t, "mallory", time.Hour))
	for range 3 {
		expect(t, "before", who(t, a, alice), "alice")
		expect(t, "before", who(t, a, mallory), "mallory")
	}
	if n := next.asked.Load(); n != 0 {
		t.Errorf("the authenticators behind were asked %d times", n)
	}
	clients.set(stays)
	expect(t, "after the CA was removed", who(t, a, mallory), "")
	expect(t, "after another CA was removed", who(t, a, alice), "alice")
	clients.set(stays, goes)
	expect(t, "after the CA came back", who(t, a, mallory), "mallory")
	clients.set()
	expect(t, "with no CA at all", who(t, a, alice), "")
}

// TestLaterCA: a certificate that was refused is accepted once its CA is known.
func TestLaterCA(t *testing.T) {
	first, later, clients := newCA(t, "first", nil), newCA(t, "later", nil), bundleOf()
	clients.set(first)
	a := New(&upstream{}, clients, bundleOf())
	bob := request(later.client(t, "bob", time.Hour))
	expect(t, "before", who(t, a, bob), "")
	clients.set(first, later)
	expect(t, "after", who(t, a, bob), "bob")
}

// TestVerifiedOnce: the requests of a certificate verify it once, on all connections
// that it comes by, and again after a minute; no other certificate passes for it.
func TestVerifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca", nil)
		a := New(&upstream{}, bundleOf(ca), bundleOf(newCA(t, "proxy", nil)))
		cert := ca.client(t, "alice", time.Hour)
		expect(t, "never verified", who(t, a, request(spoilt(cert))), "")
		expect(t, "first", who(t, a, request(cert)), "alice")
		expect(t, "remembered", who(t, a, request(spoilt(cert))), "alice")
		expect(t, "another of that name", who(t, a, request(spoilt(ca.client(t, "alice", time.Hour)))), "")
		expect(t, "with something sent along", who(t, a, request(spoilt(cert), cert)), "")
		time.Sleep(forAtMost)
		expect(t, "after a minute", who(t, a, request(spoilt(cert))), "")
		expect(t, "verified again", who(t, a, request(cert)), "alice")
	})
}

// TestExpiry: a certificate is refused from its end on, also if it was remembered, and
// also if it is an intermediate that ends.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca", nil)
		a := New(&upstream{}, bundleOf(ca), bundleOf())
		alice := request(ca.client(t, "alice", 10*time.Second))
		time.Sleep(9 * time.Second)
		expect(t, "before its end", who(t, a, alice), "alice")
		time.Sleep(2 * time.Second)
		expect(t, "after its end", who(t, a, alice), "")

		short := &signer{key: ca.key}
		short.cert = ca.sign(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "short"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotAfter: time.Now().Add(10 * time.Second),
		}, ca.key)
		bob := request(short.client(t, "bob", time.Hour), short.cert)
		expect(t, "while the intermediate lasts", who(t, a, bob), "bob")
		time.Sleep(11 * time.Second)
		expect(t, "after the intermediate's end", who(t, a, bob), "")
	})
}

// TestIntermediates: what was verified with an intermediate is remembered with it, and
// tells nothing of the certificate alone.
func TestIntermediates(t *testing.T) {
	root := newCA(t, "root", nil)
	inner := newCA(t, "inner", root)
	a := New(&upstream{}, bundleOf(root), bundleOf())
	cert := inner.client(t, "alice", time.Hour)
	expect(t, "with the intermediate", who(t, a, request(cert, inner.cert)), "alice")
	expect(t, "remembered", who(t, a, request(spoilt(cert), inner.cert)), "alice")
	expect(t, "alone", who(t, a, request(cert)), "")
}

// TestFrontProxies: a front proxy speaks for others, by headers that differ from
// request to request. It is never answered for, also if its CA signs clients too.
func TestFrontProxies(t *testing.T) {
	both, clients, proxies, next := newCA(t, "both", nil), bundleOf(), bundleOf(), &upstream{}
	clients.set(both)
	a := New(next, clients, proxies)
	cert := request(both.client(t, "front-proxy", time.Hour))
	expect(t, "as a client", who(t, a, cert), "front-proxy")
	proxies.set(both)
	for range 2 {
		expect(t, "as a front proxy", who(t, a, cert), "")
	}
	if n := next.asked.Load(); n != 2 {
		t.Errorf("the authenticators behind were asked %d times, want 2", n)
	}
}

// TestOthersPass: who has no certificate is passed on, and so is who has one that names
// nobody.
func TestOthersPass(t *testing.T) {
	ca := newCA(t, "ca", nil)
	a := New(&upstream{}, bundleOf(ca), bundleOf())
	expect(t, "no TLS", who(t, a, &http.Request{}), "")
	expect(t, "no certificate", who(t, a, request()), "")
	expect(t, "no name", who(t, a, request(ca.client(t, "", time.Hour))), "")
	server := ca.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.key)
	expect(t, "a server's certificate", who(t, a, request(server)), "")
}

// TestSameAsUpstream: the answer is the one of Kubernetes' authenticator, and each
// request has its own, which it may change.
func TestSameAsUpstream(t *testing.T) {
	ca := newCA(t, "ca", nil)
	clients := bundleOf(ca)
	a := New(&upstream{}, clients, bundleOf())
	r := request(ca.client(t, "alice", time.Hour))
	want, _, err := requestx509.New(options(clients.CurrentCABundleContent()), requestx509.CommonNameUserConversion).AuthenticateRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, _, err := a.AuthenticateRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("upstream (-) and this (+):\n%s", diff)
		}
		u := got.User.(*user.DefaultInfo)
		u.Groups[0] = "system:masters"
		u.Extra[user.CredentialIDKey][0] = "another"
		u.Extra["more"] = nil
	}
}

// TestMemoryIsBounded: certificates beyond a number push others out, and those that
// are not accepted take no room.
func TestMemoryIsBounded(t *testing.T) {
	ca, other := newCA(t, "ca", nil), newCA(t, "other", nil)
	a := New(&upstream{}, bundleOf(ca), bundleOf())
	for range 10 {
		expect(t, "a stranger", who(t, a, request(other.client(t, "x", time.Hour))), "")
	}
	if n := a.trust.Load().verified.Len(); n != 0 {
		t.Errorf("%d certificates of strangers are remembered", n)
	}
	for range atMost + 10 {
		expect(t, "a client", who(t, a, request(ca.client(t, "x", time.Hour))), "x")
	}
	if n := a.trust.Load().verified.Len(); n != atMost {
		t.Errorf("%d certificates are remembered, want %d", n, atMost)
	}
}

// TestWhileCAsChange: requests that come while CAs come and go are never answered by a
// CA that had been removed before they came.
func TestWhileCAsChange(t *testing.T) {
	stays, goes, clients := newCA(t, "stays", nil), newCA(t, "goes", nil), bundleOf()
	clients.set(stays)
	a := New(&upstream{}, clients, bundleOf())
	alice, mallory := request(stays.client(t, "alice", time.Hour)), request(goes.client(t, "mallory", time.Hour))
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					expect(t, "whoever else comes and goes", who(t, a, alice), "alice")
					who(t, a, mallory)
				}
			}
		})
	}
	for range 200 {
		clients.set(stays, goes)
		who(t, a, mallory)
		clients.set(stays)
		expect(t, "after the CA was removed", who(t, a, mallory), "")
	}
	close(stop)
	all.Wait()
}

func BenchmarkRequest(b *testing.B) {
	ca, proxy := newCA(b, "ca", nil), newCA(b, "proxy", nil)
	clients, proxies := bundleOf(ca), bundleOf(proxy)
	r := request(ca.client(b, "alice", time.Hour))
	b.Run("remembered", func(b *testing.B) {
		a := New(&upstream{}, clients, proxies)
		b.ReportAllocs()
		for b.Loop() {
			expect(b, "", who(b, a, r), "alice")
		}
	})
	b.Run("verified", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			expect(b, "", who(b, New(&upstream{}, clients, proxies), r), "alice")
		}
	})
}
