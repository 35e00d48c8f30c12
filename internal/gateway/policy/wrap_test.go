package policy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/policytest"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/upkeep"
)

// newMemory is a core server whose quota allows hard objects, of which some exist.
func newMemory(hard, objects int64) *policytest.Memory {
	return &policytest.Memory{Hard: hard, Objects: objects, Namespace: namespaces.Namespace{UID: "uid", Finalizers: []string{"kubernetes"}}}
}

// over makes the parts of a Guard that speak to the core server and to servers
// over a memory.
func (g *Guard) over(m *policytest.Memory) {
	ledgers, keeper, counter := m.Rooms()
	g.inventory = servers.NewInventory(g.servers)
	g.reserver = &quota.Reserver{Namespaces: keeper, Ledgers: ledgers, Counter: counter, Limits: m, Pause: ledger.RandomPause, Grace: 5 * time.Second}
	g.upkeep = upkeep.New(upkeep.Config{Servers: g.servers, Namespaces: keeper, Counter: counter, Ledgers: ledgers, Log: g.log})
}

type oneServer struct{ rules v1alpha1.Guard }

func (o oneServer) For(group string) (servers.Server, bool) {
	return servers.Server{Name: "A", Guard: o.rules}, group == "a"
}
func (o oneServer) Kind(_ string, gvr schema.GroupVersionResource) (canonical.Kind, error) {
	kind := canonical.Kind{GroupVersionKind: gvr.GroupVersion().WithKind("Widget"), Namespaced: true, Subresources: []string{"scale", "exec"}}
	switch gvr.Resource {
	case "widgets":
	case "clusterwidgets":
		kind.Kind, kind.Namespaced = "ClusterWidget", false
	default:
		return canonical.Kind{}, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	return kind, nil
}
func (o oneServer) Claims(_, group string) bool { return group == "a" }
func (o oneServer) Names() []string             { return []string{"A"} }
func (o oneServer) Client(string) (*rest.Config, *http.Client, error) {
	return nil, nil, errors.New("not here")
}

// guardedA is server A as it is registered.
func guardedA(rules v1alpha1.Guard) *v1alpha1.RemoteAPIServer {
	return &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "A"}, Spec: v1alpha1.RemoteAPIServerSpec{Guard: rules}}
}

// guardOver is a Guard over memory; what passes goes to next.
func guardOver(t *testing.T, m *policytest.Memory, rules v1alpha1.Guard, next http.Handler) (*Guard, *httptest.Server) {
	t.Helper()
	g := &Guard{
		servers: oneServer{rules}, log: slog.New(slog.NewTextHandler(t.Output(), nil)), requestTimeout: 5 * time.Second,
		answers: newAnswers(), identity: "test",
		authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "ann" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "nobody said so", nil
		}),
	}
	g.over(m)
	wrapped := g.Wrap(next)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := call.Begin(r)
		if err != nil {
			t.Error(err)
			return
		}
		ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: r.Header.Get("X-User")})
		if strings.HasPrefix(r.URL.Path, "/apis/a/") {
			call.Of(r).Server = guardedA(rules)
		}
		wrapped.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	return g, s
}

const widgetsPath = "/apis/a/v1/namespaces/ns/widgets"

func post(t *testing.T, s *httptest.Server, path, who string) (int, metav1.Status) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(`{"apiVersion":"a/v1","kind":"Widget","metadata":{"generateName":"x-"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", who)
	res, err := s.Client().Do(r)
	if err != nil {
		return 0, metav1.Status{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	_ = json.Unmarshal(body, &status)
	return res.StatusCode, status
}

// pending writes what waits to be written, and returns how many creates are pending
// and how many objects are used.
func pending(t *testing.T, g *Guard, m *policytest.Memory) (pending int, used int64) {
	t.Helper()
	if err := g.reserver.Ledgers.At(policytest.Key).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := m.Ledger(t, policytest.Key)
	return len(l.Pending), l.Counts[widgets].Used
}

const widgets = "widgets.a"

func TestWhatBecomesOfACreate(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	deadURL, err := url.Parse(dead.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(deadURL)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("timeout") == "" {
				t.Error("the server is not told when to give up")
			}
			if _, ok := r.Context().Deadline(); !ok {
				t.Error("the request may take for ever")
			}
			w.WriteHeader(status)
		}
	}
	// sent is a handler that has had a connection to a server.
	sent := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			next(w, r)
		}
	}
	for name, test := range map[string]struct {
		next    http.Handler
		status  int
		pending int
		used    int64
	}{
		"created":                  {sent(answer(201)), 201, 0, 1},
		"it exists":                {sent(answer(409)), 409, 0, 0},
		"refused":                  {sent(answer(422)), 422, 0, 0},
		"an error of the server":   {sent(answer(500)), 500, 1, 1},
		"a time-out":               {sent(answer(504)), 504, 1, 1},
		"nothing is listening":     {proxy, 502, 0, 0},
		"the connection is cut":    {sent(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), 0, 1, 1},
		"cut after the headers":    {sent(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic(http.ErrAbortHandler) }), 0, 0, 1},
		"the server says not now":  {sent(answer(503)), 503, 1, 1},
		"the gateway says not now": {answer(503), 503, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(3, 0)
			g, s := guardOver(t, m, v1alpha1.Guard{Namespaces: true, Authorization: true, Quota: true}, test.next)
			status, _ := post(t, s, widgetsPath, "ann")
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if waiting, used := pending(t, g, m); waiting != test.pending || used != test.used {
				t.Errorf("%d pending, %d used; want %d and %d", waiting, used, test.pending, test.used)
			}
			if !m.Namespace.Has("A") {
				t.Errorf("finalizers %v", m.Namespace.Finalizers)
			}
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	all := v1alpha1.Guard{Namespaces: true, Authorization: true, Quota: true}
	for name, test := range map[string]struct {
		rules   v1alpha1.Guard
		prepare func(*policytest.Memory)
		path    string
		user    string
		status  int
		message string
	}{
		"a user who may not": {rules: all, user: "bob", status: 403,
			message: `widgets.a is forbidden: User "bob" cannot create resource "widgets" in API group "a" in the namespace "ns": nobody said so`},
		"no namespace": {rules: all, path: "/apis/a/v1/namespaces/none/widgets", user: "ann", status: 404, message: `namespaces "none" not found at the gateway's core server, whose namespaces count for this server too; create it there`},
		"a user who may not, in no namespace": {rules: all, path: "/apis/a/v1/namespaces/none/widgets", user: "bob", status: 403,
			message: `widgets.a is forbidden: User "bob" cannot create resource "widgets" in API group "a" in the namespace "none": nobody said so`},
		"a namespace that goes": {rules: all, prepare: func(m *policytest.Memory) { m.Namespace.Terminating = true }, user: "ann", status: 403,
			message: "widgets.a is forbidden: unable to create new content in namespace ns because it is being terminated"},
		"a quota used up": {rules: all, prepare: func(m *policytest.Memory) { m.Objects = 3 }, user: "ann", status: 403,
			message: "widgets.a is forbidden: exceeded quota: q, requested: count/widgets.a=1, used: count/widgets.a=3, limited: count/widgets.a=3"},
		"a dry run over a quota used up": {rules: all, prepare: func(m *policytest.Memory) { m.Objects, m.Hard = 3, 0 }, path: widgetsPath + "?dryRun=All", user: "ann", status: 403,
			message: "widgets.a is forbidden: exceeded quota: q, requested: count/widgets.a=1, used: count/widgets.a=3, limited: count/widgets.a=0"},
		"only what is asked for": {rules: v1alpha1.Guard{Authorization: true}, path: "/apis/a/v1/namespaces/none/widgets", user: "ann", status: 201},
		"no guard at all":        {path: "/apis/a/v1/namespaces/none/widgets", user: "bob", status: 201},
		"another server":         {rules: all, path: "/apis/b/v1/namespaces/none/widgets", user: "bob", status: 201},
		"a subresource": {rules: all, path: widgetsPath + "/x/scale", user: "bob", status: 403,
			message: `widgets.a "x" is forbidden: User "bob" cannot create resource "widgets/scale" in API group "a" in the namespace "ns": nobody said so`},
		"a subresource that is counted nowhere": {rules: all, path: "/apis/a/v1/namespaces/none/widgets/x/scale", user: "ann", status: 201},
		"a caller who is not known": {rules: v1alpha1.Guard{Quota: true}, user: user.Anonymous, status: 401,
			message: `server "A" is guarded, and the gateway does not know who you are: to write objects there, send a client certificate or a bearer token that the gateway can verify`},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(3, 0)
			passed := false
			_, s := guardOver(t, m, test.rules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { passed = true; w.WriteHeader(201) }))
			if test.prepare != nil {
				test.prepare(m)
			}
			path := test.path
			if path == "" {
				path = widgetsPath
			}
			code, status := post(t, s, path, test.user)
			if code != test.status || status.Message != test.message {
				t.Errorf("%d %q", code, status.Message)
			}
			if passed != (test.status == 201) {
				t.Errorf("sent on: %v", passed)
			}
		})
	}
}

func TestTheCoreServerIsAway(t *testing.T) {
	m := newMemory(3, 0)
	m.Down = true
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent on") })
	g, s := guardOver(t, m, v1alpha1.Guard{Quota: true}, next)
	g.reserver.Ledgers = ledger.NewSet(m, func(context.Context, time.Duration) bool { return false }, func(ledger.Key) {}) // as if it were away for long
	code, status := post(t, s, widgetsPath, "ann")
	if code != 503 || !strings.Contains(status.Message, "nothing was created at server A; try again") {
		t.Errorf("%d %q", code, status.Message)
	}
}

// TestADryRunIsHeldLikeAnyOther: a server may know nothing of dry runs.
func TestADryRunIsHeldLikeAnyOther(t *testing.T) {
	m := newMemory(3, 0)
	during := -1
	var g *Guard
	var s *httptest.Server
	g, s = guardOver(t, m, v1alpha1.Guard{Namespaces: true, Quota: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		during, _ = pending(t, g, m)
		w.WriteHeader(201)
	}))
	if code, status := post(t, s, widgetsPath+"?dryRun=All", "ann"); code != 201 {
		t.Errorf("%d %q", code, status.Message)
	}
	if _, used := pending(t, g, m); during != 1 || used != 1 {
		t.Errorf("%d under way while the server was asked, and %d used before it was listed", during, used)
	}
	if code, status := post(t, s, widgetsPath+"?dryRun=all", "ann"); code != 400 {
		t.Errorf("a value that is none of Kubernetes': %d %q", code, status.Message)
	}
}

func TestAShortTimeoutIsTheServers(t *testing.T) {
	for given, want := range map[string]string{"?timeout=1s": "1s", "?timeout=200ms": "200ms", "?timeout=1h": "4s", "": "4s"} {
		m := newMemory(3, 0)
		got := ""
		_, s := guardOver(t, m, v1alpha1.Guard{Quota: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.URL.Query().Get("timeout")
			w.WriteHeader(201)
		}))
		if code, status := post(t, s, widgetsPath+given, "ann"); code != 201 || got != want {
			t.Errorf("%s: %d %q, and the server is told %q, want %q", given, code, status.Message, got, want)
		}
	}
}
