package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/identity"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m,
		// Kubernetes' certificate watchers have no end of their own.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/server/dynamiccertificates.(*DynamicCertKeyPairContent).Run"),
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreCurrent())
}

// given is a source that says what a test tells it to.
type given struct {
	lists chan []*v1alpha1.RemoteAPIServer

	mu       sync.Mutex
	statuses map[string]v1alpha1.RemoteAPIServerStatus
}

func newGiven(servers ...*v1alpha1.RemoteAPIServer) *given {
	g := &given{lists: make(chan []*v1alpha1.RemoteAPIServer, 10), statuses: map[string]v1alpha1.RemoteAPIServerStatus{}}
	if servers != nil {
		g.lists <- servers
	}
	return g
}

func (g *given) Run(ctx context.Context, set func([]*v1alpha1.RemoteAPIServer)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-g.lists:
			set(l)
		}
	}
}

func (g *given) Credentials(*v1alpha1.RemoteAPIServer) (source.Credentials, error) {
	return source.Credentials{Token: "the-gateway"}, nil
}

func (g *given) SetStatus(name string, status v1alpha1.RemoteAPIServerStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.statuses[name] = status
}

func (g *given) Problem() string { return "" }

// apiServer is a server of one resource, things, in some groups. It answers
// with its own name, and with who it was told the caller is.
type apiServer struct {
	*httptest.Server
	name string

	mu     sync.Mutex
	groups []string
	hang   chan struct{} // not nil: nothing is answered until it is closed
}

func newAPIServer(t *testing.T, name string, groups ...string) *apiServer {
	s := &apiServer{name: name, groups: groups}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serve(groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = groups
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	groups, hang := s.groups, s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		return
	}
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/readyz":
		io.WriteString(w, "ok")
	case r.URL.Path == "/version":
		fmt.Fprintf(w, `{"gitVersion":%q}`, s.name)
	case r.URL.Path == "/apis":
		list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
		for _, g := range groups {
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: g},
				Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Freshness: "Current", Resources: []apidiscoveryv2.APIResourceDiscovery{{
					Resource: "things", SingularResource: "thing", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get", "list"},
					ResponseKind: &metav1.GroupVersionKind{Group: g, Version: "v1", Kind: "Thing"},
				}}}},
			})
		}
		json.NewEncoder(w).Encode(list)
	case r.URL.Query().Has("endless"):
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	case r.URL.Query().Has("watch"):
		fmt.Fprintf(w, `{"type":"ADDED","server":%q}`+"\n", s.name)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case strings.HasPrefix(r.URL.Path, "/apis/"):
		json.NewEncoder(w).Encode(map[string]any{"kind": "Thing", "server": s.name, "path": r.URL.Path,
			"authorization": r.Header.Get("Authorization"), "impersonate": r.Header.Get("Impersonate-User")})
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind":"Status","code":404}`)
	}
}

// object is the server's RemoteAPIServer.
func (s *apiServer) object(change ...func(*v1alpha1.RemoteAPIServerSpec)) *v1alpha1.RemoteAPIServer {
	o := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	o.Spec.URL = s.URL
	o.Spec.CABundle = pemOf(s.Certificate())
	o.Spec.ServerName = "example.com"
	o.Spec.Identity.Mode = v1alpha1.Impersonate
	o.Spec.Groups = []string{"*"}
	for _, c := range change {
		c(&o.Spec)
	}
	return o
}

// front is a gateway that runs, and a client of it.
type front struct {
	t       *testing.T
	gateway *Gateway
	url     string
	client  *http.Client
	stop    func()
}

// byToken knows the bearer of a token by the token itself.
var byToken = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name == "unsure" {
		return nil, false, utilerrors.NewAggregate([]error{&url.Error{Op: "Post", URL: "https://reviews", Err: io.EOF}})
	}
	if !ok || name == "wrong" {
		return nil, false, nil
	}
	r.Header.Del("Authorization")
	groups := []string{user.AllAuthenticated}
	if name == "root" {
		groups = append(groups, user.SystemPrivilegedGroup)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups}}, true, nil
})

func start(t *testing.T, src source.Source, change ...func(*Config)) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.LoadOwn(t.TempDir(), listener.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := dynamiccertificates.NewStaticCertKeyContent("serving", id.Serving.CertPEM, id.Serving.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Source: src, Listener: listener, Cert: cert, Authenticator: byToken, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.CA.CertPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	f := &front{t: t, gateway: s, url: "https://" + listener.Addr().String(), client: &http.Client{Transport: transport}}
	f.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// get asks as alice.
func (f *front) get(path string) (int, string) {
	f.t.Helper()
	return f.getAs("alice", path)
}

func (f *front) getAs(token, path string) (int, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := f.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// becomes waits for an answer to a path.
func (f *front) becomes(path string, code int, text string) {
	f.t.Helper()
	var gotCode int
	var got string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if gotCode, got = f.get(path); gotCode == code && strings.Contains(got, text) {
			return
		}
	}
	f.t.Fatalf("%s stays %d %.400s; want %d with %q", path, gotCode, got, code, text)
}

func TestRequestsGoToTheServerOfTheirGroup(t *testing.T) {
	a := newAPIServer(t, "a", "one.example.com", "two.example.com")
	b := newAPIServer(t, "b", "two.example.com", "three.example.com")
	src := newGiven(a.object(), b.object())
	f := start(t, src)
	f.becomes("/readyz", 200, "ok")
	f.becomes("/apis/one.example.com/v1/things", 200, `"server":"a"`)
	f.becomes("/apis/two.example.com/v1/things", 200, `"server":"a"`)
	f.becomes("/apis/three.example.com/v1/namespaces/n/things/x", 200, `"server":"b"`)
	f.becomes("/apis/three.example.com/v1/things", 200, `"impersonate":"alice"`)
	f.becomes("/apis/three.example.com/v1/things", 200, `"authorization":"Bearer the-gateway"`)
	f.becomes("/apis/four.example.com/v1/things", 404, `"kind":"Status"`)
	f.becomes("/servers", 200, `group \"two.example.com\" is held by server \"a\"`)
	f.becomes("/servers/b", 200, `"three.example.com/v1"`)
	if code, body := f.get("/apis"); code != 200 || strings.Count(body, `"name":"two.example.com"`) != 1 {
		t.Errorf("/apis: %d %s", code, body)
	}

	t.Run("a server that is removed goes", func(t *testing.T) {
		src.lists <- []*v1alpha1.RemoteAPIServer{b.object()}
		f.becomes("/apis/two.example.com/v1/things", 200, `"server":"b"`)
		f.becomes("/apis/one.example.com/v1/things", 404, "")
		f.becomes("/servers/a", 404, "")
	})
	t.Run("and one that is added appears", func(t *testing.T) {
		src.lists <- []*v1alpha1.RemoteAPIServer{a.object(), b.object()}
		f.becomes("/apis/one.example.com/v1/things", 200, `"server":"a"`)
		f.becomes("/apis/two.example.com/v1/things", 200, `"server":"b"`) // its holder keeps it
	})
	t.Run("a server that serves more is seen when somebody asks", func(t *testing.T) {
		a.serve("one.example.com", "new.example.com")
		f.becomes("/apis/new.example.com/v1/things", 200, `"server":"a"`)
	})
}

// TestOthersAreNotHeldUp: servers that hang, are not there, or send nonsense
// take nothing away from one that is well, nor from the gateway's start.
func TestOthersAreNotHeldUp(t *testing.T) {
	well := newAPIServer(t, "well", "well.example.com")
	hangs := newAPIServer(t, "hangs", "hangs.example.com")
	hangs.hang = make(chan struct{})
	t.Cleanup(func() { close(hangs.hang) })
	gone := newAPIServer(t, "gone", "gone.example.com")
	html := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello") }))
	t.Cleanup(html.Close)
	page := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "page"}}
	page.Spec.URL, page.Spec.CABundle, page.Spec.ServerName = html.URL, pemOf(html.Certificate()), "example.com"
	broken := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	broken.Spec.URL = "https://user@127.0.0.1/"
	named := func(groups ...string) func(*v1alpha1.RemoteAPIServerSpec) {
		return func(s *v1alpha1.RemoteAPIServerSpec) { s.Groups = groups }
	}
	src := newGiven(well.object(), hangs.object(named("hangs.example.com")), gone.object(named("gone.example.com")), page, broken)
	gone.Close()
	f := start(t, src)
	f.becomes("/apis/well.example.com/v1/things", 200, `"server":"well"`)
	f.becomes("/apis/gone.example.com/v1/things", 503, `\"gone\"`)
	f.becomes("/servers/gone", 200, `"reason": "Unreachable"`)
	f.becomes("/servers/page", 200, `"status": "False"`)
	f.becomes("/servers/broken", 200, `"reason": "Invalid"`)
	f.becomes("/readyz", 200, "ok")
}

// TestWhoMaySeeWhat: discovery and the servers' state are for those whom the
// gateway knows; what passes on the caller's own credentials is for anybody,
// for the server judges.
func TestWhoMaySeeWhat(t *testing.T) {
	told := newAPIServer(t, "told", "told.example.com")
	judges := newAPIServer(t, "judges", "judges.example.com")
	f := start(t, newGiven(told.object(), judges.object(func(s *v1alpha1.RemoteAPIServerSpec) { s.Identity.Mode = v1alpha1.PassThrough })))
	f.becomes("/apis/told.example.com/v1/things", 200, "")
	f.becomes("/apis/judges.example.com/v1/things", 200, `"authorization":"Bearer alice"`)
	for _, c := range []struct {
		token, path string
		code        int
	}{
		{"", "/healthz", 200}, {"", "/readyz", 200}, {"", "/apis", 401}, {"", "/servers", 401}, {"", "/metrics", 401},
		{"wrong", "/apis", 401}, {"unsure", "/apis", 503}, {"", "/apis/told.example.com/v1/things", 401}, {"wrong", "/apis/told.example.com/v1/things", 401},
		{"", "/apis/judges.example.com/v1/things", 200}, {"wrong", "/apis/judges.example.com/v1/things", 200},
		{"alice", "/metrics", 200}, {"alice", "/servers", 200}, {"alice", "/apis/told.example.com/v1", 200},
		{"alice", "/apis/told.example.com/v1/../v1/things", 400}, {"alice", "/apis//told.example.com/v1/things", 400},
	} {
		if code, body := f.getAs(c.token, c.path); code != c.code {
			t.Errorf("%q gets %d from %s; want %d: %s", c.token, code, c.path, c.code, body)
		}
	}
	if _, body := f.getAs("mallory", "/apis/told.example.com/v1/things"); strings.Contains(body, "Bearer mallory") {
		t.Errorf("a server that is told who calls has seen the caller's token: %s", body)
	}
}

func TestOnlyConformantServersWhereRequired(t *testing.T) {
	s := newAPIServer(t, "s", "one.example.com")
	f := start(t, newGiven(s.object()), func(c *Config) { c.RequireConformant = true })
	f.becomes("/servers/s", 200, `"reason": "NotAdmitted"`)
	f.becomes("/servers/s", 200, `"reason": "Failed"`)
	f.becomes("/apis/one.example.com/v1/things", 404, "")
	f.becomes("/servers/s/conformance", 200, `"outcome": "fail"`)
}

func TestGuardNeedsACore(t *testing.T) {
	s := newAPIServer(t, "s", "one.example.com")
	guarded := s.object(func(s *v1alpha1.RemoteAPIServerSpec) { s.Guard.Quota = true })
	src := newGiven(guarded)
	f := start(t, src)
	f.becomes("/servers/s", 200, "--core-kubeconfig")

	t.Run("until it is taken off", func(t *testing.T) {
		src.lists <- []*v1alpha1.RemoteAPIServer{s.object()}
		f.becomes("/apis/one.example.com/v1/things", 200, `"server":"s"`)
	})
	t.Run("and when it is put on later", func(t *testing.T) {
		src.lists <- []*v1alpha1.RemoteAPIServer{guarded}
		f.becomes("/apis/one.example.com/v1/things", 503, "--core-kubeconfig")
	})
}

// TestMetricsFollowTheSpec: an endpoint that a spec names no more is no metric.
func TestMetricsFollowTheSpec(t *testing.T) {
	a, b := newAPIServer(t, "a"), newAPIServer(t, "b")
	src := newGiven(a.object())
	f := start(t, src)
	healthy := func(s *apiServer) string {
		return fmt.Sprintf(`endpoint_healthy{endpoint=%q`, s.Listener.Addr().String())
	}
	f.becomes("/metrics", 200, healthy(a))
	moved := a.object()
	moved.Spec.URL, moved.Spec.CABundle = b.URL, pemOf(b.Certificate())
	src.lists <- []*v1alpha1.RemoteAPIServer{moved}
	f.becomes("/metrics", 200, healthy(b))
	// The old way is let go once what it does has ended.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, body := f.get("/metrics")
		if !strings.Contains(body, healthy(a)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the endpoint that was left stays: %s", healthy(a))
		}
	}
}

// TestWatchesEndWithTheirServer: of a server that was taken out nothing more is
// told, and a change of what is known of it ends nothing.
func TestWatchesEndWithTheirServer(t *testing.T) {
	a := newAPIServer(t, "a", "a.example.com")
	src := newGiven(a.object())
	f := start(t, src)
	f.becomes("/apis/a.example.com/v1/things", 200, `"server":"a"`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/apis/a.example.com/v1/things?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	resp, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	if line, err := events.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
		t.Fatalf("%q, %v", line, err)
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, events)
		close(ended)
	}()
	src.lists <- []*v1alpha1.RemoteAPIServer{a.object(func(s *v1alpha1.RemoteAPIServerSpec) { s.OpenAPIPath = "/elsewhere" })}
	f.becomes("/apis/a.example.com/v1/things", 200, `"server":"a"`)
	select {
	case <-ended:
		t.Fatal("the watch ended with a change of the server's spec")
	case <-time.After(100 * time.Millisecond):
	}
	src.lists <- []*v1alpha1.RemoteAPIServer{}
	<-ended
}

// TestStartsFromMemory: without its source, a gateway serves the servers that
// it knew, and who held a group still does.
func TestStartsFromMemory(t *testing.T) {
	cache := t.TempDir() + "/cache.json"
	a := newAPIServer(t, "a", "one.example.com")
	b := newAPIServer(t, "b", "one.example.com")
	src := newGiven(b.object())
	f := start(t, src, func(c *Config) { c.CacheFile = cache })
	f.becomes("/apis/one.example.com/v1/things", 200, `"server":"b"`)
	src.lists <- []*v1alpha1.RemoteAPIServer{a.object(), b.object()}
	f.becomes("/servers/a", 200, "is held by server")
	f.stop()
	f = start(t, newGiven(), func(c *Config) { c.CacheFile = cache })
	f.becomes("/apis/one.example.com/v1/things", 200, `"server":"b"`)
	f.becomes("/servers/a", 200, "is held by server")
}

// TestManyServers: a hundred servers with five groups each.
func TestManyServers(t *testing.T) {
	var objects []*v1alpha1.RemoteAPIServer
	for i := range 100 {
		var groups []string
		for g := range 5 {
			groups = append(groups, fmt.Sprintf("g%d.s%d.example.com", g, i))
		}
		objects = append(objects, newAPIServer(t, fmt.Sprintf("s%d", i), groups...).object())
	}
	begin := time.Now()
	f := start(t, newGiven(objects...))
	f.becomes("/readyz", 200, "ok")
	f.becomes("/apis/g4.s99.example.com/v1/things", 200, `"server":"s99"`)
	f.becomes("/apis/g0.s0.example.com/v1/things", 200, `"server":"s0"`)
	for i := range 100 {
		f.becomes(fmt.Sprintf("/apis/g4.s%d.example.com", i), 200, "")
	}
	if _, body := f.get("/apis"); strings.Count(body, `"preferredVersion":`) != 500 {
		t.Errorf("%d groups", strings.Count(body, `"preferredVersion":`))
	}
	t.Logf("500 groups of 100 servers after %v", time.Since(begin).Round(time.Millisecond))
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
