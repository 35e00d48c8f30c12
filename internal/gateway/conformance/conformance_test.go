package conformance

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func serve(t *testing.T, h http.Handler) *rest.Config {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

var writing = Options{Write: true, Namespace: "default", RequestTimeout: 5 * time.Second, settle: time.Millisecond}

// told is what a check says of itself.
type told struct {
	id, convention, source string
	writes                 bool
}

// checks are all there are, in the order in which they run.
func checks() []told {
	var all []told
	for _, c := range readChecks() {
		all = append(all, told{c.ID, c.Convention, c.Source, false})
	}
	for _, c := range writeChecks() {
		all = append(all, told{c.ID, c.Convention, c.Source, true})
	}
	return all
}

// ids are the ids of the results with the outcome.
func ids(r *Report, o Outcome) []string {
	var ids []string
	for _, result := range r.Results {
		if result.Outcome == o {
			ids = append(ids, result.ID)
		}
	}
	return ids
}

func text(r *Report) string {
	var b strings.Builder
	_ = r.WriteText(&b)
	return b.String()
}

// TestConformant: a server that follows all conventions passes all checks.
func TestConformant(t *testing.T) {
	server := newFake()
	before := server.snapshot()
	report, err := Run(t.Context(), serve(t, server), writing)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Conformant() || report.Count(Pass) != len(checks()) {
		t.Errorf("a server that follows the conventions does not pass all checks:\n%s", text(report))
	}
	if diff := cmp.Diff(before, server.snapshot()); diff != "" {
		t.Errorf("objects after the run (-before +after):\n%s", diff)
	}
}

// TestFaults breaks one convention at a time. Only the check of that convention
// fails, and the server has the same objects afterwards as before.
func TestFaults(t *testing.T) {
	covered := map[string]bool{}
	for i, f := range faults() {
		covered[f.check] = true
		t.Run(fmt.Sprintf("%s/%d", f.check, i), func(t *testing.T) {
			t.Parallel()
			server := newFake()
			before := server.snapshot()
			options := writing
			if f.check == "watch.timeout" {
				options.RequestTimeout = time.Second
			}
			report, err := Run(t.Context(), serve(t, f.front(server)), options)
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{f.check}, f.also...)
			slices.Sort(want)
			if got := slices.Sorted(slices.Values(ids(report, Fail))); !slices.Equal(got, want) {
				t.Errorf("there fail %v; want %v\n%s", got, want, text(report))
			}
			if got := ids(report, Skip); !slices.Equal(got, f.skips) {
				t.Errorf("there are skipped %v; want %v\n%s", got, f.skips, text(report))
			}
			if report.Conformant() {
				t.Error("the report says that the server is conformant")
			}
			for _, r := range report.Results {
				if (r.Outcome == Pass) != (r.Reason == "") {
					t.Errorf("%s: %s with reason %q", r.ID, r.Outcome, r.Reason)
				}
			}
			if diff := cmp.Diff(before, server.snapshot()); diff != "" {
				t.Errorf("objects after the run (-before +after):\n%s", diff)
			}
		})
	}
	for _, c := range checks() {
		if !covered[c.id] {
			t.Errorf("no fault makes %s fail: it may be a check that cannot", c.id)
		}
		if c.convention == "" || !strings.HasPrefix(c.source, "https://") {
			t.Errorf("%s names no convention or no source", c.id)
		}
	}
}

// snapshot is the resourceVersion of each object, by path.
func (f *fake) snapshot() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]string{}
	for path, o := range f.objects {
		all[path] = o.ResourceVersion()
	}
	return all
}

// TestReadsOnly: without Options.Write, a run sends only GETs.
func TestReadsOnly(t *testing.T) {
	server := newFake()
	report, err := Run(t.Context(), serve(t, server), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(server.requests) < 50 {
		t.Errorf("only %d requests were made", len(server.requests))
	}
	for _, r := range server.requests {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("it sent %s", r)
		}
	}
	if !report.Conformant() {
		t.Errorf("the server does not pass:\n%s", text(report))
	}
	for _, c := range checks() {
		if c.writes != slices.Contains(ids(report, Skip), c.id) {
			t.Errorf("%s writes: %t, and was skipped: %t", c.id, c.writes, !c.writes)
		}
	}
}

// TestLeftovers: objects of a killed run are removed once they are old. Objects
// that are young, or lack the name or the label of a run, are not.
func TestLeftovers(t *testing.T) {
	server := newFake()
	add := func(name, label string, age time.Duration) string {
		o := object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default", "uid": name,
			"labels": map[string]any{}, "creationTimestamp": time.Now().Add(-age).UTC().Format(time.RFC3339)}}
		if label != "" {
			metadata(o)["labels"].(map[string]any)[survey.RunLabel] = label
		}
		server.put("ADDED", "/api/v1", "configmaps", o)
		return "/api/v1/namespaces/default/configmaps/" + name
	}
	old := add(survey.NamePrefix+"1-a", "1", 2*time.Hour)
	young := add(survey.NamePrefix+"2-a", "2", time.Hour/2)
	unlabelled := add(survey.NamePrefix+"3-a", "", 2*time.Hour)
	named := add("somebody", "4", 2*time.Hour)
	// The server does not select: it gives everything it has.
	front := fault{request: drop(http.MethodGet, "labelSelector", "")}.front(server)
	if _, err := Run(t.Context(), serve(t, front), writing); err != nil {
		t.Fatal(err)
	}
	left := server.snapshot()
	if left[old] != "" {
		t.Errorf("%s is still there", old)
	}
	for _, path := range []string{young, unlabelled, named} {
		if left[path] == "" {
			t.Errorf("%s, which no run left long ago, was deleted", path)
		}
	}
}

// TestEndedRun: a run that is ended in the middle removes what it made.
func TestEndedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := newFake()
	before := server.snapshot()
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if strings.HasSuffix(r.URL.Path, "-apply-conflict") {
			cancel()
		}
	})
	report, err := Run(ctx, serve(t, front), writing)
	if err == nil || report == nil {
		t.Fatalf("the run says %v, report %v; want both", err, report)
	}
	if failed := ids(report, Fail); len(failed) > 0 {
		t.Errorf("the end of the run is held against the server: %v", failed)
	}
	if diff := cmp.Diff(before, server.snapshot()); diff != "" {
		t.Errorf("objects after the run (-before +after):\n%s", diff)
	}
}

// TestTrial: if the server has no ConfigMaps and the caller gives no object,
// objects are made by dry run only. If the server ignores dryRun and makes them,
// they are removed, and dry-run.create fails.
func TestTrial(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		server := newFake()
		server.noConfigMaps = true
		before := server.snapshot()
		front := http.Handler(server)
		if ignores {
			front = fault{request: drop(http.MethodPost, "dryRun", "All")}.front(server)
		}
		report, err := Run(t.Context(), serve(t, front), writing)
		if err != nil {
			t.Fatal(err)
		}
		want := []string(nil)
		if ignores {
			want = []string{"dry-run.create"}
		} else if slices.Contains(server.methods(), "PATCH") || slices.Contains(server.methods(), "DELETE") {
			t.Errorf("more than a dry run was sent: %v", server.methods())
		}
		if got := ids(report, Fail); !slices.Equal(got, want) {
			t.Errorf("dry runs are ignored: %t; there fail %v; want %v\n%s", ignores, got, want, text(report))
		}
		if !slices.Contains(ids(report, Skip), "create.metadata") || slices.Contains(ids(report, Skip), "field-validation.strict") {
			t.Errorf("skipped are %v", ids(report, Skip))
		}
		if diff := cmp.Diff(before, server.snapshot()); diff != "" {
			t.Errorf("objects after the run (-before +after):\n%s", diff)
		}
	}
}

func (f *fake) methods() []string {
	var methods []string
	for _, r := range f.requests {
		method, _, _ := strings.Cut(r, " ")
		methods = append(methods, method)
	}
	return methods
}

// TestObject: copies of the caller's object are created, with its fields.
func TestObject(t *testing.T) {
	server := newFake()
	options := writing
	options.Object = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "any", "labels": map[string]any{"mine": "yes"}}, "spec": map[string]any{"size": "large"}}}
	report, err := Run(t.Context(), serve(t, server), options)
	if err != nil || !report.Conformant() || report.Count(Skip) > 0 {
		t.Fatalf("%v\n%s", err, text(report))
	}
	made := 0
	for _, e := range server.events {
		if e.event.Type == "ADDED" && strings.HasPrefix(e.event.Object.Name(), survey.NamePrefix) {
			made++
			if e.event.Object.Text("spec", "size") != "large" || e.event.Object.Text("metadata", "labels", "mine") != "yes" {
				t.Errorf("made was %v", e.event.Object)
			}
		}
	}
	if made < 10 {
		t.Errorf("%d objects were made", made)
	}
}

// TestUnsettled: a discovery that changes while it is read is no fault.
func TestUnsettled(t *testing.T) {
	server := newFake()
	var asked atomic.Int32
	front := fault{response: func(r *http.Request, code int, header http.Header, o object) (int, object) {
		if path("/apis/test.example.com/v1")(r) && asked.Add(1) < 3 {
			return 404, o
		}
		return code, o
	}}.front(server)
	report, err := Run(t.Context(), serve(t, front), Options{settle: time.Millisecond})
	if err != nil || !report.Conformant() {
		t.Errorf("%v\n%s", err, text(report))
	}
}

// TestRefusals: if a server cannot be checked, the error says what to do.
func TestRefusals(t *testing.T) {
	answer := func(code int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Location", header)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		handler http.Handler
		options Options
		want    string
	}{
		"no namespace":      {newFake(), Options{Write: true}, "a namespace is needed"},
		"object of no kind": {newFake(), Options{Object: &unstructured.Unstructured{}}, "no apiVersion or no kind"},
		"unknown kind":      {newFake(), Options{Write: true, Namespace: "default", Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.example.com/v1", "kind": "Gizmo"}}}, "serves no Gizmo"},
		"not allowed":       {answer(401, "", ""), Options{}, "give credentials"},
		"slow":              {http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), Options{RequestTimeout: 50 * time.Millisecond}, "no whole answer within 50ms"},
	} {
		if _, err := Run(t.Context(), serve(t, c.handler), c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error that says %q", name, err, c.want)
		}
	}
	for name, h := range map[string]http.Handler{
		"HTML":       answer(200, "", "<html></html>"),
		"a redirect": answer(302, "/elsewhere", ""),
		"null":       answer(200, "", "null"),
		"500":        answer(500, "", ""),
	} {
		report, err := Run(t.Context(), serve(t, h), Options{settle: time.Millisecond})
		if err != nil || report.Conformant() || !slices.Contains(ids(report, Fail), "discovery.groups") {
			t.Errorf("%s: %v; want a report in which discovery.groups fails", name, err)
		}
	}
}

// TestNullDefinition: a definition that is null in OpenAPI v2 ends no run.
func TestNullDefinition(t *testing.T) {
	front := fault{response: edit(path("/openapi/v2"), func(o object) {
		o["definitions"].(map[string]any)["Nothing"] = nil
	})}.front(newFake())
	report, err := Run(t.Context(), serve(t, front), Options{})
	if err != nil || !report.Conformant() {
		t.Errorf("%v\n%s", err, text(report))
	}
}

// TestForbiddenHidesNothing: a part of the discovery that the caller may not
// read hides no fault of the parts that it may.
func TestForbiddenHidesNothing(t *testing.T) {
	front := fault{raw: func(r *http.Request, w *httptest.ResponseRecorder) {
		switch r.URL.Path {
		case "/api":
			w.Code = http.StatusForbidden
		case "/apis":
			w.Body.Reset()
			w.Body.WriteString("null and void")
		}
	}}.front(newFake())
	report, err := Run(t.Context(), serve(t, front), Options{settle: time.Millisecond})
	if err != nil || !slices.Contains(ids(report, Fail), "discovery.groups") {
		t.Errorf("%v; want discovery.groups to fail\n%s", err, text(report))
	}
}

// TestEndless: an answer without end is cut off.
func TestEndless(t *testing.T) {
	server := newFake()
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openapi/v2" {
			server.ServeHTTP(w, r)
			return
		}
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	report, err := Run(t.Context(), serve(t, front), Options{})
	if err != nil || !slices.Equal(ids(report, Fail), []string{"openapi.v2"}) {
		t.Errorf("%v\n%s", err, text(report))
	}
}

func TestReportText(t *testing.T) {
	r := &Report{Server: "https://s", Version: "v1", Results: []Result{
		{ID: "a.b", Convention: "this is so", Source: "https://page", Outcome: Pass},
		{ID: "a.c", Convention: "that is so", Source: "https://page", Outcome: Fail, Reason: "one\ntwo"},
		{ID: "a.d", Outcome: Skip, Reason: "why"},
		{ID: "a.e", Outcome: Skip, Reason: "why"},
	}}
	want := `https://s (v1)

PASS  a.b: this is so
FAIL  a.c: that is so
      one
      two
      see https://page
SKIP  a.d, a.e:
      why

1 checks passed, 1 failed, 2 were skipped: a.c; the server does not follow the conventions.
`
	if diff := cmp.Diff(want, text(r)); diff != "" {
		t.Error(diff)
	}
	if (&Report{}).Conformant() {
		t.Error("a report of nothing is conformant")
	}
}

// TestDocumented: docs/conformance.md has a line for each check, as it is.
func TestDocumented(t *testing.T) {
	const file = "../../../docs/conformance.md"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks() {
		id := "`" + c.id + "`"
		if c.writes {
			id += " W"
		}
		if line := fmt.Sprintf("| %s | %s |\n", id, c.convention); !strings.Contains(string(doc), line) {
			t.Errorf("%s lacks the line:\n%s", file, line)
		}
	}
	if got := strings.Count(string(doc), "\n| `"); got != len(checks()) {
		t.Errorf("%s has %d checks; there are %d", file, got, len(checks()))
	}
}
