package backend

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// A server's faults, and the Status that the caller gets for each.
func TestFaultsOfAnswers(t *testing.T) {
	answer := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if contentType != "" {
				w.Header().Set("Content-Type", contentType)
			} else {
				w.Header()["Content-Type"] = nil
			}
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	redirect := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example.com/apis?t=1", code)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   int32
		reason Reason
		says   string
	}{
		"an HTML page":             {answer(200, "text/html; charset=utf-8", "<html>Welcome</html>"), 502, NotKubernetes, "an HTML page"},
		"text":                     {answer(200, "text/plain", "ok"), 502, NotKubernetes, "text/plain"},
		"no type":                  {answer(200, "", "{}"), 502, NotKubernetes, "a body of no type"},
		"nothing":                  {answer(200, "", ""), 502, NotKubernetes, "nothing"},
		"an image":                 {answer(200, "image/png", "\x89PNG"), 502, NotKubernetes, "image/png"},
		"garbage said to be JSON":  {answer(200, "application/json", "\x00\x01<html>"), 502, NotKubernetes, `begins "..<html>"`},
		"nothing said to be JSON":  {answer(200, "application/json", ""), 502, NotKubernetes, "begins"},
		"JSON said to be protobuf": {answer(200, "application/vnd.kubernetes.protobuf", `{"kind":"Widget"}`), 502, NotKubernetes, `{\"kind`},
		"JSON said to be CBOR":     {answer(200, "application/cbor", `{"kind":"Widget"}`), 502, NotKubernetes, "application/cbor"},
		"a type that is no type":   {answer(201, "application", "{}"), 502, NotKubernetes, "201"},
		"an HTML 502":              {answer(502, "text/html", "<h1>Bad Gateway</h1>"), 502, NotKubernetes, "Bad Gateway"},
		"an HTML 404":              {answer(404, "text/html", "<h1>nginx</h1>"), 404, NotKubernetes, "nginx"},
		"a long text 500":          {answer(500, "text/plain", strings.Repeat("long ", 1<<20)), 500, NotKubernetes, "long long"},
		"a redirect":               {redirect(302), 502, Redirect, `redirect (302) to "https://evil.example.com/apis"`},
		"a permanent redirect":     {redirect(308), 502, Redirect, "redirect (308)"},
		"300":                      {answer(300, "application/json", "{}"), 502, Redirect, "redirect (300)"},
		"a status from nowhere":    {answer(799, "text/plain", ""), 799, NotKubernetes, ""},
		"aborts":                   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, Broken, "broke the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			api := startServer(t, c.answer)
			gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
			resp, body := get(t, gw, widgets)
			s := statusOf(t, resp, body)
			if s.Code != c.code || causeOf(s) != c.reason || !strings.Contains(s.Message, c.says) {
				t.Errorf("got %s, want %d %s and %q", body, c.code, c.reason, c.says)
			}
			if len(body) > 4<<10 || resp.Header.Get("Location") != "" {
				t.Errorf("the answer has %d bytes and leads to %q", len(body), resp.Header.Get("Location"))
			}
		})
	}
}

// What is not an object, where none was asked for, passes.
func TestAnswersThatAreNoObjects(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/example.com/v1/namespaces/default/widgets/gone" {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, "k8s\x00")
			return
		}
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "as it is")
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	for _, path := range []string{"/metrics", "/healthz", "/api/v1/namespaces/default/pods/a/log", "/api/v1/namespaces/default/services/a/proxy/x", widgets + "/a/kubeconfig"} {
		if resp, body := get(t, gw, path); resp.StatusCode != http.StatusOK || body != "as it is" {
			t.Errorf("%s: %s %q", path, resp.Status, body)
		}
	}
	if resp, body := get(t, gw, widgets+"/gone"); resp.StatusCode != http.StatusNotFound || body != "k8s\x00" {
		t.Errorf("the server's own Status: %s %q", resp.Status, body)
	}
	if resp, body := do(t, gw, newRequest(t, http.MethodDelete, gw.URL+widgets+"/a", nil)); resp.StatusCode != http.StatusNoContent || body != "" {
		t.Errorf("no content: %s %q", resp.Status, body)
	}
	if resp, _ := do(t, gw, newRequest(t, http.MethodHead, gw.URL+widgets, nil)); resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %s", resp.Status)
	}
}

// Faults of connections: what answers is no HTTP server, or none at all.
func TestFaultsOfConnections(t *testing.T) {
	closed := startRaw(t, func(net.Conn) {})
	says := func(what string) string {
		return startRaw(t, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, what)
		})
	}
	for name, c := range map[string]struct {
		url    string
		code   int32
		reason Reason
		says   string
	}{
		"refuses connections":        {"http://" + freeAddress(t), 503, Unreachable, "connection refused"},
		"closes connections":         {closed, 502, Broken, "broke the connection"},
		"speaks no HTTP":             {says("SSH-2.0-OpenSSH_9.2\r\n"), 502, Broken, "malformed HTTP"},
		"endless headers":            {says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 1<<20)), 502, Broken, "header"},
		"a bad length":               {says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), 502, Broken, "Content-Length"},
		"ends before its first byte": {says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"), 502, NotKubernetes, "begins"},
		"no TLS":                     {strings.Replace(says("HTTP/1.1 400 Bad Request\r\n\r\n"), "http:", "https:", 1), 502, NotKubernetes, "does not speak TLS"},
		"no such host":               {"https://no-such-host.invalid", 503, Unreachable, "no-such-host.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			gw := startGateway(t, newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: c.url}, nil, Options{}), alice)
			resp, body := get(t, gw, widgets)
			s := statusOf(t, resp, body)
			if s.Code != c.code || causeOf(s) != c.reason || !strings.Contains(s.Message, c.says) {
				t.Errorf("got %s, want %d %s and %q", body, c.code, c.reason, c.says)
			}
		})
	}
}

// freeAddress is one of loopback where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

func TestCertificates(t *testing.T) {
	now := time.Now()
	serve := func(from, to time.Time, demand bool) (*httptest.Server, []byte) {
		certPEM, keyPEM := newCertificate(t, "server", from, to)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "{}") }))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		if demand {
			s.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		}
		s.Config.ErrorLog = discardLog()
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, certPEM
	}
	expired, expiredCA := serve(now.Add(-48*time.Hour), now.Add(-time.Hour), false)
	early, earlyCA := serve(now.Add(time.Hour), now.Add(48*time.Hour), false)
	good, goodCA := serve(now.Add(-time.Hour), now.Add(time.Hour), false)
	strict, strictCA := serve(now.Add(-time.Hour), now.Add(time.Hour), true)
	for name, c := range map[string]struct {
		server     *httptest.Server
		ca         []byte
		serverName string
		says       string // nothing: all is well
	}{
		"good":              {good, goodCA, "example.com", ""},
		"expired":           {expired, expiredCA, "example.com", "expired on " + now.Add(-time.Hour).UTC().Format("2006-01-02T")},
		"not yet valid":     {early, earlyCA, "example.com", "valid only from"},
		"another's":         {good, strictCA, "example.com", "put the authority's certificate into caBundle"},
		"another name":      {good, goodCA, "other.example.com", "set serverName"},
		"wants one from us": {strict, strictCA, "example.com", "identity.credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.RemoteAPIServerSpec{URL: c.server.URL, CABundle: c.ca, ServerName: c.serverName}
			gw := startGateway(t, newBackend(t, spec, nil, Options{}), alice)
			resp, body := get(t, gw, widgets)
			if c.says == "" {
				if resp.StatusCode != http.StatusOK {
					t.Errorf("got %s", body)
				}
				return
			}
			if s := statusOf(t, resp, body); s.Code != http.StatusBadGateway || causeOf(s) != BadCertificate || !strings.Contains(s.Message, c.says) {
				t.Errorf("got %s, want it to say %q", body, c.says)
			}
		})
	}
}

// A server that hangs is given up: before its answer by a Status, half-way by
// an end that nobody takes for the end of the list.
func TestHangs(t *testing.T) {
	release := make(chan struct{})
	hang := func(first string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if first != "-" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				io.WriteString(w, first)
				w.(http.Flusher).Flush()
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
	}
	t.Cleanup(func() { close(release) })
	silent, stalled := Options{ResponseTimeout: 100 * time.Millisecond}, Options{IdleTimeout: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		method, first string
		reason        Reason
		says          string
	}{
		"before the answer":        {http.MethodGet, "-", NoAnswer, "did not answer in time"},
		"a write":                  {http.MethodPost, "-", NoAnswer, "whether it did what was asked is unknown"},
		"before the first byte":    {http.MethodGet, "", Stalled, "stopped half-way"},
		"a write before the first": {http.MethodPost, "", Stalled, "is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := silent
			if c.first == "" {
				opts = stalled
			}
			gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, startServer(t, hang(c.first))), nil, opts), alice)
			resp, body := do(t, gw, newRequest(t, c.method, gw.URL+widgets, strings.NewReader("{}")))
			if s := statusOf(t, resp, body); s.Code != http.StatusGatewayTimeout || s.Reason != metav1.StatusReasonTimeout || causeOf(s) != c.reason || !strings.Contains(s.Message, c.says) {
				t.Errorf("got %s", body)
			}
		})
	}
	t.Run("half-way", func(t *testing.T) {
		gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, startServer(t, hang(`{"kind":"WidgetList","items":[`))), nil, stalled), alice)
		resp, err := gw.Client().Do(newRequest(t, http.MethodGet, gw.URL+widgets, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("the list seems to end: %q", body)
		}
	})
	t.Run("by the caller's deadline", func(t *testing.T) {
		gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, startServer(t, hang(`{"items":[`))), nil, Options{}), alice)
		client := gw.Client()
		client.Timeout = 100 * time.Millisecond
		resp, err := client.Do(newRequest(t, http.MethodGet, gw.URL+widgets, nil))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("got %v", err)
		}
	})
}

// An answer that breaks off is not passed on as one that ends.
func TestBrokenHalfWay(t *testing.T) {
	for _, head := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "Transfer-Encoding: chunked\r\n\r\n9\r\n{"} {
		api := startRaw(t, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+head+`        `)
		})
		gw := startGateway(t, newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: api}, nil, Options{}), alice)
		resp, err := gw.Client().Do(newRequest(t, http.MethodGet, gw.URL+widgets, nil))
		if err != nil {
			continue // the Status never left
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("%q: the answer seems to end: %q", head, body)
		}
	}
}

// A 100 MB answer and as large a request pass through little memory.
func TestMemoryIsBounded(t *testing.T) {
	const size = 100 << 20
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{%d", n)
		io.CopyN(w, endless{}, size)
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	req := newRequest(t, http.MethodPost, gw.URL+widgets, io.LimitReader(endless{}, size))
	resp, err := gw.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	peak := uint64(0)
	var read int64
	for {
		n, err := io.CopyN(io.Discard, resp.Body, 16<<20)
		read += n
		runtime.ReadMemStats(&after)
		peak = max(peak, after.HeapAlloc)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(peak) - int64(before.HeapAlloc); read < size || grown > 64<<20 {
		t.Errorf("%d MiB went through, and the heap grew by %d MiB", read>>20, grown>>20)
	}
}

// A Status comes in an encoding that the caller accepts, and in JSON for one
// who accepts none.
func TestStatusEncodings(t *testing.T) {
	gw := startGateway(t, newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: "http://" + freeAddress(t)}, nil, Options{}), alice)
	for accept, want := range map[string]string{
		"":                 "application/json",
		"application/json": "application/json",
		"application/vnd.kubernetes.protobuf,application/json": "application/vnd.kubernetes.protobuf",
		"application/cbor": "application/cbor",
		"application/yaml": "application/yaml",
		"text/html":        "application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json": "application/json",
	} {
		req := newRequest(t, http.MethodGet, gw.URL+widgets, nil)
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, body := do(t, gw, req)
		if resp.Header.Get("Content-Type") != want || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "widgets") {
			t.Errorf("Accept %q: got %s, %s: %q", accept, resp.Status, resp.Header.Get("Content-Type"), body)
		}
	}
}
