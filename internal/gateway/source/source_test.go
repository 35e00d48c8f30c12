package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const oneServer = `
apiVersion: aggregation.xbernetes.io/v1alpha1
kind: RemoteAPIServer
metadata: {name: %s}
spec: {url: "https://127.0.0.1:1"}
`

func TestParse(t *testing.T) {
	servers, err := Parse([]byte("# two of them\n---\n" + fmt.Sprintf(oneServer, "b") + "---\n# nothing\n---\n" + fmt.Sprintf(oneServer, "a")))
	if err != nil || len(servers) != 2 || servers[0].Name != "a" {
		t.Fatalf("%v, %v", servers, err)
	}
	list := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"aggregation.xbernetes.io/v1alpha1","kind":"RemoteAPIServer","metadata":{"name":"x"},"spec":{"url":"https://x"}}]}`
	if servers, err = Parse([]byte(list)); err != nil || len(servers) != 1 {
		t.Fatalf("%v, %v", servers, err)
	}
	server := func(spec string) string {
		return "apiVersion: aggregation.xbernetes.io/v1alpha1\nkind: RemoteAPIServer\nmetadata: {name: a}\nspec: " + spec
	}
	for text, want := range map[string]string{
		server(`{}`):                          `server "a" has no URL`,
		server(`{url: "https://x", prio: 1}`): `unknown field "prio"`,
		server(`{url: "https://x", groups: ["*", "", "a.b", "*.b", "a*"]}`):                  `spec.groups has "a*"`,
		server(`{url: "https://x", groups: ["*."]}`):                                         `spec.groups has "*."`,
		fmt.Sprintf(oneServer, "A_b"):                                                        "is no name",
		"apiVersion: v1\nkind: Pod":                                                          "want RemoteAPIServer",
		"just text":                                                                          "document 1",
		fmt.Sprintf(oneServer, "a") + "---\n" + fmt.Sprintf(oneServer, "a"):                  "two servers are named",
		server(`{url: "https://x", identity: {credentials: {secretName: s}}}`):               "is for objects in an API",
		server(`{url: "https://x", identity: {credentials: {clientKeyFile: k}}}`):            "together",
		server(`{url: "https://x", identity: {credentials: {kubeconfig: k, tokenFile: t}}}`): "one or the other",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v; want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(oneServer, "a") + "---\n" + fmt.Sprintf(oneServer, "b")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[null,{}]}`))
	f.Add([]byte("---\n---\n# x\n--- \n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		servers, err := Parse(content)
		if err != nil {
			return
		}
		for _, s := range servers {
			if s.Name == "" || len(s.Spec.BaseURLs()) == 0 {
				t.Errorf("accepted %+v", s)
			}
		}
	})
}

// run runs a source, and gives what it sets, by name.
func run(t *testing.T, src Source) <-chan []string {
	sets := make(chan []string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- src.Run(ctx, func(servers []*v1alpha1.RemoteAPIServer) {
			names := []string{}
			for _, s := range servers {
				names = append(names, s.Name)
			}
			sets <- names
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the source ended with %v", err)
		}
	})
	return sets
}

// next waits until the source says these.
func next(t *testing.T, sets <-chan []string, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.After(30 * time.Second); ; {
		select {
		case got = <-sets:
			if cmp.Equal(got, want) || len(got)+len(want) == 0 {
				return
			}
		case <-deadline:
			t.Fatalf("the source says %q; want %q", got, want)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewFile(path, quietLog()); err == nil {
		t.Error("a file that is not there was read")
	}
	write(fmt.Sprintf(oneServer, "a"))
	f, err := NewFile(path, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	sets := run(t, f)
	next(t, sets, "a")
	write(fmt.Sprintf(oneServer, "a") + "---" + fmt.Sprintf(oneServer, "b"))
	next(t, sets, "a", "b")
	write("half a fi")
	eventually(t, "a broken file is not complained of", func() bool { return strings.Contains(f.Problem(), "until it is mended") })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a missing file is not complained of", func() bool { return strings.Contains(f.Problem(), "no such file") })
	write(fmt.Sprintf(oneServer, "a") + "---" + fmt.Sprintf(oneServer, "b"))
	eventually(t, "a file that is as it was is complained of", func() bool { return f.Problem() == "" })
	write(fmt.Sprintf(oneServer, "c"))
	next(t, sets, "c")
	if p := f.Problem(); p != "" {
		t.Errorf("the file is mended: %s", p)
	}
}

func TestFileCredentials(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	s.Spec.URL = "https://x"
	f := &File{}
	if c, err := f.Credentials(s); err != nil || !c.Equal(Credentials{}) {
		t.Errorf("none: %v", err)
	}
	s.Spec.Identity.Credentials = &v1alpha1.CredentialsReference{TokenFile: token}
	if c, err := f.Credentials(s); err != nil || strings.TrimSpace(c.Token) != "s3cret" {
		t.Errorf("a token: %v", err)
	}
	config := filepath.Join(dir, "kubeconfig")
	kubeconfig := func(user string) {
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: https://elsewhere}}]\nusers: [{name: u, user: " + user + "}]"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Spec.Identity.Credentials = &v1alpha1.CredentialsReference{Kubeconfig: config}
	kubeconfig("{token: abc}")
	if c, err := f.Credentials(s); err != nil || c.Token != "abc" {
		t.Errorf("a kubeconfig: %v", err)
	}
	kubeconfig("{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}")
	if _, err := f.Credentials(s); err == nil || !strings.Contains(err.Error(), "exec") {
		t.Errorf("a kubeconfig that runs programs: %v", err)
	}
}

// fakeAPI is a Kubernetes API of RemoteAPIServers and Secrets.
type fakeAPI struct {
	mu      sync.Mutex
	servers map[string]*v1alpha1.RemoteAPIServer
	secrets []corev1.Secret
	version int
	changed chan struct{} // closed at every change
	puts    int
	away    bool
}

func (a *fakeAPI) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.version++
	for _, s := range a.servers {
		if s.ResourceVersion == "" {
			s.ResourceVersion = fmt.Sprint(a.version)
		}
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	away, changed, version := a.away, a.changed, a.version
	list := v1alpha1.RemoteAPIServerList{}
	list.ResourceVersion = fmt.Sprint(version)
	for _, s := range a.servers {
		list.Items = append(list.Items, *s.DeepCopy())
	}
	secrets := corev1.SecretList{Items: a.secrets}
	secrets.ResourceVersion = fmt.Sprint(version)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/apis/aggregation.xbernetes.io/v1alpha1/remoteapiservers/"), "/status")
	switch {
	case away:
		http.Error(w, "away", http.StatusBadGateway)
	case r.URL.Query().Get("watch") != "":
		if r.URL.Query().Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			return
		}
		// Any change ends the watch as a server does that has forgotten: the
		// client lists again.
		if r.URL.Query().Get("resourceVersion") != fmt.Sprint(version) {
			w.WriteHeader(http.StatusGone)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
	case r.Method == http.MethodPut:
		var put v1alpha1.RemoteAPIServer
		if err := json.NewDecoder(r.Body).Decode(&put); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.change(func() { a.puts++; a.servers[name].Status = put.Status })
		json.NewEncoder(w).Encode(put)
	case strings.HasSuffix(r.URL.Path, "/secrets"):
		json.NewEncoder(w).Encode(secrets)
	default:
		json.NewEncoder(w).Encode(list)
	}
}

func newFakeAPI(t *testing.T, names ...string) (*fakeAPI, *API) {
	fake := &fakeAPI{servers: map[string]*v1alpha1.RemoteAPIServer{}, changed: make(chan struct{})}
	for _, n := range names {
		fake.servers[n] = object(n)
	}
	fake.change(func() {})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	a, err := NewAPI(&rest.Config{Host: server.URL, Transport: transport}, "keys", true, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	return fake, a
}

func object(name string) *v1alpha1.RemoteAPIServer {
	s := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	s.Spec.URL = "https://127.0.0.1:1"
	return s
}

func TestAPI(t *testing.T) {
	fake, a := newFakeAPI(t, "a")
	sets := run(t, a)
	next(t, sets, "a")
	fake.change(func() { fake.servers["b"] = object("b") })
	next(t, sets, "a", "b")
	fake.change(func() { fake.away = true })
	eventually(t, "the API is away, and nobody says so", func() bool { return a.Problem() != "" })
	fake.change(func() { fake.away = false; delete(fake.servers, "a") })
	next(t, sets, "b")
	eventually(t, "the API is back, and nobody says so", func() bool { return a.Problem() == "" })
}

func TestAPIWritesStatus(t *testing.T) {
	fake, a := newFakeAPI(t, "a")
	sets := run(t, a)
	next(t, sets, "a")
	status := v1alpha1.RemoteAPIServerStatus{ObservedGeneration: 1, Version: "v1", GroupVersions: []string{"one.example.com/v1", "v1"},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Answering", Message: "m"}}}
	written := func() (v1alpha1.RemoteAPIServerStatus, int) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return fake.servers["a"].Status, fake.puts
	}
	eventually(t, "the status is not written", func() bool {
		a.SetStatus("a", status)
		got, _ := written()
		return got.Version == "v1"
	})
	eventually(t, "the source has not seen the status", func() bool {
		servers := a.list()
		return len(servers) == 1 && servers[0].Status.Version == "v1" && Held(servers)["one.example.com"] == "a" && Held(servers)[""] == "a"
	})
	_, before := written()
	for range 100 {
		a.SetStatus("a", status)
	}
	a.SetStatus("a", func() v1alpha1.RemoteAPIServerStatus { s := status; s.Version = "v2"; return s }())
	eventually(t, "another status is not written", func() bool { got, _ := written(); return got.Version == "v2" })
	if _, puts := written(); puts != before+1 {
		t.Errorf("the same status again and a new one took %d writes", puts-before)
	}
}

func TestAPICredentials(t *testing.T) {
	fake, a := newFakeAPI(t, "a")
	secret := func(name, server string, data map[string]string) corev1.Secret {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "keys", Name: name, Labels: map[string]string{v1alpha1.ServerLabel: server}}, Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: https://elsewhere}}]\nusers: [{name: u, user: "
	fake.change(func() {
		fake.secrets = []corev1.Secret{
			secret("mine", "a", map[string]string{"token": "abc"}),
			secret("others", "b", map[string]string{"token": "abc"}),
			secret("empty", "a", nil),
			secret("config", "a", map[string]string{"kubeconfig": kubeconfig + "{token: xyz}}]"}),
			secret("thief", "a", map[string]string{"kubeconfig": kubeconfig + "{tokenFile: /etc/passwd}}]"}),
		}
	})
	sets := run(t, a)
	next(t, sets, "a")
	s := object("a")
	s.Spec.Identity.Credentials = &v1alpha1.CredentialsReference{SecretName: "mine"}
	eventually(t, "the Secret is not read", func() bool { c, err := a.Credentials(s); return err == nil && c.Token == "abc" })
	for name, want := range map[string]string{"others": "there is none", "absent": "there is none", "empty": "none of the keys", "thief": "names files"} {
		s.Spec.Identity.Credentials.SecretName = name
		if c, err := a.Credentials(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", name, c.Token != "", err, want)
		}
	}
	s.Spec.Identity.Credentials.SecretName = "config"
	if c, err := a.Credentials(s); err != nil || c.Token != "xyz" {
		t.Errorf("a kubeconfig in a Secret: %v", err)
	}
	s.Spec.Identity.Credentials = &v1alpha1.CredentialsReference{TokenFile: "/etc/passwd"}
	if _, err := a.Credentials(s); err == nil {
		t.Error("an object made the gateway read its own disk")
	}
}

func TestNewsworthy(t *testing.T) {
	base := v1alpha1.RemoteAPIServerStatus{
		ObservedGeneration: 2, Latency: &metav1.Duration{Duration: time.Millisecond}, GroupVersions: []string{"a/v1"},
		Conditions: []metav1.Condition{{Type: "Available", Status: "True", Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}},
		Endpoints:  []v1alpha1.EndpointStatus{{URL: "u", Healthy: true}},
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.RemoteAPIServerStatus)
		since  time.Duration
		want   bool
	}{
		"the same":                 {func(*v1alpha1.RemoteAPIServerStatus) {}, time.Hour, false},
		"a condition":              {func(s *v1alpha1.RemoteAPIServerStatus) { s.Conditions[0].Status = "False" }, 0, true},
		"a reason":                 {func(s *v1alpha1.RemoteAPIServerStatus) { s.Conditions[0].Reason = "Q" }, 0, true},
		"an endpoint":              {func(s *v1alpha1.RemoteAPIServerStatus) { s.Endpoints[0].Healthy = false }, 0, true},
		"a group version":          {func(s *v1alpha1.RemoteAPIServerStatus) { s.GroupVersions = nil }, 0, true},
		"a time":                   {func(s *v1alpha1.RemoteAPIServerStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, time.Hour, false},
		"wording, soon":            {func(s *v1alpha1.RemoteAPIServerStatus) { s.Conditions[0].Message = "n" }, time.Second, false},
		"wording, later":           {func(s *v1alpha1.RemoteAPIServerStatus) { s.Conditions[0].Message = "n" }, time.Minute, true},
		"latency, soon":            {func(s *v1alpha1.RemoteAPIServerStatus) { s.Latency = &metav1.Duration{Duration: time.Second} }, 30 * time.Second, false},
		"latency, later":           {func(s *v1alpha1.RemoteAPIServerStatus) { s.Latency = &metav1.Duration{Duration: time.Second} }, time.Hour, true},
		"about a spec of the past": {func(s *v1alpha1.RemoteAPIServerStatus) { s.ObservedGeneration, s.Version = 1, "x" }, time.Hour, false},
	} {
		s := base.DeepCopy()
		c.change(s)
		if got := newsworthy(*s, base, c.since); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache.json")
	if m, err := Recall(file); err != nil || m.Servers != nil {
		t.Fatalf("nothing to remember: %+v, %v", m, err)
	}
	want := Memory{Servers: []*v1alpha1.RemoteAPIServer{object("a")}, Held: map[string]string{"": "a"}}
	if err := Remember(file, want); err != nil {
		t.Fatal(err)
	}
	got, err := Recall(file)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Recall(file); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("half a file: %v", err)
	}
}

func FuzzRecall(f *testing.F) {
	f.Add([]byte(`{"servers":[{"metadata":{"name":"a"}}],"held":{"":"a"}}`))
	f.Add([]byte(`{"servers":[null]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "cache.json")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Recall(file)
		if err != nil {
			return
		}
		Held(m.Servers)
	})
}
