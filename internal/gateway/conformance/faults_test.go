package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
)

// A fault makes a server that follows all conventions break one, by changing
// requests or answers.
type fault struct {
	check    string   // the check that must fail
	also     []string // other checks that fail because of it
	skips    []string // checks that are skipped because of it
	server   func(*fake)
	request  func(r *http.Request)
	response func(r *http.Request, code int, header http.Header, body object) (int, object) // of answers that are JSON
	raw      func(r *http.Request, w *httptest.ResponseRecorder)
	event    func(r *http.Request, e event) []event
}

// front puts the fault before the server.
func (f fault) front(server *fake) http.Handler {
	if f.server != nil {
		f.server(server)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Clone(r.Context()) // by the client, for response and event
		if f.request != nil {
			f.request(r)
		}
		if r.URL.Query().Get("watch") == "true" {
			server.ServeHTTP(&eventWriter{ResponseWriter: w, f: f, r: asked}, r)
			return
		}
		rec := httptest.NewRecorder()
		server.ServeHTTP(rec, r)
		if f.response != nil {
			var body object
			if json.Unmarshal(rec.Body.Bytes(), &body) == nil {
				rec.Code, body = f.response(asked, rec.Code, rec.Header(), body)
				rec.Body = new(bytes.Buffer)
				json.NewEncoder(rec.Body).Encode(body)
			}
		}
		if f.raw != nil {
			f.raw(asked, rec)
		}
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
	})
}

// eventWriter changes the events that pass through it.
type eventWriter struct {
	http.ResponseWriter
	f fault
	r *http.Request
}

func (w *eventWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w *eventWriter) Write(p []byte) (int, error) {
	var e event
	if w.f.event == nil || json.Unmarshal(p, &e) != nil {
		return w.ResponseWriter.Write(p)
	}
	for _, e := range w.f.event(w.r, e) {
		json.NewEncoder(w.ResponseWriter).Encode(e)
	}
	return len(p), nil
}

// Parts of faults.

func drop(method, parameter, value string) func(*http.Request) {
	return replace(method, parameter, value, "")
}

// replace replaces a value of a parameter; "" stands for any, and for none.
func replace(method, parameter, value, with string) func(*http.Request) {
	return func(r *http.Request) {
		q := r.URL.Query()
		if r.Method != method || q.Get(parameter) == "" && with == "" || value != "" && q.Get(parameter) != value {
			return
		}
		q.Set(parameter, with)
		if with == "" {
			q.Del(parameter)
		}
		r.URL.RawQuery = q.Encode()
	}
}

// edit changes the answers to what is asked.
func edit(asked func(*http.Request) bool, change func(object)) func(*http.Request, int, http.Header, object) (int, object) {
	return func(r *http.Request, code int, _ http.Header, body object) (int, object) {
		if asked(r) {
			change(body)
		}
		return code, body
	}
}

func path(p string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.URL.Path == p && !strings.Contains(r.Header.Get("Accept"), "as=") }
}

func aggregatedForm(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
}

func query(parameter, value string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.URL.Query().Get(parameter) == value }
}

func named(method, suffix string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if r.Method != method {
			return false
		}
		if method != http.MethodPost {
			return strings.HasSuffix(r.URL.Path, suffix)
		}
		return strings.Contains(r.Header.Get("X-Body"), suffix+`"`)
	}
}

// body changes the object in a request.
func body(asked func(*http.Request) bool, change func(object)) func(*http.Request) {
	return func(r *http.Request) {
		var o object
		data, _ := io.ReadAll(r.Body)
		if asked(r) && json.Unmarshal(data, &o) == nil {
			change(o)
			data, _ = json.Marshal(o)
		}
		r.Body = io.NopCloser(bufio.NewReader(bytes.NewReader(data)))
	}
}

func inItems(o object, change func(map[string]any)) {
	items, _ := o["items"].([]any)
	for _, i := range items {
		change(i.(map[string]any))
	}
}

func metadata(o map[string]any) map[string]any {
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		return map[string]any{}
	}
	return m
}

const (
	gadgets   = "/apis/test.example.com/v1/gadgets"
	gadgetsV3 = "/openapi/v3/apis/test.example.com/v1"
)

// spoil replaces text in a document.
func spoil(at, old, with string) func(*http.Request, *httptest.ResponseRecorder) {
	return func(r *http.Request, w *httptest.ResponseRecorder) {
		if r.URL.Path == at {
			w.Body = bytes.NewBufferString(strings.ReplaceAll(w.Body.String(), old, with))
		}
	}
}

// faults has one for each check, and may have more.
func faults() []fault {
	once := func(f func(*http.Request) bool) func(*http.Request) bool {
		var done atomic.Bool
		return func(r *http.Request) bool { return f(r) && done.CompareAndSwap(false, true) }
	}
	gone := once(named(http.MethodDelete, "-gone"))
	return append([]fault{
		{check: "discovery.groups", response: func(r *http.Request, code int, _ http.Header, o object) (int, object) {
			group := map[string]any(o)
			if path("/apis")(r) {
				group = o["groups"].([]any)[0].(map[string]any)
			} else if !path("/apis/test.example.com")(r) {
				return code, o
			}
			wrong := map[string]any{"groupVersion": "test.example.com", "version": "v1"}
			group["versions"], group["preferredVersion"] = []any{wrong}, wrong
			return code, o
		}},
		{check: "discovery.groups", also: []string{"discovery.aggregated"}, skips: []string{"discovery.group"},
			raw: func(r *http.Request, w *httptest.ResponseRecorder) {
				if r.URL.Path == "/apis" && !aggregatedForm(r) {
					w.Body = bytes.NewBufferString("<html>Welcome</html>")
					w.Header().Set("Content-Type", "text/html")
				}
			}},
		{check: "discovery.group", response: edit(path("/apis/test.example.com"), func(o object) { o["kind"] = "Group" })},
		{check: "discovery.resources", response: edit(path("/apis/test.example.com/v1"), func(o object) {
			o["resources"] = append(o["resources"].([]any), o["resources"].([]any)[0])
		})},
		{check: "discovery.names", server: func(f *fake) { f.statusKind = "gadget" }},
		{check: "discovery.aggregated", raw: func(r *http.Request, w *httptest.ResponseRecorder) {
			if aggregatedForm(r) {
				w.Body = bytes.NewBufferString(strings.Replace(w.Body.String(), `"Namespaced"`, `"Cluster"`, 1))
			}
		}},
		{check: "discovery.etag", raw: func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Del("ETag") }},
		{check: "discovery.etag", request: func(r *http.Request) { r.Header.Del("If-None-Match") }},
		{check: "discovery.version", response: edit(path("/version"), func(o object) { delete(o, "gitVersion") })},
		{check: "openapi.v3", response: edit(path("/openapi/v3"), func(o object) { delete(o["paths"].(map[string]any), "apis/test.example.com/v1") })},
		{check: "openapi.v3", raw: spoil(gadgetsV3, "x-kubernetes-group-version-kind", "x-kind")},
		{check: "openapi.document", raw: spoil(gadgetsV3, `"3.0.0"`, `"1.2"`)},
		{check: "openapi.v2", response: edit(path("/openapi/v2"), func(o object) { delete(o, "definitions") })},
		{check: "dry-run.declared", raw: spoil(gadgetsV3, `"dryRun"`, `"dry"`)},
		{check: "field-validation.declared", raw: spoil(gadgetsV3, `"fieldValidation"`, `"validate"`)},
		{check: "apply.declared", raw: spoil(gadgetsV3, ask.ApplyPatch, "application/x-apply")},
		{check: "list.kind", response: edit(path(gadgets), func(o object) {
			if o["kind"] == "GadgetList" {
				o["kind"] = "Gadgets"
			}
		})},
		{check: "list.kind", response: edit(path(gadgets), func(o object) { o["items"] = nil })},
		{check: "list.items", response: edit(path(gadgets), func(o object) {
			inItems(o, func(i map[string]any) { delete(metadata(i), "creationTimestamp") })
		})},
		{check: "list.selectors", request: func(r *http.Request) {
			if !strings.Contains(r.URL.RawQuery, "+in+") {
				drop(http.MethodGet, "labelSelector", "")(r)
			}
		}},
		{check: "list.selectors", request: func(r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				drop(http.MethodGet, "fieldSelector", "")(r)
			}
		}},
		{check: "get.kind", response: edit(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/gadgets/one") }, func(o object) { o["kind"] = "Gizmo" })},
		{check: "status.not-found", raw: func(r *http.Request, w *httptest.ResponseRecorder) {
			if w.Code == 404 && strings.Contains(r.URL.Path, "/gadgets/") {
				w.Header().Set("Content-Type", "text/plain")
				w.Body = bytes.NewBufferString("not found")
			}
		}},
		{check: "status.bad-request", request: drop(http.MethodGet, "labelSelector", "a in (")},
		{check: "status.not-acceptable", request: func(r *http.Request) {
			if strings.Contains(r.Header.Get("Accept"), "x-xb-unknown") {
				r.Header.Set("Accept", ask.JSON)
			}
		}},
		{check: "status.unknown-path", raw: func(r *http.Request, w *httptest.ResponseRecorder) {
			if strings.HasSuffix(r.URL.Path, "/xbunknowns") {
				w.Code = 200
			}
		}},
		{check: "resourceversion.list", response: edit(func(r *http.Request) bool { return r.URL.Path == gadgets }, func(o object) { metadata(o)["resourceVersion"] = "" })},
		{check: "resourceversion.not-older-than", response: edit(query("resourceVersionMatch", "NotOlderThan"), func(o object) { metadata(o)["resourceVersion"] = "1" })},
		{check: "resourceversion.exact", response: edit(query("resourceVersionMatch", "Exact"), func(o object) { metadata(o)["resourceVersion"] = "1" })},
		{check: "resourceversion.too-new", request: func(r *http.Request) {
			if strings.HasSuffix(r.URL.Query().Get("resourceVersion"), "000") {
				replace(http.MethodGet, "resourceVersion", "", "0")(r)
			}
		}},
		{check: "resourceversion.match-alone", request: func(r *http.Request) {
			if r.URL.Query().Get("resourceVersion") == "" && r.URL.Query().Get("watch") == "" {
				drop(http.MethodGet, "resourceVersionMatch", "")(r)
			}
		}},
		{check: "pagination.limit", response: edit(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, func(o object) {
			if o["items"] != nil {
				o["items"] = []any{}
			}
		})},
		{check: "pagination.limit", response: func(r *http.Request, code int, _ http.Header, o object) (int, object) {
			if r.URL.Query().Get("continue") != "" && code == 200 {
				metadata(o)["resourceVersion"] = "999999"
			}
			return code, o
		}},
		{check: "pagination.bad-continue", request: drop(http.MethodGet, "continue", "xb-is-no-token")},
	}, moreFaults(gone)...)
}

func moreFaults(gone func(*http.Request) bool) []fault {
	eachRow := func(o object, change func(map[string]any)) {
		all, _ := o["rows"].([]any)
		for _, row := range all {
			change(row.(map[string]any))
		}
	}
	always := func(*http.Request) bool { return true }
	return []fault{
		{check: "table.shape", response: edit(always, func(o object) {
			eachRow(o, func(row map[string]any) { row["cells"] = []int{1} })
		})},
		{check: "table.include-object", request: drop(http.MethodGet, "includeObject", "None")},
		{check: "table.metadata-only", response: edit(always, func(o object) {
			if o["kind"] == "PartialObjectMetadataList" {
				inItems(o, func(i map[string]any) { i["spec"] = 1 })
			}
		})},
		{check: "watch.initial", event: func(r *http.Request, e event) []event {
			if r.URL.Query().Get("resourceVersion") == "0" {
				e.Type = "MODIFIED"
			}
			return []event{e}
		}},
		{check: "watch.timeout", request: drop(http.MethodGet, "timeoutSeconds", "1")},
		{check: "watch.bookmarks", event: func(_ *http.Request, e event) []event {
			if e.Type == "BOOKMARK" {
				e.Object["kind"] = "Bookmark"
			}
			return []event{e}
		}},
		{check: "watch.expired", event: func(r *http.Request, e event) []event {
			if r.URL.Query().Get("resourceVersion") == "1" {
				return nil
			}
			return []event{e}
		}},
		{check: "watch.expired", event: func(r *http.Request, e event) []event {
			if r.URL.Query().Get("resourceVersion") == "1" {
				return []event{{Type: "ERROR", Object: object{"kind": "Status", "code": 500}}}
			}
			return []event{e}
		}},
		{check: "dry-run.create", request: func(r *http.Request) {
			if r.URL.Query().Get("fieldValidation") == "" {
				drop(http.MethodPost, "dryRun", "All")(r)
			}
		}},
		{check: "dry-run.unknown", request: replace(http.MethodPost, "dryRun", "Some", "All")},
		{check: "dry-run.change", request: drop(http.MethodPatch, "dryRun", "All")},
		{check: "dry-run.change", request: func(r *http.Request) {
			drop(http.MethodDelete, "dryRun", "All")(r)
			body(named(http.MethodDelete, "-dry-change"), func(o object) { delete(o, "dryRun") })(r)
		}},
		{check: "field-validation.strict", request: drop(http.MethodPost, "fieldValidation", "Strict")},
		{check: "field-validation.warn", raw: func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Del("Warning") }},
		{check: "field-validation.ignore", request: replace(http.MethodPost, "fieldValidation", "Ignore", "Warn")},
		{check: "create.metadata", response: edit(always, func(o object) {
			if strings.HasSuffix(o.Name(), "-created") {
				delete(metadata(o), "uid")
			}
		})},
		{check: "create.exists", response: func(_ *http.Request, code int, _ http.Header, o object) (int, object) {
			if o["reason"] == "AlreadyExists" {
				o["reason"] = "Conflict"
			}
			return code, o
		}},
		{check: "create.generate-name", response: edit(func(r *http.Request) bool { return r.Method == http.MethodPost }, func(o object) {
			if strings.Contains(o.Name(), "-generated-") {
				metadata(o)["name"] = "another"
			}
		})},
		{check: "update.metadata", response: edit(named(http.MethodPut, "-updated"), func(o object) { metadata(o)["uid"] = "another" })},
		{check: "update.conflict", request: body(named(http.MethodPut, "-conflict"), func(o object) { delete(metadata(o), "resourceVersion") })},
		{check: "apply.create", response: edit(always, func(o object) { delete(metadata(o), "managedFields") })},
		{check: "apply.conflict", request: func(r *http.Request) {
			if r.Header.Get("Content-Type") == ask.ApplyPatch {
				replace(http.MethodPatch, "force", "", "true")(r)
			}
		}},
		{check: "apply.remove", request: body(named(http.MethodPatch, "-apply-remove"), func(o object) {
			metadata(o)["labels"].(map[string]any)[probeLabel] = "first"
		})},
		{check: "apply.manager", request: func(r *http.Request) {
			if r.Header.Get("Content-Type") == ask.ApplyPatch && r.URL.Query().Get("fieldManager") == "" {
				replace(http.MethodPatch, "fieldManager", "", "unknown")(r)
			}
		}},
		{check: "watch.live", event: func(_ *http.Request, e event) []event {
			if strings.HasSuffix(e.Object.Name(), "-live") {
				return []event{e, e}
			}
			return []event{e}
		}},
		{check: "watch.resume", request: func(r *http.Request) {
			// It begins an event too early.
			if v, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")); v > 1 && r.URL.Query().Get("watch") == "true" {
				replace(http.MethodGet, "resourceVersion", "", strconv.Itoa(v-1))(r)
			}
		}},
		{check: "delete.precondition", request: body(named(http.MethodDelete, "-precondition"), func(o object) { delete(o, "preconditions") })},
		{check: "delete.gone", request: func(r *http.Request) {
			if gone(r) {
				r.Method = http.MethodGet
			}
		}},
	}
}
