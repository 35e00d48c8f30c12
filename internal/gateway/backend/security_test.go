package backend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

var (
	vouching = []v1alpha1.IdentityMode{v1alpha1.Impersonate, v1alpha1.FrontProxy}
	modes    = append([]v1alpha1.IdentityMode{v1alpha1.PassThrough}, vouching...)
)

// seen is a request as a server got it.
type seen struct {
	Method, URI string
	Header      http.Header
	Trailer     http.Header
	Body        string
	Certificate string // the name in the client's
}

// recorder is a server that keeps what it got.
type recorder struct {
	mu   sync.Mutex
	got  []seen
	also func(http.ResponseWriter, *http.Request)
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s := seen{r.Method, r.URL.RequestURI(), r.Header.Clone(), r.Trailer, string(body), ""}
	if len(r.TLS.PeerCertificates) > 0 {
		s.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	if s.URI != last {
		rec.mu.Lock()
		rec.got = append(rec.got, s)
		rec.mu.Unlock()
	}
	if rec.also != nil {
		rec.also(w, r)
		return
	}
	writeJSON(w, `{"kind":"Widget"}`)
}

// take is what came since it was last asked.
func (rec *recorder) take() []seen {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	got := rec.got
	rec.got = nil
	return got
}

// identityHeaders are those of a request that say who sends it, by any name a
// server may know.
func identityHeaders(h http.Header) map[string][]string {
	out := map[string][]string{}
	for k, v := range h {
		switch n := strings.ReplaceAll(strings.ToLower(k), "_", "-"); {
		case n == "authorization", n == "cookie", n == "x-auth-user", hasAnyPrefix(n, "x-remote-", "impersonate-", "proxy-", "x-forwarded-user", "x-forwarded-host", "x-forwarded-proto"):
			out[k] = slices.Sorted(slices.Values(v))
		}
	}
	return out
}

// whom is what a server must be told of alice, in each mode.
func whom(mode v1alpha1.IdentityMode, prefix string) map[string][]string {
	about := func(name, uid, group, extra string) map[string][]string {
		return map[string][]string{name: {"alice"}, uid: {"42"}, group: {"devs", "system:authenticated"}, extra + "Example.com%2f%53cope": {"a", "b"}}
	}
	switch mode {
	case v1alpha1.Impersonate:
		h := about("Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-")
		h["Authorization"] = []string{"Bearer gateways-own"}
		return h
	case v1alpha1.FrontProxy:
		return about("X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-")
	}
	if prefix == "" {
		return map[string][]string{}
	}
	return map[string][]string{"Authorization": {prefix}}
}

// rig is a gateway before a recorder, both in all modes.
type rig struct {
	rec     *recorder
	backend *Backend
	gw      *httptest.Server
}

func newRig(t *testing.T, mode v1alpha1.IdentityMode, u user.Info, opts Options) rig {
	t.Helper()
	rec := &recorder{}
	api := startServer(t, rec)
	b := newBackend(t, specOf(mode, api), clientCredentials(t, "gateways-own"), opts)
	return rig{rec, b, startGateway(t, b, u)}
}

// last is what raw ends a connection with.
const last = "/version?last"

// raw sends bytes to the gateway over a connection of its own, and after them
// a request that has the gateway close it. It returns all that was answered:
// what the gateway took for a further request has been served by then.
func (r rig) raw(t *testing.T, plain *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", plain.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request+"GET "+last+" HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the gateway does not close the connection; it answered %q", answer)
	}
	return string(answer)
}

// spoofs are the headers of a caller who would like to be somebody else.
var spoofs = map[string]string{
	"front proxy":               "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: all\r\nX-Remote-Uid: 0\r\n",
	"front proxy, lower case":   "x-remote-user: admin\r\nx-remote-group: system:masters\r\n",
	"front proxy, mixed case":   "x-ReMoTe-uSeR: admin\r\nX-REMOTE-GROUP: system:masters\r\n",
	"front proxy, underscores":  "X_Remote_User: admin\r\nX_REMOTE_GROUP: system:masters\r\nX-Remote_User: admin\r\n",
	"front proxy, twice":        "X-Remote-User: alice\r\nX-Remote-User: admin\r\n",
	"front proxy, escaped":      "X-Remote-Extra-Example.com%2fScope: root\r\nX-Remote-Extra-example.com%2F%53cope: root\r\n",
	"impersonation, underscore": "Impersonate_User: admin\r\nIMPERSONATE_GROUP: system:masters\r\nImpersonate_Extra_scope: all\r\n",
	"custom front proxy":        "X-Auth-User: admin\r\nX-Forwarded-User: admin\r\nX-Webauth-User: admin\r\n",
	"cookies":                   "Cookie: session=1\r\nCookie2: a\r\n",
	"proxy credentials":         "Proxy-Authorization: Basic YWRtaW46YWRtaW4=\r\nProxy-Connection: keep-alive\r\nProxy: http://evil.example.com\r\n",
	"forwarding":                "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nForwarded: for=10.0.0.1\r\nX-Real-Ip: 10.0.0.1\r\n",
	"another method":            "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n",
	"another URL":               "X-Original-URL: /api/v1/secrets\r\nX-Rewrite-URL: /api/v1/secrets\r\n",
	"repeat":                    "Idempotency-Key: 1\r\nX-Idempotency-Key: 1\r\n",
}

func TestSpoofedIdentity(t *testing.T) {
	for _, mode := range modes {
		r := newRig(t, mode, alice, Options{})
		plain := plainGateway(t, r)
		for name, headers := range spoofs {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				// PassThrough passes on names that only a front proxy's certificate gives a
				// meaning, and the gateway presents none there.
				if mode == v1alpha1.PassThrough && name == "custom front proxy" {
					headers = strings.Replace(headers, "X-Auth-User: admin\r\n", "", 1)
				}
				answer := r.raw(t, plain, "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer alices\r\n"+headers+"\r\n")
				if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
					t.Fatalf("the gateway answered %q", answer)
				}
				got := r.rec.take()
				if len(got) != 1 {
					t.Fatalf("the server got %d requests", len(got))
				}
				if diff := cmp.Diff(whom(mode, "Bearer alices"), identityHeaders(got[0].Header)); diff != "" {
					t.Errorf("the server is told (-want +got):\n%s", diff)
				}
				if name := got[0].Certificate; (mode == v1alpha1.PassThrough) != (name == "") {
					t.Errorf("the connection shows the certificate of %q", name)
				}
				for k, v := range got[0].Header {
					if v := fmt.Sprint(v); strings.Contains(v, "admin") && !strings.Contains(k, "Webauth") || strings.Contains(v, "10.0.0.1") || strings.Contains(v, "DELETE") || strings.Contains(v, "secrets") || strings.Contains(k, "Idempotency") {
						t.Errorf("%s: %s passed", k, v)
					}
				}
				if f := got[0].Header["X-Forwarded-For"]; !slices.Equal(f, []string{"127.0.0.1"}) {
					t.Errorf("the server is told the address %q", f)
				}
			})
		}
	}
}

// plainGateway is the rig's backend served without TLS, so that tests can write
// requests that no client would.
func plainGateway(t *testing.T, r rig) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(r.gw.Config.Handler)
	s.Config.ErrorLog = discardLog()
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A caller's own words about the connection neither take away what the
// gateway says nor add to it.
func TestHopByHopTricks(t *testing.T) {
	for _, mode := range modes {
		r := newRig(t, mode, alice, Options{})
		plain := plainGateway(t, r)
		for _, name := range []string{"Authorization", "X-Remote-User", "X-Remote-Group", "Impersonate-User", "Impersonate-Group", "Content-Type", "X-Forwarded-For", "Host", "close, authorization"} {
			answer := r.raw(t, plain, "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer alices\r\nConnection: "+name+"\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, `\"widgets\"`) {
				t.Errorf("%s: Connection: %s: the gateway answered %q", mode, name, answer)
			}
			if got := r.rec.take(); len(got) != 0 {
				t.Errorf("%s: Connection: %s: the server got %v", mode, name, got)
			}
		}
		for _, ok := range []string{"close", "keep-alive", "TE", "Keep-Alive, te"} {
			r.raw(t, plain, "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer alices\r\nTE: trailers\r\nConnection: "+ok+"\r\n\r\n")
			got := r.rec.take()
			if len(got) != 1 {
				t.Fatalf("%s: Connection: %s: the server got %v", mode, ok, got)
			}
			if diff := cmp.Diff(whom(mode, "Bearer alices"), identityHeaders(got[0].Header)); diff != "" {
				t.Errorf("%s: Connection: %s: the server is told (-want +got):\n%s", mode, ok, diff)
			}
		}
	}
}

// Paths that two readers could take for two things reach no server.
func TestPaths(t *testing.T) {
	const proxied = "/api/v1/namespaces/default/services/web/proxy/"
	refused := []string{
		"/apis/../secret", "/apis/./x", "/..", "/apis/..", "/apis/%2e%2e/secret", "/apis/%2E%2e/secret", "/apis/.%2e/secret", "/apis/%2e/x",
		"/apis/%252e%252e/secret", "/apis/..%2fsecret", "/apis/..%5csecret", "/apis/..;/secret", "/apis/..;a=b/secret", "/apis/%2e%2e;/secret",
		"//apis", "/apis//example.com/v1/widgets", "/apis/example.com/v1//namespaces/default/widgets", "/apis/example.com%2fv1/widgets",
		"/apis/example.com%2Fv1/namespaces/default/widgets", "/apis/example.com/v1/widgets/a%5cb", "/apis/example.com/v1/widgets/a%00", "/apis/example.com/v1/widgets/a%0d%0aX:%20y",
		"/api/v1/namespaces/default%2f..%2fkube-system/secrets", "/api/v1/namespaces/a%252fb/secrets",
		proxied + "../../../secrets", proxied + "%2e%2e/%2e%2e", proxied + "a/%252e%252e/b", proxied + `..\x`, "/api/v1/namespaces/default/services/web//proxy/x",
		"/api/v1/namespaces/default/services%2fweb/proxy/x",
	}
	passed := map[string]string{
		"/apis": "", "/apis/": "", "/": "", "/apis/example.com/v1/widgets/a:b": "", "/apis/example.com/v1/widgets/a~b.c": "",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node": "", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode": "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
		"/%61pis/example.com/v1/widgets": "/apis/example.com/v1/widgets", "/apis/example.com/v1/widgets/...": "", "/apis/example.com/v1/widgets/a..b": "",
		proxied + "a//b": "", proxied + "a%2fb": "", proxied: "", proxied + "a%20b": "", "/api/v1/namespaces/proxy/pods/a/proxy/x//y": "",
		"/apis/example.com/v1/widgets?continue=a%2F..%2Fb": "",
	}
	for _, mode := range modes {
		r := newRig(t, mode, alice, Options{})
		plain := plainGateway(t, r)
		for _, path := range refused {
			answer := r.raw(t, plain, "GET "+path+" HTTP/1.1\r\nHost: gw\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
				t.Errorf("%s: GET %s: the gateway answered %q", mode, path, answer)
			}
			if got := r.rec.take(); len(got) != 0 {
				t.Errorf("%s: GET %s: the server got %q", mode, path, got[0].URI)
			}
		}
		for path, want := range passed {
			if want == "" {
				want = path
			}
			answer := r.raw(t, plain, "GET "+path+" HTTP/1.1\r\nHost: gw\r\n\r\n")
			got := r.rec.take()
			if len(got) != 1 || got[0].URI != want {
				t.Errorf("%s: GET %s: the server got %v, want %s; the gateway answered %q", mode, path, got, want, answer)
			}
		}
	}
}

// TestSmuggling sends bytes that a careless reader takes for two requests. The
// server gets at most one, whose body is what HTTP says it is.
func TestSmuggling(t *testing.T) {
	post := "POST " + widgets + " HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer alices\r\nContent-Type: application/json\r\n"
	inner := "GET /api/v1/secrets HTTP/1.1\r\nHost: gw\r\n\r\n"
	for name, c := range map[string]struct{ request, body string }{ // body "-": refused
		"both lengths, TE wins":      {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}"},
		"two lengths":                {post + "Content-Length: 2\r\nContent-Length: 52\r\n\r\n{}" + inner, "-"},
		"list of lengths":            {post + "Content-Length: 2, 52\r\n\r\n{}" + inner, "-"},
		"negative length":            {post + "Content-Length: -2\r\n\r\n{}", "-"},
		"signed length":              {post + "Content-Length: +2\r\n\r\n{}", "-"},
		"unknown TE":                 {post + "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "-"},
		"TE twice":                   {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "-"},
		"TE list":                    {post + "Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "-"},
		"space before the colon":     {post + "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}", "-"},
		"folded TE":                  {post + "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", "{}"},
		"bare CR in a value":         {post + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", "-"},
		"NUL in a value":             {post + "X: a\x00b\r\nContent-Length: 2\r\n\r\n{}", "-"},
		"a request inside a body":    {post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(inner), inner), inner},
		"a request inside a chunk":   {post + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(inner), inner), inner},
		"chunk size with junk":       {post + "Transfer-Encoding: chunked\r\n\r\n2 x\r\n{}\r\n0\r\n\r\n", "-"},
		"two hosts":                  {"GET " + widgets + " HTTP/1.1\r\nHost: gw\r\nHost: other\r\n\r\n", "-"},
		"trailers that speak":        {post + "Transfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\r\n2\r\n{}\r\n0\r\nX-Remote-User: admin\r\n\r\n", "{}"},
		"h2c":                        {"GET " + widgets + " HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "-"},
		"h2c, without its settings":  {"GET " + widgets + " HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "-"},
		"two protocols":              {"GET " + widgets + " HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", "-"},
		"two protocols in two lines": {"GET " + widgets + " HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n", "-"},
		"TRACE":                      {"TRACE " + widgets + " HTTP/1.1\r\nHost: gw\r\n\r\n", "-"},
		"CONNECT":                    {"CONNECT 127.0.0.1:6443 HTTP/1.1\r\nHost: gw\r\n\r\n", "-"},
		"another method":             {"PURGE " + widgets + " HTTP/1.1\r\nHost: gw\r\n\r\n", "-"},
		"absolute URL":               {"GET http://evil.example.com" + widgets + " HTTP/1.1\r\nHost: gw\r\n\r\n", ""},
	} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				r := newRig(t, mode, alice, Options{})
				answer := r.raw(t, plainGateway(t, r), c.request)
				got := r.rec.take()
				for _, s := range got {
					if strings.HasPrefix(s.URI, "/api/v1/secrets") || s.Header.Get("X-Remote-User") == "admin" || len(s.Trailer) > 0 || s.Header.Get("Upgrade") != "" {
						t.Fatalf("the server got %v", s)
					}
				}
				switch {
				case c.body == "-" && (len(got) > 0 && !strings.Contains(name, "junk") || !strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.HasPrefix(answer, "HTTP/1.1 5")):
					t.Errorf("the gateway answered %q and the server got %v", answer, got)
				case c.body != "-" && (len(got) != 1 || got[0].Body != c.body || got[0].URI != widgets):
					t.Errorf("the server got %v, want one request with body %q; the gateway answered %q", got, c.body, answer)
				}
			})
		}
	}
}

// Where the server learns the caller from the gateway, the caller's own token
// stays with the gateway, in every place where one can be.
func TestCallersTokenStays(t *testing.T) {
	for _, mode := range vouching {
		r := newRig(t, mode, alice, Options{})
		req := newRequest(t, http.MethodGet, r.gw.URL+widgets, nil)
		req.Header.Set("Authorization", "Bearer alices")
		req.Header.Set("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YWxpY2Vz, v4.channel.k8s.io")
		req.Header.Add("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YWxpY2Vz")
		req.AddCookie(&http.Cookie{Name: "token", Value: "alices"})
		do(t, r.gw, req)
		got := r.rec.take()
		if len(got) != 1 {
			t.Fatalf("%s: the server got %v", mode, got)
		}
		all, _ := json.Marshal(got[0])
		if bytes.Contains(all, []byte("alices")) || bytes.Contains(all, []byte("YWxpY2Vz")) {
			t.Errorf("%s: the server got %s", mode, all)
		}
		if p := got[0].Header["Sec-Websocket-Protocol"]; !slices.Equal(p, []string{"v4.channel.k8s.io"}) {
			t.Errorf("%s: subprotocols %q", mode, p)
		}
	}
}

// A filter that authenticates takes the credentials off the request; the
// server gets them even so, where they are its to judge.
func TestKeptCredentials(t *testing.T) {
	rec := &recorder{}
	api := startServer(t, rec)
	b := newBackend(t, specOf(v1alpha1.PassThrough, api), clientCredentials(t, "gateways-own"), Options{})
	gw := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Authorization")
		b.ServeHTTP(w, r)
	}), alice)
	for _, want := range []string{"Bearer alices", ""} {
		req := newRequest(t, http.MethodGet, gw.URL+widgets, nil)
		if want != "" {
			req.Header.Set("Authorization", want)
			req.Header.Set("Impersonate-User", "bob") // the server judges
		}
		do(t, gw, req)
		got := rec.take()
		if len(got) != 1 || got[0].Header.Get("Authorization") != want || got[0].Certificate != "" {
			t.Errorf("the server got %v, want %q", got, want)
		}
		if want != "" && got[0].Header.Get("Impersonate-User") != "bob" {
			t.Errorf("the caller's own impersonation is lost: %v", got[0].Header)
		}
	}
	req := newRequest(t, http.MethodGet, gw.URL+widgets, nil)
	req.Header["Authorization"] = []string{"Bearer alices", "Bearer bobs"}
	resp, body := do(t, gw, req)
	if s := statusOf(t, resp, body); s.Code != http.StatusBadRequest || len(rec.take()) != 0 {
		t.Errorf("two tokens: %s", body)
	}
}

func TestClientCertificateCannotPass(t *testing.T) {
	r := newRig(t, v1alpha1.PassThrough, alice, Options{})
	transport := r.gw.Client().Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = append(transport.TLSClientConfig.Certificates, *clientCredentials(t, "").Current().certificate)
	for _, token := range []string{"", "Bearer alices"} {
		req := newRequest(t, http.MethodGet, r.gw.URL+widgets, nil)
		if token != "" {
			req.Header.Set("Authorization", token)
		}
		resp, body := do(t, r.gw, req)
		s := statusOf(t, resp, body)
		if twice := strings.Contains(s.Message, "came twice"); twice != (token != "") {
			t.Errorf("with token %q: %s", token, s.Message)
		}
		if s.Code != http.StatusUnauthorized || s.Reason != "Unauthorized" || !strings.Contains(s.Message, "client certificate") || !strings.Contains(s.Message, "token") {
			t.Errorf("with token %q: %s", token, body)
		}
		if got := r.rec.take(); len(got) != 0 {
			t.Errorf("with token %q the server got %v", token, got)
		}
	}
}

// Users whom headers cannot carry as they are reach no server.
func TestUsersThatHeadersWouldChange(t *testing.T) {
	extra := func(v string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"k": {"ok", v}}}
	}
	for name, u := range map[string]user.Info{
		"nobody":                        nil,
		"no name":                       &user.DefaultInfo{Groups: []string{"system:masters"}},
		"space after":                   &user.DefaultInfo{Name: "admin "},
		"space before":                  &user.DefaultInfo{Name: " admin"},
		"tab":                           &user.DefaultInfo{Name: "admin\t"},
		"line break":                    &user.DefaultInfo{Name: "a\r\nX-Remote-Group: system:masters"},
		"group with a space":            &user.DefaultInfo{Name: "alice", Groups: []string{"system:masters "}},
		"group with a line break":       &user.DefaultInfo{Name: "alice", Groups: []string{"a\nb"}},
		"uid with a space":              &user.DefaultInfo{Name: "alice", UID: " 1"},
		"extra with a space":            extra("x "),
		"extra with a NUL":              extra("x\x00"),
		"authenticated as anonymous":    &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllAuthenticated}},
		"anonymous and authenticated":   &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated, user.AllAuthenticated}},
		"anonymous without being known": &user.DefaultInfo{Name: user.Anonymous},
	} {
		for _, mode := range vouching {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				r := newRig(t, mode, u, Options{})
				resp, body := get(t, r.gw, widgets)
				if s := statusOf(t, resp, body); s.Code != http.StatusUnauthorized && s.Code != http.StatusForbidden {
					t.Errorf("got %s", body)
				}
				if got := r.rec.take(); len(got) != 0 {
					t.Errorf("the server got %v", got)
				}
			})
		}
	}
}

// Users that headers do carry arrive as they are: a group of power only if the
// gateway says so.
func TestUsersArrive(t *testing.T) {
	for name, u := range map[string]*user.DefaultInfo{
		"anonymous":          {Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		"a master":           {Name: "root", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}},
		"named like a group": {Name: user.SystemPrivilegedGroup, Groups: []string{user.AllAuthenticated}},
		"a comma in a group": {Name: "a,b", Groups: []string{"x, system:masters", user.AllAuthenticated}},
		"Unicode":            {Name: "ålice 你", Groups: []string{"groß"}},
		"inner spaces":       {Name: "alice smith", Groups: []string{"the devs"}},
		"service account":    {Name: "system:serviceaccount:ns:sa", UID: "1", Groups: []string{"system:serviceaccounts"}, Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"p"}}},
	} {
		for _, mode := range vouching {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				r := newRig(t, mode, u, Options{})
				get(t, r.gw, widgets)
				got := r.rec.take()
				if len(got) != 1 {
					t.Fatalf("the server got %v", got)
				}
				prefix := map[v1alpha1.IdentityMode]string{v1alpha1.Impersonate: "Impersonate-", v1alpha1.FrontProxy: "X-Remote-"}[mode]
				if h := got[0].Header; h.Get(prefix+"User") != u.Name || !slices.Equal(h[prefix+"Group"], u.Groups) || h.Get(prefix+"Uid") != u.UID {
					t.Errorf("the server is told %v", identityHeaders(h))
				}
			})
		}
	}
}

// mayImpersonate lets alice impersonate the users and groups named.
type mayImpersonate struct{ what []string }

func (m mayImpersonate) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "impersonate" && a.GetUser().GetName() == "alice" && slices.Contains(m.what, a.GetResource()+"/"+a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestCallersOwnImpersonation(t *testing.T) {
	allowed := mayImpersonate{[]string{"users/bob", "groups/devs", "userextras/all"}}
	for name, c := range map[string]struct {
		headers string
		a       *mayImpersonate
		code    string
		user    string
		groups  []string
	}{
		"allowed":                       {"Impersonate-User: bob\r\n", &allowed, "200", "bob", []string{user.AllAuthenticated}},
		"lower case":                    {"impersonate-user: bob\r\nIMPERSONATE-GROUP: devs\r\n", &allowed, "200", "bob", []string{"devs", user.AllAuthenticated}},
		"not that group":                {"Impersonate-User: bob\r\nImpersonate-Group: system:masters\r\n", &allowed, "403", "", nil},
		"one group of two":              {"Impersonate-User: bob\r\nImpersonate-Group: devs\r\nImpersonate-Group: system:masters\r\n", &allowed, "403", "", nil},
		"not that user":                 {"Impersonate-User: admin\r\n", &allowed, "403", "", nil},
		"second user is not looked at":  {"Impersonate-User: bob\r\nImpersonate-User: admin\r\n", &allowed, "200", "bob", []string{user.AllAuthenticated}},
		"first user is not allowed":     {"Impersonate-User: admin\r\nImpersonate-User: bob\r\n", &allowed, "403", "", nil},
		"a uid":                         {"Impersonate-User: bob\r\nImpersonate-Uid: 0\r\n", &allowed, "403", "", nil},
		"an extra that is not allowed":  {"Impersonate-User: bob\r\nImpersonate-Extra-Scopes: none\r\n", &allowed, "403", "", nil},
		"groups without a user":         {"Impersonate-Group: devs\r\n", &allowed, "400", "", nil},
		"an empty user":                 {"Impersonate-User:\r\nImpersonate-Group: devs\r\n", &allowed, "400", "", nil},
		"only an empty user":            {"Impersonate-User:\r\n", &allowed, "200", "alice", []string{"devs", user.AllAuthenticated}},
		"a header that means nothing":   {"Impersonate-Power: all\r\n", &allowed, "200", "alice", []string{"devs", user.AllAuthenticated}},
		"nobody to ask":                 {"Impersonate-User: bob\r\n", nil, "403", "", nil},
		"nobody to ask, only groups":    {"Impersonate-Group: system:masters\r\n", nil, "403", "", nil},
		"nobody to ask, meaningless":    {"Impersonate-Power: all\r\n", nil, "403", "", nil},
		"trailing space is nobody else": {"Impersonate-User: bob \r\n", &allowed, "200", "bob", []string{user.AllAuthenticated}},
	} {
		for _, mode := range vouching {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				r := newRig(t, mode, alice, Options{})
				var by authorizer.UnconditionalAuthorizer
				if c.a != nil {
					by = *c.a
				}
				r.gw.Config.Handler = begun(t, Impersonate(r.backend, by), alice)
				answer := r.raw(t, plainGateway(t, r), "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer alices\r\n"+c.headers+"\r\n")
				if !strings.HasPrefix(answer, "HTTP/1.1 "+c.code+" ") {
					t.Errorf("the gateway answered %q, want %s", answer, c.code)
				}
				got := r.rec.take()
				if c.user == "" {
					if len(got) != 0 {
						t.Errorf("the server got %v", got)
					}
					return
				}
				prefix := map[v1alpha1.IdentityMode]string{v1alpha1.Impersonate: "Impersonate-", v1alpha1.FrontProxy: "X-Remote-"}[mode]
				if len(got) != 1 || !slices.Equal(got[0].Header[prefix+"User"], []string{c.user}) || !slices.Equal(got[0].Header[prefix+"Group"], c.groups) {
					t.Errorf("the server got %v", got)
				}
			})
		}
	}
}

// TestUndecidedImpersonation: a request that asks to be made as somebody else is not
// made as the caller because nobody looked at that.
func TestUndecidedImpersonation(t *testing.T) {
	for _, mode := range vouching {
		r := newRig(t, mode, alice, Options{})
		answer := r.raw(t, plainGateway(t, r), "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\nimpersonate-user: bob\r\n\r\n")
		if got := r.rec.take(); len(got) != 0 || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
			t.Errorf("%s: the gateway answered %q, and the server got %v", mode, answer, got)
		}
	}
}

// Nothing of a server's answer speaks for the gateway's address.
func TestAnswersHeaders(t *testing.T) {
	r := newRig(t, v1alpha1.PassThrough, alice, Options{})
	evil := map[string]string{
		"Set-Cookie": "session=evil", "WWW-Authenticate": `Basic realm="gateway"`, "Proxy-Authenticate": "Basic", "Strict-Transport-Security": "max-age=1",
		"Alt-Svc": `h2="evil:443"`, "Refresh": "0;url=https://evil", "Location": "https://evil", "Link": "<https://evil>; rel=preload", "Clear-Site-Data": `"*"`,
		"Access-Control-Allow-Origin": "*", "X-Accel-Redirect": "/etc/passwd", "X-Remote-User": "admin", "Authorization": "Bearer servers",
	}
	good := map[string]string{"Warning": `299 - "deprecated"`, "Audit-Id": "1", "Etag": `"2"`, "X-Kubernetes-Pf-Flowschema-Uid": "3", "Retry-After": "4", "Vary": "Accept", "Cache-Control": "no-cache, private"}
	for _, code := range []int{200, 401, 500} {
		r.rec.also = func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range evil {
				w.Header().Set(k, v)
			}
			for k, v := range good {
				w.Header().Set(k, v)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			io.WriteString(w, `{"kind":"Status"}`)
		}
		resp, _ := get(t, r.gw, widgets)
		if resp.StatusCode != code {
			t.Errorf("got %s", resp.Status)
		}
		for k := range evil {
			if v, ok := resp.Header[http.CanonicalHeaderKey(k)]; ok {
				t.Errorf("%d: %s: %s passed", code, k, v)
			}
		}
		for k, v := range good {
			if resp.Header.Get(k) != v {
				t.Errorf("%d: %s: got %q, want %q", code, k, resp.Header.Get(k), v)
			}
		}
	}
}

// A server that does not know the gateway must not have the caller believe
// that their own credentials are bad.
func TestGatewayUnknownToServer(t *testing.T) {
	for _, mode := range vouching {
		r := newRig(t, mode, alice, Options{})
		r.rec.also = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
		resp, body := get(t, r.gw, widgets)
		if s := statusOf(t, resp, body); s.Code != http.StatusBadGateway || causeOf(s) != BadCredentials {
			t.Errorf("%s: got %s", mode, body)
		}
	}
}

// A server that switches protocols unasked would own the connection on which
// the caller goes on to speak to others.
func TestUnaskedSwitch(t *testing.T) {
	for name, c := range map[string]struct{ asked, answered string }{
		"unasked":                {"", "Connection: Upgrade\r\nUpgrade: h2c\r\n"},
		"unasked, for nothing":   {"", ""},
		"another than asked for": {"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"},
		"to nothing":             {"Connection: Upgrade\r\nUpgrade: websocket\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := startRaw(t, func(conn net.Conn) {
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+c.answered+"\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			})
			b := newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: api}, nil, Options{})
			r := rig{gw: startGateway(t, b, alice)}
			answer := r.raw(t, plainGateway(t, r), "GET "+widgets+" HTTP/1.1\r\nHost: gw\r\n"+c.asked+"\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 502 ") || strings.Contains(answer, "evil") {
				t.Errorf("the gateway answered %q", answer)
			}
		})
	}
}

// Two servers behind one gateway: neither sees the other's credentials, nor
// comes by the other's connections.
func TestServersDoNotShare(t *testing.T) {
	first, second := &recorder{}, &recorder{}
	apis := []*httptest.Server{startServer(t, first), startServer(t, second)}
	for i, rec := range []*recorder{first, second} {
		b := newBackend(t, specOf(v1alpha1.Impersonate, apis[i]), tokenOnly(t, fmt.Sprint("token-", i)), Options{})
		gw := startGateway(t, b, alice)
		for range 3 {
			get(t, gw, widgets)
		}
		for _, s := range rec.take() {
			if s.Header.Get("Authorization") != fmt.Sprint("Bearer token-", i) {
				t.Errorf("server %d got %q", i, s.Header.Get("Authorization"))
			}
		}
	}
	if len(first.take())+len(second.take()) != 0 {
		t.Error("a server got another's request")
	}
}

func TestCredentialsAreRefreshed(t *testing.T) {
	rec := &recorder{}
	api := startServer(t, rec)
	creds := clientCredentials(t, "old")
	b := newBackend(t, specOf(v1alpha1.Impersonate, api), creds, Options{})
	gw := startGateway(t, b, alice)
	get(t, gw, widgets)
	cert, key := newCertificate(t, "gateway-2", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	s, err := NewSecret(cert, key, "new")
	if err != nil {
		t.Fatal(err)
	}
	creds.Set(s)
	get(t, gw, widgets)
	creds.Set(Secret{}) // taken away: nobody is sent as anonymous
	resp, body := get(t, gw, widgets)
	if s := statusOf(t, resp, body); s.Code != http.StatusServiceUnavailable || causeOf(s) != BadCredentials {
		t.Errorf("without credentials: %s", body)
	}
	var got []string
	for _, s := range rec.take() {
		got = append(got, s.Certificate+" "+s.Header.Get("Authorization"))
	}
	if want := []string{"gateway Bearer old", "gateway-2 Bearer new"}; !slices.Equal(got, want) {
		t.Errorf("the server saw %q, want %q", got, want)
	}
}

func TestSecretsArePrintedNowhere(t *testing.T) {
	s := tokenOnly(t, "hunter2").Current()
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("credentials", "secret", s, "pointer", &s)
	encoded, err := json.Marshal(map[string]any{"s": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{logged.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s", s, s, s, s), fmt.Sprintf("%+v %#v", &s, struct{ S Secret }{s})} {
		if strings.Contains(out, "hunter2") {
			t.Errorf("printed %s", out)
		}
	}
	if _, err := NewSecret(nil, nil, "a\r\nX-Remote-User: admin"); err == nil || strings.Contains(err.Error(), "admin") {
		t.Errorf("a token of two lines: %v", err)
	}
	if _, err := NewSecret([]byte("x"), []byte("secret"), ""); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no certificate: %v", err)
	}
}
