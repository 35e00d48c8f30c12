package backend

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

const widgets = "/apis/example.com/v1/namespaces/default/widgets"

func TestForwardsAsCaller(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %s %q", r.Proto, r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body))
		w.Header().Set("Etag", `"1"`)
		writeJSON(w, `{"kind":"Widget"}`)
	}))
	b := newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{})
	gw := startGateway(t, b, alice)
	for name, c := range map[string]struct{ method, uri, contentType, body, want string }{
		"get":    {http.MethodGet, widgets + "/a", "", "", `HTTP/2.0 GET ` + widgets + `/a  ""`},
		"query":  {http.MethodGet, widgets + "?limit=500&continue=ab%3D&labelSelector=a%20in%20(b,c)", "", "", `HTTP/2.0 GET ` + widgets + `?limit=500&continue=ab%3D&labelSelector=a%20in%20(b,c)  ""`},
		"create": {http.MethodPost, widgets, "application/vnd.kubernetes.protobuf", "k8s\x00x", `HTTP/2.0 POST ` + widgets + ` application/vnd.kubernetes.protobuf "k8s\x00x"`},
		"apply":  {http.MethodPatch, widgets + "/a?fieldManager=m&force=true", "application/apply-patch+yaml", "a: b", `HTTP/2.0 PATCH ` + widgets + `/a?fieldManager=m&force=true application/apply-patch+yaml "a: b"`},
		"delete": {http.MethodDelete, widgets + "/a", "application/cbor", "\xd9\xd9\xf7", `HTTP/2.0 DELETE ` + widgets + `/a application/cbor "\xd9\xd9\xf7"`},
	} {
		t.Run(name, func(t *testing.T) {
			req := newRequest(t, c.method, gw.URL+c.uri, strings.NewReader(c.body))
			if c.contentType != "" {
				req.Header.Set("Content-Type", c.contentType)
			}
			resp, body := do(t, gw, req)
			if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Seen") != c.want || resp.Header.Get("Etag") != `"1"` || body != `{"kind":"Widget"}` {
				t.Errorf("got %s, the server saw %q; want %q; body %s", resp.Status, resp.Header.Get("X-Seen"), c.want, body)
			}
			if resp.Proto != "HTTP/2.0" {
				t.Errorf("the gateway answered by %s", resp.Proto)
			}
		})
	}
}

func TestBasePath(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, fmt.Sprintf(`{"path":%q}`, r.URL.Path))
	}))
	spec := specOf(v1alpha1.PassThrough, api)
	spec.Endpoints[0] += "/team/a/"
	gw := startGateway(t, newBackend(t, spec, nil, Options{}), alice)
	if _, body := get(t, gw, "/apis"); body != `{"path":"/team/a/apis"}` {
		t.Errorf("got %s", body)
	}
}

// Every event is there as soon as the server has sent it, and a caller who goes
// away ends the server's request.
func TestWatch(t *testing.T) {
	events, gone := make(chan string), make(chan error, 1)
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-events:
				io.WriteString(w, e+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				gone <- context.Cause(r.Context())
				return
			}
		}
	}))
	// Neither limit is for watches.
	b := newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{ResponseTimeout: time.Nanosecond, IdleTimeout: time.Nanosecond})
	gw := startGateway(t, b, alice)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := newRequest(t, http.MethodGet, gw.URL+widgets+"?watch=true&allowWatchBookmarks=true", nil).WithContext(ctx)
	resp, err := gw.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 100 {
		want := fmt.Sprintf(`{"type":"BOOKMARK","n":%d}`, i)
		events <- want
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("event %d: got %q, want %q (%v)", i, lines.Text(), want, lines.Err())
		}
	}
	cancel()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the server's watch outlives the caller's")
	}
}

func TestCancelledRequestEndsAtServer(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	api := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	resp, err := gw.Client().Do(newRequest(t, http.MethodGet, gw.URL+widgets, nil).WithContext(ctx))
	if !errors.Is(err, context.Canceled) {
		if err == nil {
			resp.Body.Close()
		}
		t.Fatalf("got %v", err)
	}
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the server's request outlives the caller's")
	}
}

func TestCompressionPassesThrough(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, `{"kind":"WidgetList"}`)
	z.Close()
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			writeJSON(w, fmt.Sprintf(`{"accepts":%q}`, r.Header.Get("Accept-Encoding")))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		w.Write(packed.Bytes())
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	req := newRequest(t, http.MethodGet, gw.URL+widgets, nil)
	req.Header.Set("Accept-Encoding", "gzip") // so that the client leaves it packed
	resp, body := do(t, gw, req)
	if resp.Header.Get("Content-Encoding") != "gzip" || body != packed.String() {
		t.Errorf("got %v and %q", resp.Header, body)
	}
	req.Header.Set("Accept-Encoding", "identity")
	if _, body := do(t, gw, req); body != `{"accepts":"identity"}` {
		t.Errorf("got %s", body)
	}
	req.Header.Del("Accept-Encoding")
	gw.Client().Transport.(*http.Transport).DisableCompression = true
	if _, body := do(t, gw, req); body != `{"accepts":""}` {
		t.Errorf("got %s", body)
	}
}

// A list larger than any buffer arrives whole.
func TestLargeList(t *testing.T) {
	const size = 20 << 20
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{")
		io.CopyN(w, endless{}, size-1)
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	if _, body := get(t, gw, widgets); len(body) != size {
		t.Errorf("got %d bytes, want %d", len(body), size)
	}
}

// endless reads as spaces.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Outer filters' headers survive, and informational answers do not pass.
func TestInformationalAnswersStay(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Early", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("X-Early")
		writeJSON(w, `{}`)
	}))
	b := newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{})
	gw := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Audit-Id", "7")
		b.ServeHTTP(w, r)
	}), alice)
	resp, _ := get(t, gw, widgets)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Audit-Id") != "7" || resp.Header.Get("X-Early") != "" {
		t.Errorf("got %s, %v", resp.Status, resp.Header)
	}
}

func TestTrailersPass(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Checksum")
		writeJSON(w, `{}`)
		w.Header().Set("X-Checksum", "abc")
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	if resp, _ := get(t, gw, widgets); resp.Trailer.Get("X-Checksum") != "abc" {
		t.Errorf("got trailers %v", resp.Trailer)
	}
}

func TestOwnToAServerThatIsToldWhoAsks(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, fmt.Sprintf(`{"auth":%q,"user":%q,"groups":%q}`, r.Header.Get("Authorization"), r.Header["X-Remote-User"], r.Header["X-Remote-Group"]))
	}))
	for token, want := range map[string]string{
		"":     `{"auth":"","user":["system:xbernetes:gateway"],"groups":["system:authenticated"]}`,
		"ours": `{"auth":"Bearer ours","user":[],"groups":[]}`,
	} {
		client := &http.Client{Transport: newBackend(t, specOf(v1alpha1.FrontProxy, api), clientCredentials(t, token), Options{}).Own()}
		resp, err := client.Do(newRequest(t, http.MethodGet, "https://anything.invalid/apis", nil))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want {
			t.Errorf("token %q: the server is told %s, want %s", token, body, want)
		}
	}
}

func TestOwn(t *testing.T) {
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/apis":
			writeJSON(w, fmt.Sprintf(`{"auth":%q,"impersonates":%q}`, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User")))
		case "/base/openapi/v2":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{")
			io.CopyN(w, endless{}, 2<<20)
		case "/base/api":
			http.Redirect(w, r, "https://elsewhere.example.com/?token=x", http.StatusFound)
		}
	}))
	spec := specOf(v1alpha1.PassThrough, api)
	spec.Endpoints[0] += "/base"
	b := newBackend(t, spec, tokenOnly(t, "ours"), Options{MaxOwnBody: 1 << 20})
	client := &http.Client{Transport: b.Own()}

	read := func(path string) (string, error) {
		req := newRequest(t, http.MethodGet, "https://anything.invalid"+path, nil)
		req.Header.Set("Authorization", "Bearer somebody's")
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if body, err := read("/apis"); err != nil || body != `{"auth":"Bearer ours","impersonates":""}` {
		t.Errorf("got %s, %v", body, err)
	}
	anonymous := &http.Client{Transport: newBackend(t, spec, nil, Options{}).Own()}
	req := newRequest(t, http.MethodGet, "https://anything.invalid/apis", nil)
	req.Header.Set("Authorization", "Bearer somebody's")
	resp, err := anonymous.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != `{"auth":"","impersonates":""}` {
		t.Errorf("somebody's token passed: %s", body)
	}
	if body, err := read("/openapi/v2"); err == nil || !strings.Contains(err.Error(), `"widgets" answered /openapi/v2 with more than 1 MiB`) || len(body) != 1<<20 {
		t.Errorf("got %d bytes, %v", len(body), err)
	}
	if _, err := read("/api"); err == nil || !strings.Contains(err.Error(), `redirect (302) to "https://elsewhere.example.com/"`) || strings.Contains(err.Error(), "token") {
		t.Errorf("got %v", err)
	}
	if _, err := read("/../secrets"); err == nil || !strings.Contains(err.Error(), "..") {
		t.Errorf("got %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spec  v1alpha1.RemoteAPIServerSpec
		creds Credentials
		want  string
	}{
		"no URL":                 {v1alpha1.RemoteAPIServerSpec{}, nil, "no base URL"},
		"in clear":               {v1alpha1.RemoteAPIServerSpec{URL: "http://apis.example.com"}, nil, "in clear"},
		"a user in the URL":      {v1alpha1.RemoteAPIServerSpec{URL: "https://u:secret@apis.example.com"}, nil, "has a user"},
		"a climbing base":        {v1alpha1.RemoteAPIServerSpec{URL: "https://apis.example.com/a/%2e%2e/b"}, nil, ".."},
		"no scheme":              {v1alpha1.RemoteAPIServerSpec{URL: "apis.example.com"}, nil, "want https://"},
		"no word on the caller":  {v1alpha1.RemoteAPIServerSpec{URL: "https://a"}, nil, "Impersonate, the default, needs credentials"},
		"nobody to impersonate":  {v1alpha1.RemoteAPIServerSpec{URL: "https://a", Identity: v1alpha1.Identity{Mode: v1alpha1.Impersonate}}, nil, "needs credentials"},
		"front proxy by token":   {v1alpha1.RemoteAPIServerSpec{URL: "https://a", Identity: v1alpha1.Identity{Mode: v1alpha1.FrontProxy}}, tokenOnly(t, "t"), "client certificate"},
		"front proxy in clear":   {v1alpha1.RemoteAPIServerSpec{URL: "http://127.0.0.1", Identity: v1alpha1.Identity{Mode: v1alpha1.FrontProxy}}, clientCredentials(t, ""), "needs https"},
		"another mode":           {v1alpha1.RemoteAPIServerSpec{URL: "https://a", Identity: v1alpha1.Identity{Mode: "Trust"}}, nil, "want PassThrough"},
		"a bundle without a PEM": {v1alpha1.RemoteAPIServerSpec{URL: "https://a", CABundle: []byte("x"), Identity: v1alpha1.Identity{Mode: v1alpha1.PassThrough}}, nil, "caBundle"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New("widgets", c.spec, c.creds, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"widgets"`) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}
