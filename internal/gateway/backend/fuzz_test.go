package backend

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

// FuzzPath: what passes stays below the server's base, however often it is
// unescaped and cleaned, and is read by the server as by the gateway.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/apis", "/api/v1/namespaces/a/services/b/proxy/c//d%2f", "/apis/%2e%2e/x", "/a/..%5c..", "/%252e%252e/", "/api/v1/namespaces/a/pods/b/proxy/..;/", "//", "/a%00",
	} {
		f.Add(s)
	}
	base := &url.URL{Scheme: "https", Host: "api", Path: "/base"}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || u.Opaque != "" {
			return
		}
		r := &http.Request{Method: http.MethodGet, URL: u}
		info, err := call.ReadURL(r)
		if err != nil || checkPath(u, info) != nil {
			return
		}
		out := join(base, u, info.Subresource == "proxy")
		seen, err := url.ParseRequestURI(out.RequestURI())
		if err != nil {
			t.Fatalf("%q becomes %q: %v", raw, out.RequestURI(), err)
		}
		if seen.Path != "/base"+u.Path {
			t.Fatalf("%q becomes %q, which reads %q", raw, out.RequestURI(), seen.Path)
		}
		for p := seen.EscapedPath(); ; {
			if clean := path.Clean(strings.ReplaceAll(p, `\`, "/")); clean != "/base" && !strings.HasPrefix(clean, "/base/") {
				t.Fatalf("%q leaves the base: %q", raw, clean)
			}
			next, err := url.PathUnescape(p)
			if err != nil || next == p {
				break
			}
			p = next
		}
		again, err := call.ReadURL(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: strings.TrimPrefix(seen.Path, "/base"), RawQuery: seen.RawQuery}})
		if err != nil || again.Resource != info.Resource || again.Name != info.Name || again.Namespace != info.Namespace || again.Subresource != info.Subresource || again.Verb != info.Verb {
			t.Fatalf("%q is read as %+v and as %+v", raw, info, again)
		}
	})
}

// FuzzIdentity: a user that passes the check is read by Kubernetes' own
// authenticator for front proxies as who they are, and a header of the
// caller's changes nothing.
func FuzzIdentity(f *testing.F) {
	f.Add("alice", "1", "devs", "scope", "a", "X-Remote-User", "admin")
	f.Add("a b", "", "x,y", "Example.com/Scope", "ü", "x_remote_group", "system:masters")
	f.Add(" a", "", "", "%", "\t", "Impersonate-User", "b")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value, header, spoof string) {
		u := &user.DefaultInfo{Name: name, UID: uid, Groups: []string{group}, Extra: map[string][]string{key: {value}}}
		if key == "" || group == "" || value == "" || checkCaller(v1alpha1.FrontProxy, u, call.Credentials{}) != nil {
			return
		}
		h := http.Header{textproto.CanonicalMIMEHeaderKey(header): {spoof}}
		identify(h, v1alpha1.FrontProxy, u, call.Credentials{}, Secret{})
		var seen http.Header
		api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }))
		defer api.Close()
		req := httptest.NewRequest(http.MethodGet, api.URL, nil)
		req.RequestURI, req.Header = "", h
		transport := &http.Transport{DisableKeepAlives: true}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return // what the caller sent is no HTTP
		}
		resp.Body.Close()
		auth, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := auth.AuthenticateRequest(&http.Request{Header: seen})
		if err != nil || !ok {
			t.Fatalf("%q is not authenticated: %v", name, err)
		}
		if g := got.User; g.GetName() != name || g.GetUID() != uid || !slices.Equal(g.GetGroups(), u.Groups) || len(g.GetExtra()) != 1 || !slices.Equal(g.GetExtra()[key], []string{value}) {
			t.Fatalf("sent %+v, read as %+v", u, g)
		}
	})
}

// FuzzJudge: whatever a server answers, judging it does not fail, does not
// lose a byte, and says something short.
func FuzzJudge(f *testing.F) {
	f.Add(200, "application/json", "", []byte("{}"))
	f.Add(302, "text/html", "gzip", []byte("<html>"))
	f.Add(500, "application/vnd.kubernetes.protobuf;stream=watch", "x", []byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, code int, contentType, compression string, body []byte) {
		resp := &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {contentType}, "Content-Encoding": {compression}, "Location": {contentType}},
			Body: io.NopCloser(bytes.NewReader(body)), Request: httptest.NewRequest(http.MethodGet, "/", nil),
		}
		fault := judge(resp, errand{object: true})
		if fault != nil {
			if n := len(fault.message); n > 4<<10 {
				t.Fatalf("a message of %d bytes", n)
			}
			return
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%q became %q (%v)", body, got, err)
		}
	})
}
