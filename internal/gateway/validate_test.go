package gateway

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
)

func verdictOn(outcome conformance.Outcome) *checked {
	return &checked{report: &conformance.Report{Results: []conformance.Result{{Outcome: outcome}}}}
}

// TestACheckThatFailsSaysNothing: a server that could not be checked is what
// the last check said.
func TestACheckThatFailsSaysNothing(t *testing.T) {
	f, failed := &found{}, &checked{err: errors.New("connection refused")}
	for i, step := range []struct {
		result   *checked
		admitted bool
	}{
		{failed, false}, {verdictOn(conformance.Pass), true}, {failed, true},
		{verdictOn(conformance.Fail), false}, {failed, false}, {verdictOn(conformance.Pass), true},
	} {
		if f.take(step.result); f.admitted() != step.admitted {
			t.Errorf("after check %d it is admitted: %t", i, f.admitted())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestABrokenConnectionIsNoVerdict: what a server was not heard to say does not
// make it one that breaks conventions.
func TestABrokenConnectionIsNoVerdict(t *testing.T) {
	for reason, judged := range map[backend.Reason]bool{
		"": true, backend.NotKubernetes: true, backend.TooLarge: true,
		backend.NoEndpoint: false, backend.Unreachable: false, backend.Broken: false, backend.NoAnswer: false,
	} {
		through := &waverer{RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/broken" && reason != "" {
				return nil, backend.NewStatus("s", http.StatusBadGateway, reason, "failed")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}
		for _, path := range []string{"/broken", "/well"} {
			if resp, err := through.RoundTrip(httptest.NewRequest(http.MethodGet, path, nil)); err == nil {
				resp.Body.Close()
			}
		}
		if c := through.outcome(verdictOn(conformance.Fail).report, nil); (c.err == nil) != judged {
			t.Errorf("after a request that was %q, a report of faults comes with %v", reason, c.err)
		}
		if c := through.outcome(verdictOn(conformance.Pass).report, nil); c.err != nil {
			t.Errorf("after a request that was %q, a report of none comes with %v", reason, c.err)
		}
	}
}

// TestWithheldServersKeepWhatTheyHeld: at a start, and while it is not known to
// be conformant, a server's groups go to nobody else.
func TestWithheldServersKeepWhatTheyHeld(t *testing.T) {
	r := newRegistry(slog.New(slog.DiscardHandler), discovery.NewIndex(), nil)
	r.requireConformant = true
	r.ready.Store(true)
	serve := func(name string, c *checked) {
		s := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.Groups = []string{"*"}
		m := newMember(s, func() {})
		m.found = found{tried: true, checked: c, document: &discovery.Document{Groups: []apidiscoveryv2.APIGroupDiscovery{
			{ObjectMeta: metav1.ObjectMeta{Name: "one.example.com"}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1"}}},
		}}}
		r.members[name] = m
	}
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		t := &router{registry: r, index: r.index, discovery: r.index.Handler()}
		begin(t.route(http.HandlerFunc(answer))).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	serve("b", verdictOn(conformance.Pass))
	r.publish()
	serve("a", verdictOn(conformance.Pass))
	for what, c := range map[string]*checked{"not checked yet": nil, "not to be checked": {err: errors.New("x")}, "not conformant": verdictOn(conformance.Fail)} {
		serve("b", c)
		r.publish()
		if e := r.holder("one.example.com"); e == nil || e.server.Name != "b" {
			t.Errorf("%s: the group went to another", what)
		}
		for _, path := range []string{"/apis/one.example.com/v1/things", "/apis/one.example.com/v1"} {
			if code, body := ask(path); code != 503 || !strings.Contains(body, `server \"b\" gets no requests`) {
				t.Errorf("%s: %s: %d %s", what, path, code, body)
			}
		}
		if _, body := ask("/apis"); strings.Contains(body, "one.example.com") {
			t.Errorf("%s: it is shown: %s", what, body)
		}
	}
}
