package backend

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// startServer serves an API over TLS, by HTTP/2 too.
func startServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = discardLog()
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// startRaw answers connections without TLS, each by one call.
func startRaw(t *testing.T, answer func(net.Conn)) (url string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			wg.Go(func() { defer conn.Close(); answer(conn) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + lis.Addr().String()
}

func caOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func specOf(mode v1alpha1.IdentityMode, servers ...*httptest.Server) v1alpha1.RemoteAPIServerSpec {
	spec := v1alpha1.RemoteAPIServerSpec{Identity: v1alpha1.Identity{Mode: mode}}
	for _, s := range servers {
		spec.Endpoints = append(spec.Endpoints, s.URL)
		if s.TLS != nil {
			spec.CABundle = append(spec.CABundle, caOf(s)...)
		}
	}
	return spec
}

func newBackend(t *testing.T, spec v1alpha1.RemoteAPIServerSpec, creds Credentials, opts Options) *Backend {
	t.Helper()
	if creds == nil && spec.Identity.Mode == "" {
		spec.Identity.Mode = v1alpha1.PassThrough
	}
	b, err := New("widgets", spec, creds, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.connections.close)
	return b
}

// startGateway serves a backend to callers that are u, nobody if nil, by
// HTTP/2 too.
func startGateway(t *testing.T, h http.Handler, u user.Info) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(begun(t, h, u))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = discardLog()
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// begun gives requests what they have by the time they come to a backend: their Call,
// and the user u, if not nil.
func begun(t testing.TB, h http.Handler, u user.Info) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := call.Begin(r)
		if err != nil {
			t.Errorf("begin: %v", err)
			return
		}
		call.Of(r).Server = &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
		if u != nil {
			r = r.WithContext(request.WithUser(r.Context(), u))
		}
		h.ServeHTTP(w, r)
	})
}

// newCertificate is a self-signed certificate, and its key, PEM.
func newCertificate(t testing.TB, name string, from, to time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"example.com"}, IPAddresses: nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// clientCredentials are a certificate named gateway, and a token.
func clientCredentials(t testing.TB, token string) *Held {
	t.Helper()
	cert, key := newCertificate(t, "gateway", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	s, err := NewSecret(cert, key, token)
	if err != nil {
		t.Fatal(err)
	}
	return Hold(s)
}

func tokenOnly(t *testing.T, token string) *Held {
	t.Helper()
	s, err := NewSecret(nil, nil, token)
	if err != nil {
		t.Fatal(err)
	}
	return Hold(s)
}

// do asks and reads the whole answer.
func do(t *testing.T, s *httptest.Server, req *http.Request) (*http.Response, string) {
	t.Helper()
	c := s.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return resp, string(body)
}

func get(t *testing.T, s *httptest.Server, path string) (*http.Response, string) {
	t.Helper()
	return do(t, s, newRequest(t, http.MethodGet, s.URL+path, nil))
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// statusOf reads a Status that names the server.
func statusOf(t *testing.T, resp *http.Response, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" {
		t.Fatalf("%s: no Status, but %q (%v)", resp.Status, body, err)
	}
	if int(s.Code) != resp.StatusCode || s.Details == nil || s.Details.Name != "widgets" {
		t.Fatalf("%s: the Status does not name the server: %s", resp.Status, body)
	}
	return s
}

// causeOf is the reason that a Status gives.
func causeOf(s metav1.Status) Reason {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return ""
	}
	return Reason(s.Details.Causes[0].Type)
}

func writeJSON(w http.ResponseWriter, v string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, v)
}

var alice = &user.DefaultInfo{Name: "alice", UID: "42", Groups: []string{"devs", user.AllAuthenticated}, Extra: map[string][]string{"example.com/Scope": {"a", "b"}}}
