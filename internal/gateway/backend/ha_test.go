package backend

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// replica is one endpoint of a server in HA: it counts callers' requests, and
// fails as it is told.
type replica struct {
	*httptest.Server
	name     string
	requests atomic.Int64
	code     atomic.Int64 // of callers' requests; 0 is 200, -1 breaks the connection
	readyz   atomic.Int64 // 0 is 200
}

func startReplica(t *testing.T, name string) *replica {
	r := &replica{name: name}
	r.Server = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, "/apis") {
			if c := r.readyz.Load(); c != 0 {
				w.WriteHeader(int(c))
			}
			return
		}
		r.requests.Add(1)
		switch c := r.code.Load(); c {
		case 0:
			body, _ := io.ReadAll(req.Body)
			writeJSON(w, fmt.Sprintf(`{"by":%q,"body":%q}`, name, body))
		case -1:
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(c))
			io.WriteString(w, `{"kind":"Status"}`)
		}
	}))
	return r
}

// replicas are a and b, of which a is the one that alice's requests go to first.
func replicas(t *testing.T, opts Options) (first, second *replica, b *Backend, gw *httptest.Server) {
	t.Helper()
	both := []*replica{startReplica(t, "one"), startReplica(t, "two")}
	b = newBackend(t, specOf(v1alpha1.PassThrough, both[0].Server, both[1].Server), nil, opts)
	gw = startGateway(t, b, alice)
	if _, body := get(t, gw, widgets); strings.Contains(body, "two") {
		slices.Reverse(both)
	}
	both[0].requests.Store(0)
	return both[0], both[1], b, gw
}

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		method      string
		code        int64 // of the first endpoint; -2: it is gone
		want        int   // what the caller gets
		first, both int64 // requests at the first endpoint, and at both
	}{
		"a read, connection refused":    {http.MethodGet, -2, 200, 0, 1},
		"a read, connection broken":     {http.MethodGet, -1, 200, 1, 2},
		"a read, 502":                   {http.MethodGet, 502, 200, 1, 2},
		"a read, 503":                   {http.MethodGet, 503, 200, 1, 2},
		"a read, 504 has taken long":    {http.MethodGet, 504, 504, 1, 1},
		"a read, 500 is an answer":      {http.MethodGet, 500, 500, 1, 1},
		"a read, 429 is an answer":      {http.MethodGet, 429, 429, 1, 1},
		"a write, connection refused":   {http.MethodPost, -2, 200, 0, 1},
		"a write, connection broken":    {http.MethodPost, -1, 502, 1, 1},
		"a write, 503":                  {http.MethodPost, 503, 503, 1, 1},
		"a delete, connection broken":   {http.MethodDelete, -1, 502, 1, 1},
		"a delete, connection refused":  {http.MethodDelete, -2, 200, 0, 1},
		"a HEAD, connection broken":     {http.MethodHead, -1, 200, 1, 2},
		"a patch, connection broken":    {http.MethodPatch, -1, 502, 1, 1},
		"an update, connection refused": {http.MethodPut, -2, 200, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			first, second, b, gw := replicas(t, Options{})
			if c.code == -2 {
				first.Close()
				b.connections.close()
			} else {
				first.code.Store(c.code)
			}
			var body io.Reader
			if c.method != http.MethodGet && c.method != http.MethodHead && c.method != http.MethodDelete {
				body = strings.NewReader("payload")
			}
			req := newRequest(t, c.method, gw.URL+widgets, body)
			req.Header.Set("Idempotency-Key", "1") // Go's client would repeat a write for this
			resp, answer := do(t, gw, req)
			if resp.StatusCode != c.want {
				t.Errorf("got %s: %s", resp.Status, answer)
			}
			if f, both := first.requests.Load(), first.requests.Load()+second.requests.Load(); f != c.first || both != c.both {
				t.Errorf("the first endpoint got %d requests, both %d; want %d and %d", f, both, c.first, c.both)
			}
			if c.want == 200 && body != nil && !strings.Contains(answer, `"body":"payload"`) {
				t.Errorf("the body is lost on the way to the second: %s", answer)
			}
			if c.method == http.MethodPost && c.code == -1 && !strings.Contains(answer, "unknown") {
				t.Errorf("the caller is not told that the outcome is unknown: %s", answer)
			}
		})
	}
}

// The connection to a server's only endpoint breaks: what reads is asked again,
// what writes is not.
func TestOnlyEndpoint(t *testing.T) {
	for method, want := range map[string]struct {
		code     int
		requests int64
	}{http.MethodGet: {200, 2}, http.MethodPost: {502, 1}, http.MethodDelete: {502, 1}} {
		var requests atomic.Int64
		api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			writeJSON(w, "{}")
		}))
		gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
		if resp, body := do(t, gw, newRequest(t, method, gw.URL+widgets, nil)); resp.StatusCode != want.code || requests.Load() != want.requests {
			t.Errorf("%s: %s after %d requests; %s", method, resp.Status, requests.Load(), body)
		}
	}
}

// Run lets go of the connections that nobody uses.
func TestRunClosesConnections(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "{}") }))
	var open atomic.Int64
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	b, err := New("widgets", specOf(v1alpha1.PassThrough, s), nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	get(t, startGateway(t, b, alice), widgets)
	if open.Load() == 0 {
		t.Fatal("no connection was kept")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "connections closed", func() bool { return open.Load() == 0 })
}

func TestWatchIsRetriedBeforeItsFirstByte(t *testing.T) {
	first, second, _, gw := replicas(t, Options{})
	first.code.Store(-1)
	if resp, body := get(t, gw, widgets+"?watch=1"); resp.StatusCode != http.StatusOK || !strings.Contains(body, second.name) {
		t.Errorf("got %s %s", resp.Status, body)
	}
}

// Callers keep to an endpoint each, and spread over all.
func TestCallersSpread(t *testing.T) {
	b := newBackend(t, v1alpha1.RemoteAPIServerSpec{Endpoints: []string{"https://a", "https://b", "https://c"}}, nil, Options{})
	now := time.Now()
	count := map[string]int{}
	for i := range 3000 {
		client := fmt.Sprint("user-", i)
		order := b.endpoints.Order(client, now)
		if len(order) != 3 || order[0] == order[1] || order[1] == order[2] || order[0] == order[2] {
			t.Fatalf("%s: an order of %d", client, len(order))
		}
		if again := b.endpoints.Order(client, now.Add(time.Hour)); !slices.Equal(order, again) {
			t.Fatalf("%s does not keep to its endpoint", client)
		}
		count[order[0].Base.Host]++
	}
	for host, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s gets %d of 3000 callers", host, n)
		}
	}
}

// TestEjection walks through the life of an endpoint that fails.
func TestEjection(t *testing.T) {
	b := newBackend(t, v1alpha1.RemoteAPIServerSpec{Endpoints: []string{"https://a", "https://b"}}, nil, Options{Ejection: Ejection{After: 3, For: time.Second}})
	now := time.Unix(0, 0)
	e := b.endpoints
	preferred := func() *endpoints.Endpoint { return e.Order("alice", now)[0] }
	bad := preferred()

	fail := func(want bool) {
		t.Helper()
		if got := e.Failed(bad, "it fails", now); got != want {
			t.Fatalf("ejected: %t, want %t", got, want)
		}
	}
	fail(false)
	fail(false)
	e.Succeeded(bad) // not in a row
	fail(false)
	fail(false)
	if preferred() != bad {
		t.Fatal("set aside too early")
	}
	fail(true)
	if preferred() == bad || len(e.Order("alice", now)) != 2 {
		t.Fatal("an ejected endpoint must come last, and stay at hand")
	}
	if h := e.Health(now); !h.Endpoints[slices.Index(e.All, bad)].Ejected || !h.Available {
		t.Errorf("health does not tell: %+v", h)
	}
	now = now.Add(time.Second)
	if preferred() != bad {
		t.Fatal("not back after its time")
	}
	for range 2 {
		fail(false)
	}
	fail(true)
	now = now.Add(time.Second)
	if preferred() == bad {
		t.Fatal("the second time is no longer than the first")
	}
	now = now.Add(time.Second)
	if preferred() != bad {
		t.Fatal("not back after twice its time")
	}
	for range 20 {
		fail(false)
		fail(false)
		fail(true)
		if now = now.Add(5 * time.Minute); preferred() != bad {
			t.Fatal("set aside for more than five minutes")
		}
	}

	single := newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: "https://a"}, nil, Options{Ejection: Ejection{After: 1}})
	if single.endpoints.Failed(single.endpoints.All[0], "", now) {
		t.Error("the only endpoint was set aside")
	}
}

func TestEjectionByRequests(t *testing.T) {
	var mu sync.Mutex
	seen := map[EventKind]int{}
	first, _, b, gw := replicas(t, Options{Ejection: Ejection{After: 3, For: time.Hour}, Observe: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		seen[e.Kind]++
		if e.Server != "widgets" {
			t.Errorf("event %+v names another server", e)
		}
	}})
	first.code.Store(503)
	for range 10 {
		if resp, body := get(t, gw, widgets); resp.StatusCode != http.StatusOK {
			t.Fatalf("got %s %s", resp.Status, body)
		}
	}
	if n := first.requests.Load(); n != 3 {
		t.Errorf("the failing endpoint got %d requests, want 3", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen[Ejected] != 1 || seen[Retried] != 3 || seen[Failed] != 0 {
		t.Errorf("observed %v", seen)
	}
	if !b.Health().Available {
		t.Error("the server is not available")
	}
}

// until waits for what health checks bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// run runs a backend until the test ends.
func run(t *testing.T, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestHealthChecks(t *testing.T) {
	quick := Options{Checks: Checks{Interval: 2 * time.Millisecond, Retry: time.Millisecond}}
	first, second, b, gw := replicas(t, quick)
	if h := b.Health(); !h.Available || h.Checked {
		t.Errorf("before any check: %+v", h)
	}
	run(t, b)
	until(t, "both healthy", func() bool { h := b.Health(); return h.Checked && h.Latency > 0 })

	first.readyz.Store(500)
	state := func(r *replica) endpoints.State {
		for _, e := range b.Health().Endpoints {
			if e.URL == r.URL {
				return e.State
			}
		}
		return ""
	}
	until(t, "the first unready", func() bool { return state(first) == endpoints.Unready })
	if _, body := get(t, gw, widgets); !strings.Contains(body, second.name) {
		t.Errorf("a request went to the endpoint that is not ready: %s", body)
	}
	second.readyz.Store(500)
	until(t, "both unready", func() bool { return !b.Health().Available })
	if resp, _ := get(t, gw, widgets); resp.StatusCode != http.StatusOK {
		t.Errorf("endpoints that are not ready are better than none: %s", resp.Status)
	}
	first.readyz.Store(0)
	until(t, "the first back", func() bool { return state(first) == endpoints.Healthy && b.Health().Available })
	first.Close()
	until(t, "the first down", func() bool { return state(first) == endpoints.Down })
	second.Close()
	until(t, "both down", func() bool {
		return state(second) == endpoints.Down && strings.Contains(b.Health().LastError, "connection refused")
	})
	resp, body := get(t, gw, widgets)
	if s := statusOf(t, resp, body); s.Code != http.StatusServiceUnavailable || causeOf(s) != NoEndpoint || !strings.Contains(s.Message, "connection refused") {
		t.Errorf("got %s", body)
	}
	if h := b.Health(); h.Available || !strings.Contains(h.LastError, "connection refused") {
		t.Errorf("health: %+v", h)
	}
}

// What a server answers to /readyz, /healthz and /version, and what that makes
// of it.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		codes map[string]int
		want  endpoints.State
		says  string
	}{
		"ready":                       {map[string]int{"/readyz": 200}, endpoints.Healthy, ""},
		"not ready":                   {map[string]int{"/readyz": 500, "/healthz": 200}, endpoints.Unready, "/readyz with 500"},
		"old":                         {map[string]int{"/readyz": 404, "/healthz": 200}, endpoints.Healthy, ""},
		"old and ill":                 {map[string]int{"/readyz": 404, "/healthz": 500}, endpoints.Unready, "/healthz with 500"},
		"keeps it to itself":          {map[string]int{"/readyz": 403, "/healthz": 403, "/version": 200}, endpoints.Healthy, ""},
		"keeps everything to itself":  {map[string]int{"/readyz": 401, "/healthz": 401, "/version": 403}, endpoints.Healthy, ""},
		"does not know the gateway":   {map[string]int{"/readyz": 401, "/healthz": 401, "/version": 401}, endpoints.Healthy, "own credentials"},
		"redirects":                   {map[string]int{"/readyz": 302}, endpoints.Unready, "redirect (302)"},
		"has only /version":           {map[string]int{"/readyz": 404, "/healthz": 404, "/version": 200}, endpoints.Healthy, ""},
		"is overloaded":               {map[string]int{"/readyz": 429}, endpoints.Unready, "429"},
		"fails with its last breath":  {map[string]int{"/readyz": 404, "/healthz": 404, "/version": 503}, endpoints.Unready, "503"},
		"has none of them, and lives": {map[string]int{"/readyz": 404, "/healthz": 404, "/version": 404}, endpoints.Healthy, ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer ours" || r.Header.Get("X-Remote-User")+r.Header.Get("Impersonate-User") != "" {
					t.Errorf("the check came with %v", r.Header)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.codes[strings.TrimPrefix(r.URL.Path, "/base")])
			}))
			spec := specOf(v1alpha1.Impersonate, api)
			spec.Endpoints[0] += "/base"
			b := newBackend(t, spec, tokenOnly(t, "ours"), Options{})
			if s, why, _ := (&checker{backend: b, endpoint: b.endpoints.All[0]}).check(t.Context()); s != c.want || !strings.Contains(why, c.says) || c.says == "" && why != "" {
				t.Errorf("got %s %q, want %s %q", s, why, c.want, c.says)
			}
		})
	}
}

// A caller is told apart by name and address.
func TestClientOf(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if clientOf(alice, r) == clientOf(&user.DefaultInfo{Name: "bob"}, r) {
		t.Error("alice and bob are one client")
	}
}
