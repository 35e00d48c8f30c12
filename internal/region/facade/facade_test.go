package facade

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// front is a facade of three fake regions, and a caller.
type front struct {
	*testing.T
	regions map[string]*regiontest.Fake
	url     string
	client  *http.Client
	log     *bytes.Buffer // what New said
}

func start(t *testing.T, change ...func(*Config)) *front {
	t.Helper()
	f := &front{T: t, regions: regiontest.Fakes(t), log: &bytes.Buffer{}}
	cfg := Config{Regions: client.Config{Register: "eu", Regions: map[string]*rest.Config{}}, Log: slog.New(slog.NewTextHandler(f.log, nil))}
	for name, r := range f.regions {
		cfg.Regions.Regions[name] = r.Reach()
		r.Else = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"Echo","region":%q,"uri":%q,"header":%q}`, name, r.URL.RequestURI(), fmt.Sprint(r.Header))
		})
	}
	var err error
	if cfg.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	made, err := Serving{DataDir: dir}.Open(cfg.Listener.Addr(), cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	cfg.Cert = made.Provider
	for _, c := range change {
		c(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.url = "https://" + cfg.Listener.Addr().String()
	f.client = &http.Client{Transport: &http.Transport{TLSClientConfig: trust(t, made)}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the facade ended with %v", err)
		}
	})
	return f
}

// trust returns the TLS configuration of a client that trusts the facade alone.
func trust(t *testing.T, made *Certificate) *tls.Config {
	t.Helper()
	cert, _ := made.Provider.CurrentCertKeyContent()
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{RootCAs: pool}
}

// ask sends a request with headers, each NAME: VALUE, and returns code and body.
func (f *front) ask(method, path string, headers ...string) (int, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url, nil)
	if err != nil {
		f.Fatal(err)
	}
	// Opaque, so that the client sends the path as it stands.
	r.URL = &url.URL{Scheme: "https", Host: r.URL.Host, Opaque: path}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// gets asks for a path, and checks the code, and that the body has a text.
func (f *front) gets(path string, code int, text string, headers ...string) {
	f.Helper()
	if got, body := f.ask(http.MethodGet, path, headers...); got != code || !strings.Contains(body, text) {
		f.Errorf("GET %s answers %d %.2000s, want %d and %q", path, got, body, code, text)
	}
}

const caller = "Authorization: Bearer " + regiontest.Known

func TestRequestsReachTheRegionThatIsNamed(t *testing.T) {
	f := start(t)
	f.gets("/regions/us/api/v1/namespaces?limit=5", 200, `"region":"us","uri":"/api/v1/namespaces?limit=5"`, caller)
	f.gets("/serviceclusters/tokyo/api/v1/namespaces", 200, `"region":"ap","uri":"/api/v1/namespaces"`, caller)
	f.gets("/regions/us", 200, `"uri":"/"`, caller)
	f.gets("/regions/nowhere/api", 404, "not configured", caller)
	f.gets("/serviceclusters/osaka/api", 404, "there is none", caller)
	f.gets("/healthz", 200, "ok")
}

// TestMetricsCountRequestsOfEachRegion: callers cannot make labels by the names, verbs or
// paths that they ask for.
func TestMetricsCountRequestsOfEachRegion(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := start(t, func(c *Config) { c.Metrics = registry })
	f.gets("/regions/us/api/v1/namespaces", 200, "us", caller)
	f.gets("/serviceclusters/tokyo/api/v1/namespaces/x", 200, "ap", caller)
	for i := range 20 {
		f.gets(fmt.Sprintf("/regions/nowhere-%d/api/v1/pods", i), 404, "not configured", caller)
		f.gets(fmt.Sprintf("/serviceclusters/osaka-%d/api", i), 404, "there is none", caller)
		f.ask(fmt.Sprintf("BREW%d", i), "/regions/us/api/v1/namespaces", caller)
	}
	count := map[string]float64{}
	if !eventually(func() bool { // a request is counted once its answer has left
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		clear(count)
		for _, family := range families {
			if family.GetName() != "xb_region_facade_requests_total" {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "server" {
						count[l.GetValue()] += m.GetCounter().GetValue()
					}
				}
			}
			if n := len(family.GetMetric()); n > 6 {
				t.Fatalf("%d series of %s", n, family.GetName())
			}
		}
		return count["us"] == 21 && count["ap"] == 1 && count[""] == 40
	}) {
		t.Errorf("requests by region: %v; want 21 to us, 1 to ap, and 40 that lead nowhere", count)
	}
}

// eventually says whether done becomes true while a test waits.
func eventually(done func() bool) bool {
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func TestWithoutATokenNothingIsSaid(t *testing.T) {
	f := start(t)
	for _, path := range []string{"/regions/eu/api", "/regions/nowhere/api", "/serviceclusters/tokyo/api", "/", "/apis"} {
		f.gets(path, 401, "send a bearer token")
		f.gets(path, 401, "with a bearer token", "Authorization: Basic dTpw")
		f.gets(path, 401, "one Authorization header", caller, "Authorization: Bearer other")
	}
}

func TestANameIsToldOnlyToWhomTheRegionTellsIt(t *testing.T) {
	f := start(t)
	f.gets("/serviceclusters/tokyo/api/v1/namespaces", 200, `"region":"ap"`, caller)
	const other = "Authorization: Bearer other"
	_, there := f.ask(http.MethodGet, "/serviceclusters/tokyo/api", other)
	_, nowhere := f.ask(http.MethodGet, "/serviceclusters/osaka/api", other)
	if !strings.Contains(there, `"code":403`) || !strings.Contains(nowhere, `"code":403`) || strings.Contains(there, "ap") != strings.Contains(nowhere, "ap") {
		t.Errorf("who may not read names is told %s of one that is there, and %s of one that is not", there, nowhere)
	}
}

func TestAPathLeadsWhereItIsRead(t *testing.T) {
	f := start(t)
	for _, path := range []string{
		"/regions/eu/../us/api", "/regions/eu/%2e%2e/us/api", "/regions/eu/%252e%252e/us", "/regions/eu//api", "/regions/eu/api%2fv1",
		"/regions/eu/api/v1/..;/x", `/regions/eu/api%5cv1`, "/regions/eu/api/v1/namespaces/n/services/s/proxy/../x",
		"/regions/../eu/api", "/regions/e%75/api", "/regions/EU/api", "/regions//api", "/regions/eu%2fapi", "//regions/eu/api",
		"/serviceclusters/tokyo/../eu/api", "/serviceclusters/tok%79o/api", "/Regions/eu/api", "/regions%2feu/api",
	} {
		if code, body := f.ask(http.MethodGet, path, caller); code != 400 && code != 404 || strings.Contains(body, "Echo") {
			t.Errorf("%s leads somewhere: %d %s", path, code, body)
		}
	}
	f.gets("/regions/eu/api/v1/namespaces/n/services/s/proxy/a%2Fb", 200, `/proxy/a%2Fb"`, caller)
}

func TestOnlyTheCallerIsShownToARegion(t *testing.T) {
	secret := rest.TLSClientConfig{CertData: []byte("none"), KeyData: []byte("none")}
	f := start(t, func(c *Config) {
		for name, r := range c.Regions.Regions {
			r.BearerToken, r.CertData, r.KeyData = "secret-of-"+name, secret.CertData, secret.KeyData
		}
	})
	if !strings.Contains(f.log.String(), "which are not used") || strings.Contains(f.log.String(), "secret-of") {
		t.Errorf("the log says %s", f.log)
	}
	_, body := f.ask(http.MethodGet, "/serviceclusters/tokyo/api", caller, "X-Remote-User: root", "X_Remote_User: root", "Cookie: a=b",
		"X-Forwarded-For: 1.2.3.4", "Impersonate-User: jane")
	for text, want := range map[string]bool{"Bearer known": true, "Impersonate-User:[jane]": true, "secret-of": false, "root": false, "Cookie": false, "1.2.3.4": false} {
		if strings.Contains(body, text) != want {
			t.Errorf("the region sees %s; %q must be there: %v", body, text, want)
		}
	}
	f.gets("/regions/eu/api", 400, "Connection", caller, "Connection: Authorization")
}

func TestAnotherRegionGoesOnWhenOneIsAway(t *testing.T) {
	f := start(t)
	f.gets("/serviceclusters/tokyo/api/v1/namespaces", 200, `"region":"ap"`, caller)
	f.regions["ap"].Close()
	if code, body := f.ask(http.MethodGet, "/regions/ap/api", caller); code != 502 && code != 503 || !strings.Contains(body, `\"ap\"`) {
		t.Errorf("a region that is away answers %d %s", code, body)
	}
	f.gets("/regions/us/api", 200, `"region":"us"`, caller)
	if code, body := f.ask(http.MethodGet, "/serviceclusters/tokyo/api/v1/namespaces", caller); code != 502 && code != 503 {
		t.Errorf("its service cluster answers %d %s", code, body)
	}
}

func TestAWrongRouteHealsItself(t *testing.T) {
	f := start(t)
	f.regions["ap"].Else = http.NotFoundHandler()
	f.gets("/serviceclusters/tokyo/anything", 404, "", caller)
	for _, r := range f.regions {
		r.Move("tokyo", "us")
	}
	// Without the 404, the home would be asked for after 30 seconds.
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if code, body := f.ask(http.MethodGet, "/serviceclusters/tokyo/anything", caller); code == 200 {
			if !strings.Contains(body, `"region":"us"`) {
				t.Errorf("tokyo leads to %s", body)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("tokyo leads to its old region for ever")
		}
	}
}

func TestAHomeThatIsNoRegionLeadsNowhere(t *testing.T) {
	f := start(t)
	for _, r := range f.regions {
		r.Move("tokyo", "mars")
	}
	f.gets("/serviceclusters/tokyo/anything", 503, "mars", caller)
}

func TestWatchesStream(t *testing.T) {
	f := start(t)
	more := make(chan struct{})
	f.regions["ap"].Else = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprintln(w, "second")
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/serviceclusters/tokyo/api/v1/namespaces?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+regiontest.Known)
	resp, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if lines.Scan(); lines.Text() != "first" {
		t.Errorf("the first event is %q", lines.Text())
	}
	close(more)
	if lines.Scan(); lines.Text() != "second" {
		t.Errorf("the second event is %q", lines.Text())
	}
}

func TestUpgradesPass(t *testing.T) {
	f := start(t)
	f.regions["ap"].Else = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("heard " + line)
		_ = rw.Flush()
	})
	config := f.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /serviceclusters/tokyo/api/v1/namespaces/n/pods/p/exec?command=sh HTTP/1.1\r\nHost: x\r\n%s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", caller)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade answers %v, %v", resp, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := in.ReadString('\n'); err != nil || line != "heard hello\n" {
		t.Errorf("the other side says %q, %v", line, err)
	}
}

// TestOneAddressDoesNotHoldARegion: requests that hang are bounded for each address.
func TestOneAddressDoesNotHoldARegion(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits = traffic.Limits{ServerRequests: 4} })
	hold, entered := make(chan struct{}), make(chan struct{}, 2)
	f.regions["eu"].Else = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-hold
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/regions/eu/anything", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+regiontest.Known)
		go func() {
			if resp, err := f.client.Do(r); err == nil {
				resp.Body.Close()
			}
		}()
		<-entered
	}
	f.gets("/regions/eu/anything", 429, "too many requests", caller)
	f.gets("/regions/us/anything", 200, `"region":"us"`, caller)
	close(hold)
}

func TestRegionsThatTokensMustNotGoTo(t *testing.T) {
	for name, test := range map[string]struct {
		region rest.Config
		want   string
	}{
		"a certificate that is not verified": {rest.Config{Host: "https://eu", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "insecure-skip-tls-verify"},
		"a proxy":                            {rest.Config{Host: "https://eu", Proxy: http.ProxyFromEnvironment}, "proxy-url"},
		"no TLS":                             {rest.Config{Host: "http://eu"}, "in clear"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{Regions: client.Config{Register: "eu", Regions: map[string]*rest.Config{"eu": &test.region}}, Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "region eu") {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			_, err = New(Config{Regions: client.Config{Regions: map[string]*rest.Config{"eu": {Host: "https://eu"}}, Central: &test.region}, Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "the central store") {
				t.Errorf("of the central store, the error is %v, want %q", err, test.want)
			}
		})
	}
}

const group = "/apis/region.xbernetes.io/v1alpha1"

func TestNamesAreServedAsObjects(t *testing.T) {
	f := start(t)
	f.gets(group+"/serviceclusters/tokyo", 200, `"region":"ap"`, caller)
	f.gets(group+"/serviceclusters", 200, `"name":"tokyo"`, caller)
	f.gets(group+"/serviceclusters", 200, `"columnDefinitions"`, caller, "Accept: application/json;as=Table;g=meta.k8s.io;v=v1")
	f.gets(group+"/serviceclusters/osaka", 404, "NotFound", caller)
	f.gets(group+"/serviceclusters", 403, "memberships", "Authorization: Bearer other")
	// What says nothing of any region is for everybody.
	f.gets(group, 200, `"serviceclusterassignments"`, "Authorization: Bearer other")
	f.gets("/openapi/v3/apis/region.xbernetes.io/v1alpha1", 200, "io.xbernetes.region.v1alpha1.AccountList", "Authorization: Bearer other", "Accept: application/json")
}

func TestNamesAreNotServedAsProtobuf(t *testing.T) {
	f := start(t)
	f.gets(group+"/serviceclusters", 406, "NotAcceptable", caller, "Accept: application/vnd.kubernetes.protobuf")
	f.gets(group+"/serviceclusters", 200, "tokyo", caller, "Accept: application/json")
	f.gets(group+"/serviceclusters", 200, `"name":"tokyo"`, caller, "Accept: application/vnd.kubernetes.protobuf,application/json")
}

func TestWhatIsNotServedIsRefused(t *testing.T) {
	f := start(t)
	for _, test := range []struct {
		method, path string
		code         int
		headers      []string
	}{
		{http.MethodGet, group + "/serviceclusters?timeout=abc", 400, nil},
		{http.MethodGet, group + "/serviceclusters?watch=true&resourceVersion=garbage", 410, nil},
		{http.MethodGet, group + "/serviceclusters?fieldSelector=spec.region=ap", 400, nil},
		{http.MethodGet, group + "/serviceclusters/..%2Ftokyo", 404, nil},
		{http.MethodGet, group + "/serviceclusters", 403, []string{"Impersonate-User: jane"}},
		{http.MethodGet, group + "/claims", 404, nil},
		{http.MethodPatch, group + "/serviceclusters/tokyo", 405, []string{"Content-Type: application/merge-patch+json"}},
		{http.MethodPut, group + "/serviceclusters/tokyo", 405, nil},
		{http.MethodDelete, group + "/serviceclusters", 405, nil},
		{http.MethodPost, group + "/serviceclusters", 400, nil},
		{http.MethodGet, "/metrics", 404, nil},
		{http.MethodGet, "/debug/pprof/", 404, nil},
		{http.MethodGet, "/statusz", 404, nil},
		{http.MethodGet, "/api/v1/namespaces", 404, nil},
	} {
		if code, body := f.ask(test.method, test.path, append(test.headers, caller)...); code != test.code {
			t.Errorf("%s %s answers %d %s, want %d", test.method, test.path, code, body, test.code)
		}
	}
}
