package policy

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/limitrange"
)

const widgetX = `{"apiVersion":"a/v1","kind":"Widget","metadata":{"name":"x"}}`

// send makes a request of a user, and returns the code and the message.
func send(t *testing.T, s *httptest.Server, who, method, path, contentType, body string, more ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", who)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Add(more[i], more[i+1])
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var status metav1.Status
	_ = json.NewDecoder(res.Body).Decode(&status) // a HEAD has none
	return res.StatusCode, status.Message
}

// TestAuthorizationIsOfEveryRequest: whatever a request does, the core server
// has let its user do just that, and nothing of it is sent before.
func TestAuthorizationIsOfEveryRequest(t *testing.T) {
	const apply = "application/apply-patch+yaml"
	for name, c := range map[string]struct {
		method, path, contentType, body string
		asked                           []string
		more                            []string
	}{
		"get":               {"GET", widgetsPath + "/x", "", "", []string{"get widgets x in ns"}, nil},
		"head":              {"HEAD", widgetsPath + "/x", "", "", []string{"get widgets x in ns"}, nil},
		"list":              {"GET", widgetsPath, "", "", []string{"list widgets in ns"}, nil},
		"list of one":       {"GET", widgetsPath + "?fieldSelector=metadata.name=x", "", "", []string{"list widgets in ns"}, nil},
		"list everywhere":   {"GET", "/apis/a/v1/widgets", "", "", []string{"list widgets"}, nil},
		"watch":             {"GET", widgetsPath + "?watch=1", "", "", []string{"watch widgets in ns"}, nil},
		"create":            {"POST", widgetsPath, "application/json", widgetX, []string{"create widgets in ns"}, nil},
		"cluster scope":     {"POST", "/apis/a/v1/clusterwidgets", "", strings.Replace(widgetX, "Widget", "ClusterWidget", 1), []string{"create clusterwidgets"}, nil},
		"update":            {"PUT", widgetsPath + "/x", "application/json", widgetX, []string{"update widgets x in ns", "create widgets x in ns"}, nil},
		"patch":             {"PATCH", widgetsPath + "/x", "application/merge-patch+json", "{}", []string{"patch widgets x in ns", "create widgets x in ns"}, nil},
		"apply":             {"PATCH", widgetsPath + "/x?fieldManager=m", apply, widgetX, []string{"patch widgets x in ns", "create widgets x in ns"}, nil},
		"delete":            {"DELETE", widgetsPath + "/x", "", "", []string{"delete widgets x in ns"}, nil},
		"deletecollection":  {"DELETE", widgetsPath + "?fieldSelector=metadata.name=x", "", "", []string{"deletecollection widgets in ns"}, nil},
		"a subresource":     {"PUT", widgetsPath + "/x/scale", "application/json", "{}", []string{"update widgets/scale x in ns"}, nil},
		"a stream":          {"GET", widgetsPath + "/x/exec?command=a&command=b", "", "", []string{"get widgets/exec x in ns", "create widgets/exec x in ns"}, []string{"Connection", "Upgrade", "Upgrade", "websocket"}},
		"outside the API":   {"GET", "/apis/a/v1", "", "", []string{"get /apis/a/v1"}, nil},
		"an encoded letter": {"GET", "/apis/a/v1/namespaces/ns/w%69dgets/x", "", "", []string{"get widgets x in ns"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			sent := 0
			g, s := guardOver(t, newMemory(3, 0), v1alpha1.Guard{Authorization: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				sent++
				w.WriteHeader(http.StatusCreated)
			}))
			allowed := 0
			g.authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				text := a.GetVerb() + " " + strings.TrimSuffix(a.GetResource()+"/"+a.GetSubresource(), "/")
				if !a.IsResourceRequest() {
					text = a.GetVerb() + " " + a.GetPath()
				}
				if a.GetName() != "" {
					text += " " + a.GetName()
				}
				if a.GetNamespace() != "" {
					text += " in " + a.GetNamespace()
				}
				asked = append(asked, text)
				if len(asked) > allowed {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			})
			for allowed = range c.asked {
				asked = nil
				// Where the object cannot be seen, a write of it needs the right to create it.
				if code, message := send(t, s, "ann", c.method, c.path, c.contentType, c.body, c.more...); code != http.StatusForbidden && code != http.StatusServiceUnavailable {
					t.Errorf("with %d of its rights: %d %s", allowed, code, message)
				}
				if sent != 0 || !slices.Equal(asked, c.asked[:allowed+1]) {
					t.Errorf("with %d of its rights it was asked for %q, and sent %d times", allowed, asked, sent)
				}
			}
			allowed, asked = len(c.asked), nil
			code, message := send(t, s, "ann", c.method, c.path, c.contentType, c.body, c.more...)
			if code != http.StatusCreated || sent != 1 || !slices.Equal(asked, c.asked) {
				t.Errorf("with its rights: %d %s; asked for %q, sent %d times", code, message, asked, sent)
			}
		})
	}
}

// TestOneUsersLostCreatesLeaveRoom: whatever becomes of what one user sends,
// others find places in the quota.
func TestOneUsersLostCreatesLeaveRoom(t *testing.T) {
	_, s := guardOver(t, newMemory(4, 0), v1alpha1.Guard{Quota: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
		code := http.StatusCreated
		if r.Header.Get("User-Agent") == "lose it" {
			code = http.StatusInternalServerError
		}
		w.WriteHeader(code)
	}))
	codes := map[int]int{}
	for range 5 {
		code, _ := send(t, s, "ann", http.MethodPost, widgetsPath, "", widgetX, "User-Agent", "lose it")
		codes[code]++
	}
	if codes[http.StatusInternalServerError] != 2 || codes[http.StatusTooManyRequests] != 3 {
		t.Errorf("ann's: %v", codes)
	}
	if code, message := send(t, s, "bob", http.MethodPost, widgetsPath, "", widgetX); code != http.StatusCreated {
		t.Errorf("bob's: %d %s", code, message)
	}
}

// TestWhoHangsUpDoesNotHideTheOutcome: a create goes on without its caller, and
// what became of it is known.
func TestWhoHangsUpDoesNotHideTheOutcome(t *testing.T) {
	for code, want := range map[int]int64{http.StatusForbidden: 0, http.StatusCreated: 1} {
		m := newMemory(3, 0)
		hungUp, answered := make(chan struct{}), make(chan error, 1)
		ctx, hangUp := context.WithCancel(t.Context())
		g, s := guardOver(t, m, v1alpha1.Guard{Quota: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			hangUp()
			<-hungUp
			w.WriteHeader(code)
			answered <- r.Context().Err()
		}))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+widgetsPath, strings.NewReader(widgetX))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", "ann")
		if res, err := s.Client().Do(r); err == nil {
			res.Body.Close()
			t.Error("it was answered")
		}
		s.CloseClientConnections()
		close(hungUp)
		if err := <-answered; err != nil {
			t.Errorf("the server was told to stop: %v", err)
		}
		s.Close() // waits for what is under way
		if waiting, used := pending(t, g, m); waiting != 0 || used != want {
			t.Errorf("after %d: %d pending, %d used; want 0 and %d", code, waiting, used, want)
		}
	}
}

// TestLimitRangesAreOfTheKindThatIsCreated: what a body says of itself does not
// decide which limits it is held to.
func TestLimitRangesAreOfTheKindThatIsCreated(t *testing.T) {
	const much = `"spec":{"resources":{"requests":{"cpu":"8"}}}`
	for name, c := range map[string]struct {
		contentType, body string
		code              int
	}{
		"within":           {"application/json", `{"apiVersion":"a/v1","kind":"Widget","spec":{"resources":{"requests":{"cpu":"1"}}}}`, 201},
		"too much":         {"application/json", `{"apiVersion":"a/v1","kind":"Widget",` + much + `}`, 403},
		"without a kind":   {"application/json", `{` + much + `}`, 400},
		"of another kind":  {"application/json", `{"apiVersion":"a/v1","kind":"Gadget",` + much + `}`, 400},
		"of two kinds":     {"application/json", `{"apiVersion":"a/v1","kind":"Widget","kind":"Gadget",` + much + `}`, 400},
		"in other letters": {"application/json", `{"apiVersion":"a/v1","kind":"Widget","Spec":{},` + much + `}`, 400},
		"twice":            {"application/json", `{"apiVersion":"a/v1","kind":"Widget","spec":{"resources":{"requests":{"cpu":"1","cpu":"8"}}}}`, 400},
		"as YAML":          {"application/yaml", "apiVersion: a/v1\nkind: Widget\nspec: {resources: {requests: {cpu: 8}}}", 403},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := guardOver(t, newMemory(3, 0), v1alpha1.Guard{Quota: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
			g.limits = limitrange.New(fake.NewClientset(&corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "ns"},
				Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: "a/Widget", Max: corev1.ResourceList{"cpu": resource.MustParse("2")}}}},
			}))
			if code, message := send(t, s, "ann", http.MethodPost, widgetsPath, c.contentType, c.body); code != c.code {
				t.Errorf("%d %s", code, message)
			}
		})
	}
}
