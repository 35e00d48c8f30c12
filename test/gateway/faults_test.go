package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/certificate"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A badServer is a small API server that is well until it is told otherwise.
// It serves things in the group NAME.example.com.
type badServer struct {
	*httptest.Server
	name   string
	caFile string
	mode   atomic.Value // string
	good   tls.Certificate
	bad    tls.Certificate // expired
	hung   chan struct{}   // a request hangs
	ended  chan struct{}   // and its caller is gone
}

func (b *badServer) things() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: b.name + ".example.com", Version: "v1", Resource: "things"}
}

func newBadServer(t *testing.T, a *certificate.Authority, name string) *badServer {
	t.Helper()
	b := &badServer{name: name, caFile: a.CertFile, hung: make(chan struct{}, 1000), ended: make(chan struct{}, 1000)}
	b.mode.Store("well")
	load := func(until time.Time) tls.Certificate {
		cert, err := tls.LoadX509KeyPair(a.Issue(t, name, until))
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	b.good, b.bad = load(time.Now().Add(time.Hour)), load(time.Now().Add(-time.Hour))
	b.Server = httptest.NewUnstartedServer(b)
	b.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if b.mode.Load() == "expired" {
			return &tls.Config{Certificates: []tls.Certificate{b.bad}}, nil
		}
		return &tls.Config{Certificates: []tls.Certificate{b.good}}, nil
	}}
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

// turn makes the server bad, on the connections that are open as well.
func (b *badServer) turn(mode string) {
	b.mode.Store(mode)
	if mode == "dead" {
		b.Close()
	}
	b.CloseClientConnections()
}

func (b *badServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch b.mode.Load() {
	case "slow":
		select {
		case <-time.After(3 * time.Second):
		case <-r.Context().Done():
			return
		}
	case "hanging":
		if strings.HasSuffix(r.URL.Path, "/things") {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"kind":"ThingList","apiVersion":"`+b.things().GroupVersion().String()+`","items":[`)
			w.(http.Flusher).Flush()
			b.hung <- struct{}{}
			<-r.Context().Done()
			b.ended <- struct{}{}
			return
		}
	case "garbage":
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("\x00\x01\x02 this is no JSON \xff"))
		return
	case "redirecting":
		http.Redirect(w, r, "https://elsewhere.example.com/login", http.StatusFound)
		return
	case "html":
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html><body>Please log in</body></html>")
		return
	}
	b.serve(w, r)
}

func (b *badServer) serve(w http.ResponseWriter, r *http.Request) {
	gvr := b.things()
	gv := gvr.GroupVersion().String()
	version := map[string]any{"groupVersion": gv, "version": "v1"}
	group := map[string]any{"name": gvr.Group, "versions": []any{version}, "preferredVersion": version}
	reply := func(o map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(o)
	}
	switch path := r.URL.Path; {
	case path == "/apis" && b.mode.Load() == "huge":
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[`)
		line := fmt.Appendf(nil, `{"name":"g%%d.huge.example.com","versions":[{"groupVersion":"g/v1","version":"v1"}],"preferredVersion":{"groupVersion":"g/v1","version":"%s"}},`, strings.Repeat("v", 1000))
		for sent := 0; sent < 50<<20; sent += len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		io.WriteString(w, `{"name":"last"}]}`)
	case path == "/apis":
		reply(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group}})
	case path == "/apis/"+gv:
		reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": []any{map[string]any{
			"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": []string{"get", "list"}}}})
	case strings.HasSuffix(path, "/things"):
		reply(map[string]any{"kind": "ThingList", "apiVersion": gv, "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	case path == "/readyz", path == "/healthz", path == "/livez":
		io.WriteString(w, "ok")
	default:
		http.NotFound(w, r)
	}
}

// TestFaults puts servers behind one gateway that go wrong in every way while
// they are asked. Whoever asks them gets a Status that names the server; who
// asks others does not notice.
func TestFaults(t *testing.T) {
	w := world.Start(t)
	authority := certificate.NewAuthority(t, t.TempDir(), "faults-ca")
	modes := []string{"dead", "slow", "hanging", "garbage", "redirecting", "html", "expired"}
	entries := []string{w.CoreEntry(t), w.SampleEntry(t), w.XBEntry(t)}
	servers := map[string]*badServer{}
	for _, mode := range modes {
		servers[mode] = newBadServer(t, authority, mode)
		entries = append(entries, world.Entry(t, mode, servers[mode].URL, authority.CertFile, "groups: ["+mode+".example.com]", "identity: {mode: PassThrough}"))
	}
	w.Write(t, entries...)
	_, dyn := w.Gateway.Clients(t)
	for _, mode := range modes {
		awaitStatus(t, w, mode, func(s serverStatus) bool { return len(s.GroupVersions) == 1 })
		wait.Poll(t, time.Minute, mode+" is served while it is well", func(ctx context.Context) error {
			_, err := dyn.Resource(servers[mode].things()).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	wait.Poll(t, time.Minute, "the servers that are well are served", func(ctx context.Context) error {
		_, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{})
		return err
	})
	before := memory(t, w.Gateway.Process)
	for _, mode := range modes {
		servers[mode].turn(mode)
	}
	others := keepAsking(t, w)

	for _, mode := range []string{"dead", "garbage", "redirecting", "html", "expired"} {
		t.Run(mode, func(t *testing.T) { namesTheServer(t, dyn, servers[mode]) })
	}
	t.Run("slow", func(t *testing.T) {
		if _, err := dyn.Resource(servers["slow"].things()).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("a list at a server that takes 3 s fails: %v", err)
		}
	})
	t.Run("hanging", func(t *testing.T) { cancelled(t, dyn, servers["hanging"]) })
	t.Run("shadow", func(t *testing.T) { shadow(t, w, authority, entries) })
	t.Run("50 MB of discovery", func(t *testing.T) {
		huge := newBadServer(t, authority, "huge")
		huge.turn("huge")
		w.Write(t, append(slices.Clone(entries), world.Entry(t, "huge", huge.URL, authority.CertFile, `groups: ["*"]`, "identity: {mode: PassThrough}"))...)
		status := awaitStatus(t, w, "huge", func(s serverStatus) bool { return s.condition("Available").Status == "False" })
		t.Logf("Available: %s", status.condition("Available").Message)
	})
	others(t)
	after := memory(t, w.Gateway.Process)
	t.Logf("the gateway holds %d MiB, and %d MiB before the faults", after>>20, before>>20)
	if after > before+300<<20 {
		t.Errorf("the gateway holds %d MiB, and held %d MiB before the faults", after>>20, before>>20)
	}
	for _, mode := range []string{"dead", "garbage", "redirecting", "html", "expired"} {
		status := awaitStatus(t, w, mode, func(s serverStatus) bool { return s.condition("Available").Status == "False" })
		t.Logf("%s: %s: %s", mode, status.condition("Available").Reason, status.condition("Available").Message)
	}
}

// keepAsking asks the servers that are well, until it is called back: then it
// fails the test if any was not answered.
func keepAsking(t *testing.T, w *world.World) func(*testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var took []time.Duration
	var failed []error
	var wg sync.WaitGroup
	typed, dyn := w.Gateway.Clients(t)
	ask := func(f func(context.Context) error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				asked, cancel := context.WithTimeout(ctx, 30*time.Second)
				begun := time.Now()
				err := f(asked)
				cancel()
				mu.Lock()
				if ctx.Err() == nil && err != nil {
					failed = append(failed, err)
				} else if err == nil {
					took = append(took, time.Since(begun))
				}
				mu.Unlock()
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	ask(func(ctx context.Context) error {
		_, err := typed.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	ask(func(ctx context.Context) error {
		_, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{})
		return err
	})
	ask(func(context.Context) error {
		_, err := typed.Discovery().ServerGroups()
		return err
	})
	return func(t *testing.T) {
		t.Helper()
		stop()
		wg.Wait()
		slices.Sort(took)
		if len(took) == 0 {
			t.Fatal("nothing was answered")
		}
		t.Logf("meanwhile %d requests to the others: p50 %v, p99 %v, longest %v", len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		if len(failed) > 0 {
			t.Errorf("%d requests to servers that are well failed, the first: %v", len(failed), failed[0])
		}
	}
}

// namesTheServer wants an error that a Kubernetes client understands, and that
// says which server it is about.
func namesTheServer(t *testing.T, dyn dynamic.Interface, b *badServer) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		_, err := dyn.Resource(b.things()).List(ctx, metav1.ListOptions{})
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) {
			t.Fatalf("the error is no Status: %v", err)
		}
		s := status.Status()
		if s.Code < 500 || !strings.Contains(s.Message, `"`+b.name+`"`) {
			t.Errorf("the Status says %d %s: %s; want 5xx that names %q", s.Code, s.Reason, s.Message, b.name)
		}
		t.Logf("%d %s: %s", s.Code, s.Reason, s.Message)
	}
}

// cancelled: fifty callers wait for lists that stop half-way; when they go, so
// do the gateway's requests.
func cancelled(t *testing.T, dyn dynamic.Interface, b *badServer) {
	const callers = 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan error, callers)
	for range callers {
		go func() {
			_, err := dyn.Resource(b.things()).List(ctx, metav1.ListOptions{})
			results <- err
		}()
	}
	for range callers {
		select {
		case <-b.hung:
		case <-time.After(time.Minute):
			t.Fatal("not all requests reach the server")
		}
	}
	cancel()
	for range callers {
		if err := <-results; err == nil {
			t.Error("half a list is taken for a list")
		}
	}
	for range callers {
		select {
		case <-b.ended:
		case <-time.After(time.Minute):
			t.Fatal("the gateway goes on asking for callers that are gone")
		}
	}
}

// shadow registers a server that claims groups of others.
func shadow(t *testing.T, w *world.World, a *certificate.Authority, entries []string) {
	thief := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := func(o map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(o)
		}
		groups := []any{}
		for _, name := range []string{"apps", flunders.Group, "own.example.com"} {
			version := map[string]any{"groupVersion": name + "/v1", "version": "v1"}
			groups = append(groups, map[string]any{"name": name, "versions": []any{version}, "preferredVersion": version})
		}
		switch path := strings.Trim(r.URL.Path, "/"); {
		case path == "api":
			reply(map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
		case path == "apis":
			reply(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
		case strings.Count(path, "/") == 2 || path == "api/v1":
			gv := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
			reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": []any{map[string]any{
				"name": "stolen", "singularName": "stolen", "namespaced": false, "kind": "Stolen", "verbs": []string{"get", "list"}}}})
		default:
			reply(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "from the thief"})
		}
	}))
	cert, err := tls.LoadX509KeyPair(a.Issue(t, "thief", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	thief.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	thief.StartTLS()
	defer thief.Close()
	defer w.Write(t, entries...)
	for _, groups := range [][]string{{"groups: [own.example.com, " + flunders.Group + "]"}, {`groups: ["*"]`, "priority: 20000"}} {
		w.Write(t, append(slices.Clone(entries), world.Entry(t, "thief", thief.URL, a.CertFile, append(groups, "identity: {mode: PassThrough}")...))...)
		status := awaitStatus(t, w, "thief", func(s serverStatus) bool {
			return slices.Contains(s.GroupVersions, "own.example.com/v1") && s.condition("GroupsUnique").Status == "False"
		})
		if m := status.condition("GroupsUnique").Message; !strings.Contains(m, "sample") || !strings.Contains(m, flunders.Group) {
			t.Errorf("GroupsUnique says %q; want it to name the server that holds %s", m, flunders.Group)
		}
		t.Logf("%v: %s", groups, status.condition("GroupsUnique").Message)
		if !slices.Equal(status.GroupVersions, []string{"own.example.com/v1"}) {
			t.Errorf("the thief is sent %v", status.GroupVersions)
		}
		typed, dyn := w.Gateway.Clients(t)
		if _, err := typed.AppsV1().Deployments("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("list deployments: %v", err)
		}
		if _, err := typed.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Errorf("get the namespace: %v", err)
		}
		if _, err := dyn.Resource(flunders).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("list flunders: %v", err)
		}
		w.Write(t, entries...)
	}
}

// serverStatus is what the gateway says of one server at /servers.
type serverStatus struct {
	Conditions    []metav1.Condition
	GroupVersions []string
}

func (s serverStatus) condition(name string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{}
}

func awaitStatus(t *testing.T, w *world.World, name string, want func(serverStatus) bool) serverStatus {
	t.Helper()
	typed, _ := w.Gateway.Clients(t)
	var got struct {
		Status serverStatus
	}
	wait.Poll(t, time.Minute, "the gateway's word on "+name, func(ctx context.Context) error {
		data, err := typed.Discovery().RESTClient().Get().AbsPath("/servers/" + name).DoRaw(ctx)
		if err != nil {
			return err
		}
		got.Status = serverStatus{}
		if err := json.Unmarshal(data, &got); err != nil {
			return err
		}
		if !want(got.Status) {
			return fmt.Errorf("it says %s", data)
		}
		return nil
	})
	return got.Status
}

// memory is what a process holds in memory, in bytes.
func memory(t testing.TB, p *process.Process) int64 {
	t.Helper()
	used, err := process.UsageOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return used.Memory
}
