package traffic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const widgets = "/apis/example.com/v1/namespaces/default/widgets"

func newControl(t *testing.T, opts Options) *Control {
	t.Helper()
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve is a gateway that knows its callers by the header X-User.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = begun(t, r)
		if name := r.Header.Get("X-User"); name != "" {
			r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name}))
		}
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// begun is a request with its Call.
func begun(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	r, err := call.Begin(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(t *testing.T, s *httptest.Server, method, path, name string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", name)
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// gate holds requests until it is opened.
type gate struct{ entered, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 100), make(chan struct{})} }

func (g gate) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.entered <- struct{}{}
	<-g.open
	io.WriteString(w, "{}")
}

func TestLimits(t *testing.T) {
	limits := Limits{UserRequests: 2, UserStreams: 3, ServerRequests: 6, ServerStreams: 6}
	six := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
	const watch = widgets + "?watch=true"
	for name, c := range map[string]struct {
		path   string
		counts map[string]int // held, by user
		user   string
		want   int
		says   string
	}{
		"a user's requests":                  {widgets, map[string]int{"alice": 2}, "alice", 429, "the caller has too many requests"},
		"another user's":                     {widgets, map[string]int{"alice": 2}, "bob", 200, ""},
		"a user's streams":                   {watch, map[string]int{"alice": 3}, "alice", 429, "the caller has too many requests"},
		"a server's requests":                {widgets, six, "carol", 429, `API server "one" has too many requests`},
		"a server's streams":                 {watch, six, "carol", 429, `API server "one" has too many watches and streams`},
		"an address' requests":               {widgets, map[string]int{"": 2}, "", 429, "the caller has too many requests"},
		"anonymous is an address":            {widgets, map[string]int{"": 1, user.Anonymous: 1}, user.Anonymous, 429, "the caller"},
		"an address is not a user's":         {widgets, map[string]int{"": 2}, "alice", 200, ""},
		"a name like an address is a user's": {widgets, map[string]int{"": 2}, "address 127.0.0.1", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControl(t, Options{Limits: limits})
			g := newGate()
			one := p.Limit("one", g)
			two := p.Limit("two", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			s := serve(t, p.Callers(one))
			release := holdAll(t, g, s, c.path, c.counts)
			if c.want == 200 {
				// It enters the gate, and comes back when that opens.
				done := make(chan int)
				go func() { code, _, _ := ask(t, s, http.MethodGet, c.path, c.user); done <- code }()
				<-g.entered
				release()
				if code := <-done; code != 200 {
					t.Errorf("got %d", code)
				}
				return
			}
			code, h, body := ask(t, s, http.MethodGet, c.path, c.user)
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if code != c.want || status.Reason != metav1.StatusReasonTooManyRequests || h.Get("Retry-After") != "1" || !strings.HasPrefix(status.Message, c.says) {
				t.Errorf("got %d %v %s, want %q", code, h, body, c.says)
			}
			// The other server, and everybody after these have ended, have room.
			if strings.HasPrefix(name, "a server's") {
				w := httptest.NewRecorder()
				if two.ServeHTTP(w, begun(t, httptest.NewRequest(http.MethodGet, c.path, nil))); w.Code != 200 {
					t.Errorf("the other server: %d", w.Code)
				}
			}
			release()
			waitIdle(t, p)
			if code, _, body := ask(t, s, http.MethodGet, c.path, c.user); code != 200 {
				t.Errorf("afterwards: %d %s", code, body)
			}
		})
	}
}

// holdAll has requests wait in the gate, so many of each user.
func holdAll(t *testing.T, g gate, s *httptest.Server, path string, counts map[string]int) func() {
	t.Helper()
	total := 0
	done := make(chan int, 100)
	for name, n := range counts {
		total += n
		for range n {
			go func() { code, _, _ := ask(t, s, http.MethodGet, path, name); done <- code }()
		}
	}
	for range total {
		<-g.entered
	}
	return func() {
		close(g.open)
		for range total {
			if code := <-done; code != 200 {
				t.Errorf("a request within the limit got %d", code)
			}
		}
	}
}

// waitIdle waits until nothing is under way: an answer is there before its
// handler has ended.
func waitIdle(t *testing.T, p *Control) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		p.users.mu.Lock()
		n := len(p.users.busy)
		p.users.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d callers are still held to be busy", n)
		}
	}
}

func TestUserRate(t *testing.T) {
	u := newUsers(Limits{UserRequests: -1, UserStreams: -1, UserRate: 10, UserBurst: 3})
	now := time.Unix(0, 0)
	for i, want := range []bool{true, true, true, false} {
		if got := u.enter("a", short, now); got != want {
			t.Fatalf("request %d: %t", i, got)
		} else if got {
			u.leave("a", short)
		}
	}
	if !u.enter("b", short, now) {
		t.Error("b pays for a")
	}
	u.leave("b", short)
	if !u.enter("a", short, now.Add(100*time.Millisecond)) {
		t.Error("a gets nothing after a tenth of a second")
	}
	u.leave("a", short)
	for i := range 3 * rememberedRates {
		if u.enter(fmt.Sprint("user-", i), short, now) {
			u.leave(fmt.Sprint("user-", i), short)
		}
	}
	if u.rates.Len() > rememberedRates || len(u.busy) != 0 {
		t.Errorf("%d rates and %d callers are remembered", u.rates.Len(), len(u.busy))
	}
	if _, err := New(Options{Limits: Limits{UserRate: -1}}); err == nil {
		t.Error("a negative rate passes")
	}
}

// Whatever callers and servers write, the labels stay few.
func TestMetricsAreBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p := newControl(t, Options{Metrics: reg})
	codes := 0
	one := p.Limit("one", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200 + codes%600) }))
	h := p.Callers(one)
	for i := range 2000 {
		codes++
		r := begun(t, httptest.NewRequest(fmt.Sprint("METHOD", i), fmt.Sprint("/apis/g", i, "/v", i, "/r", i), nil))
		r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: fmt.Sprint("user-", i)}))
		call.Of(r).Info.Verb = fmt.Sprint("verb", i)
		h.ServeHTTP(httptest.NewRecorder(), r)
		p.Observe(backend.Event{Kind: backend.Failed, Server: fmt.Sprint("unknown-", i), Reason: backend.Broken})
	}
	if n := series(t, reg); n > 200 {
		t.Errorf("%d series after 2000 odd requests", n)
	}
	one.Close()
	one.Close()
	for i := range 100 {
		s := p.Limit(fmt.Sprint("server-", i), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.ServeHTTP(httptest.NewRecorder(), begun(t, httptest.NewRequest(http.MethodGet, "/", nil)))
		p.Observe(backend.Event{Kind: backend.Checked, Server: fmt.Sprint("server-", i), Endpoint: "a:1", State: endpoints.Healthy})
		s.Close()
		p.Observe(backend.Event{Kind: backend.Checked, Server: fmt.Sprint("server-", i), Endpoint: "a:1", State: endpoints.Healthy})
	}
	if n := series(t, reg); n != 0 {
		t.Errorf("%d series of servers that are gone", n)
	}
	if _, err := New(Options{Metrics: reg}); err == nil {
		t.Error("metrics registered twice")
	}
}

func series(t *testing.T, reg *prometheus.Registry) (n int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.Metric)
	}
	return n
}

// A handler of the same name that replaces another goes on with its metrics; a
// request under way when a server goes leaves none behind.
func TestServersComeAndGo(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p := newControl(t, Options{Metrics: reg})
	g := newGate()
	old := p.Limit("one", g)
	s := serve(t, p.Callers(old))
	release := holdAll(t, g, s, widgets+"?watch=1", map[string]int{"alice": 1})
	replacement := p.Limit("one", g)
	old.Close()
	want := "# HELP xbernetes_gateway_under_way Requests under way, by kind.\n# TYPE xbernetes_gateway_under_way gauge\n" +
		`xbernetes_gateway_under_way{kind="request",server="one"} 0` + "\n" + `xbernetes_gateway_under_way{kind="stream",server="one"} 1` + "\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "xbernetes_gateway_under_way"); err != nil {
		t.Error(err)
	}
	replacement.Close()
	release()
	waitIdle(t, p)
	if n := series(t, reg); n != 0 {
		t.Errorf("%d series of a server that is gone", n)
	}
}

// TestEndpointsComeAndGo: what was said of an endpoint ends when no handler has it.
func TestEndpointsComeAndGo(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p := newControl(t, Options{Metrics: reg})
	old := p.Limit("one", http.NotFoundHandler(), "stays:1", "goes:1")
	for _, endpoint := range []string{"stays:1", "goes:1"} {
		p.Observe(backend.Event{Kind: backend.Checked, Server: "one", Endpoint: endpoint, State: endpoints.Healthy})
		p.Observe(backend.Event{Kind: backend.Ejected, Server: "one", Endpoint: endpoint})
	}
	replacement := p.Limit("one", http.NotFoundHandler(), "stays:1")
	old.Close()
	const want = `
# HELP xbernetes_gateway_ejections_total Times that an endpoint was set aside for failing requests.
# TYPE xbernetes_gateway_ejections_total counter
xbernetes_gateway_ejections_total{endpoint="stays:1",server="one"} 1
# HELP xbernetes_gateway_endpoint_healthy 1 if the endpoint passed its last health check, else 0.
# TYPE xbernetes_gateway_endpoint_healthy gauge
xbernetes_gateway_endpoint_healthy{endpoint="stays:1",server="one"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "xbernetes_gateway_ejections_total", "xbernetes_gateway_endpoint_healthy"); err != nil {
		t.Error(err)
	}
	replacement.Close()
	if n := series(t, reg); n != 0 {
		t.Errorf("%d series of a server that is gone", n)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p := newControl(t, Options{Metrics: reg})
	one := p.Limit("one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		io.WriteString(w, "12345")
	}))
	s := serve(t, p.Callers(one))
	ask(t, s, http.MethodGet, widgets, "alice")
	ask(t, s, http.MethodGet, widgets+"/a", "alice")
	ask(t, s, http.MethodPost, widgets, "alice")
	ask(t, s, http.MethodGet, widgets+"?watch=1", "alice")
	for _, e := range []backend.Event{
		{Kind: backend.Failed, Reason: backend.Unreachable}, {Kind: backend.Retried}, {Kind: backend.Ejected, Endpoint: "a:1"},
		{Kind: backend.Checked, Endpoint: "a:1", State: endpoints.Healthy}, {Kind: backend.Checked, Endpoint: "a:2", State: endpoints.Down},
	} {
		e.Server = "one"
		p.Observe(e)
	}
	waitIdle(t, p)
	const want = `
# HELP xbernetes_gateway_ejections_total Times that an endpoint was set aside for failing requests.
# TYPE xbernetes_gateway_ejections_total counter
xbernetes_gateway_ejections_total{endpoint="a:1",server="one"} 1
# HELP xbernetes_gateway_endpoint_healthy 1 if the endpoint passed its last health check, else 0.
# TYPE xbernetes_gateway_endpoint_healthy gauge
xbernetes_gateway_endpoint_healthy{endpoint="a:1",server="one"} 1
xbernetes_gateway_endpoint_healthy{endpoint="a:2",server="one"} 0
# HELP xbernetes_gateway_failures_total Requests that a server did not answer, by reason.
# TYPE xbernetes_gateway_failures_total counter
xbernetes_gateway_failures_total{reason="Unreachable",server="one"} 1
# HELP xbernetes_gateway_requests_total Requests that have ended. An empty server is this process itself.
# TYPE xbernetes_gateway_requests_total counter
xbernetes_gateway_requests_total{code="200",server="one",verb="get"} 1
xbernetes_gateway_requests_total{code="200",server="one",verb="list"} 1
xbernetes_gateway_requests_total{code="200",server="one",verb="watch"} 1
xbernetes_gateway_requests_total{code="201",server="one",verb="create"} 1
# HELP xbernetes_gateway_retries_total Requests taken to another endpoint.
# TYPE xbernetes_gateway_retries_total counter
xbernetes_gateway_retries_total{server="one"} 1
# HELP xbernetes_gateway_sent_bytes_total Bytes of bodies sent to callers, upgraded streams apart.
# TYPE xbernetes_gateway_sent_bytes_total counter
xbernetes_gateway_sent_bytes_total{server="one"} 20
`
	names := []string{"ejections_total", "endpoint_healthy", "failures_total", "requests_total", "retries_total", "sent_bytes_total"}
	for i := range names {
		names[i] = "xbernetes_gateway_" + names[i]
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(p.metrics.duration); n != 3 {
		t.Errorf("durations of %d kinds, want 3: a watch has none", n)
	}
}

func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	p := newControl(t, Options{Access: slog.New(slog.NewJSONHandler(&out, nil))})
	one := p.Limit("one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "123")
		if r.Method == http.MethodDelete {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	s := serve(t, p.Callers(one))
	ask(t, s, http.MethodGet, widgets+"?token=hunter2", "alice")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.URL+widgets+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer hunter2")
	req.Header.Set("User-Agent", strings.Repeat("x", 10_000))
	if resp, err := s.Client().Do(req); err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Error("the aborted answer seems to end")
		}
	}
	waitIdle(t, p)
	s.Close()
	if strings.Contains(out.String(), "hunter2") || out.Len() > 4000 {
		t.Errorf("logged %s", out.String())
	}
	type line struct {
		Msg, Method, Path, Verb, User, Server string
		Code, Bytes                           int
		Aborted                               bool
	}
	var got []line
	for dec := json.NewDecoder(&out); ; {
		var l line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []line{
		{"request", "GET", widgets, "list", "alice", "one", 200, 3, false},
		{"request", "DELETE", widgets + "/a", "delete", "", "one", 200, 3, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A request is one trace from the caller to the server, through everything.
func TestTraces(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	p := newControl(t, Options{Tracer: tracer})
	var parent string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parent = r.Header.Get("Traceparent")
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}")
	}))
	t.Cleanup(api.Close)
	b, err := backend.New("one", v1alpha1.RemoteAPIServerSpec{URL: api.URL, Identity: v1alpha1.Identity{Mode: v1alpha1.PassThrough}}, nil, backend.Options{Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, p.Callers(p.Limit("one", b)))
	if code, _, body := ask(t, s, http.MethodGet, widgets, "alice"); code != 200 {
		t.Fatalf("got %d %s", code, body)
	}
	s.Close()
	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want that of the caller's request and that of the server's", len(spans))
	}
	inner, outer := spans[0], spans[1]
	if inner.SpanContext.TraceID() != outer.SpanContext.TraceID() || inner.Parent.SpanID() != outer.SpanContext.SpanID() || !strings.Contains(parent, inner.SpanContext.SpanID().String()) {
		t.Errorf("the spans %v and %v, of which the server was told %q, are not one trace", inner.SpanContext, outer.SpanContext, parent)
	}
	closeBackend(t, b)
}

// closeBackend lets a backend's idle connections go.
func closeBackend(t *testing.T, b *backend.Backend) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Error(err)
	}
}

// Upgrades and flushes reach through the recorder, and are noted.
func TestHijack(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	p := newControl(t, Options{Metrics: reg})
	one := p.Limit("one", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		conn.Close()
	}))
	s := serve(t, p.Callers(one))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	all, _ := io.ReadAll(bufio.NewReader(conn))
	if !strings.HasSuffix(string(all), "hello") {
		t.Errorf("got %q", all)
	}
	waitIdle(t, p)
	if n := testutil.ToFloat64(p.metrics.requests.WithLabelValues("one", "create", "101")) + testutil.ToFloat64(p.metrics.requests.WithLabelValues("one", "get", "101")); n != 1 {
		t.Errorf("%g upgrades were counted", n)
	}
}
