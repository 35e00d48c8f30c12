package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
)

type (
	object = ask.Object
	event  = ask.Event
)

// Names that the checks use, written here once more, because a server knows them
// from the requests alone.
const (
	probeLabel       = "conformance.xbernetes.io/probe"
	unknownField     = "xbUnknownField"
	initialEventsEnd = "k8s.io/initial-events-end"
)

// fake is a small API server that follows the conventions, in memory: it serves
// configmaps.v1 and gadgets.v1.test.example.com, both namespaced.
type fake struct {
	noConfigMaps bool
	statusKind   string // of gadgets/status

	mu       sync.Mutex
	version  int
	objects  map[string]object // by path
	events   []fakeEvent
	changed  chan struct{} // closed, and replaced, with every event
	requests []string      // METHOD path
}

type fakeEvent struct {
	version    int
	collection string // path of the resource, without namespace
	event      event
}

func newFake() *fake {
	f := &fake{statusKind: "Gadget", version: 100, objects: map[string]object{}, changed: make(chan struct{})}
	for _, name := range []string{"one", "two", "three"} {
		f.put("ADDED", "/apis/test.example.com/v1", "gadgets", object{"apiVersion": "test.example.com/v1", "kind": "Gadget",
			"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{"size": "small"}})
	}
	return f
}

var fakeKinds = map[string]string{"configmaps": "ConfigMap", "gadgets": "Gadget"}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	f.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "openapi":
		f.serveOpenAPI(w, r)
	case r.URL.Path == "/version":
		reply(w, 200, object{"major": "1", "minor": "37", "gitVersion": "v1.37.1-fake"})
	case len(parts) >= 3 && parts[0] == "api" && parts[1] == "v1" && !f.noConfigMaps:
		f.serveResource(w, r, "/api/v1", parts[2:])
	case len(parts) >= 4 && parts[0] == "apis" && parts[1] == "test.example.com" && parts[2] == "v1":
		f.serveResource(w, r, "/apis/test.example.com/v1", parts[3:])
	default:
		f.serveDiscovery(w, r)
	}
}

func reply(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, details object) {
	reply(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "refused: " + string(reason), "details": details})
}

var (
	fakeVerbs   = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	statusVerbs = []string{"get", "update"}
)

func (f *fake) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	version := object{"groupVersion": "test.example.com/v1", "version": "v1"}
	group := object{"name": "test.example.com", "versions": []any{version}, "preferredVersion": version}
	aggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	resources := func(gv, name string, more ...any) object {
		return object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": append([]any{
			object{"name": name, "singularName": "", "namespaced": true, "kind": fakeKinds[name], "verbs": fakeVerbs}}, more...)}
	}
	groupOf := func(group, name string, more ...any) object {
		return object{"metadata": object{"name": group}, "versions": []any{object{"version": "v1", "freshness": "Current", "resources": []any{
			object{"resource": name, "responseKind": object{"group": group, "version": "v1", "kind": fakeKinds[name]}, "scope": "Namespaced", "singularResource": "", "verbs": fakeVerbs, "subresources": more}}}}}
	}
	switch path := r.URL.Path; {
	case path == "/api" && f.noConfigMaps:
		http.NotFound(w, r)
	case path == "/api" && aggregated:
		f.replyAggregated(w, r, groupOf("", "configmaps"))
	case path == "/api":
		reply(w, 200, object{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/api/v1" && !f.noConfigMaps:
		reply(w, 200, resources("v1", "configmaps"))
	case path == "/apis" && aggregated:
		f.replyAggregated(w, r, groupOf("test.example.com", "gadgets",
			object{"subresource": "status", "responseKind": object{"group": "test.example.com", "version": "v1", "kind": f.statusKind}, "verbs": statusVerbs}))
	case path == "/apis":
		reply(w, 200, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group}})
	case path == "/apis/test.example.com":
		group["kind"], group["apiVersion"] = "APIGroup", "v1"
		reply(w, 200, group)
	case path == "/apis/test.example.com/v1":
		reply(w, 200, resources("test.example.com/v1", "gadgets", object{"name": "gadgets/status", "singularName": "", "namespaced": true, "kind": f.statusKind, "verbs": statusVerbs}))
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) replyAggregated(w http.ResponseWriter, r *http.Request, group object) {
	w.Header().Set("ETag", `"one"`)
	if r.Header.Get("If-None-Match") == `"one"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body, _ := json.Marshal(object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": object{}, "items": []any{group}})
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	w.Write(body)
}

func (f *fake) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	describe := func(group, name, prefix string) (paths, schemas object) {
		kind := fakeKinds[name]
		query := []any{object{"name": "dryRun", "in": "query"}, object{"name": "fieldValidation", "in": "query"}}
		paths = object{
			prefix + "/namespaces/{namespace}/" + name:             object{"post": object{"parameters": query}},
			prefix + "/namespaces/{namespace}/" + name + "/{name}": object{"parameters": query, "patch": object{"requestBody": object{"content": object{ask.ApplyPatch: object{}, ask.MergePatch: object{}}}}},
		}
		schemas = object{kind: object{"type": "object", "required": []string{"spec"}, "properties": object{"spec": object{"$ref": "#/components/schemas/Spec"}},
			"x-kubernetes-group-version-kind": []any{object{"group": group, "version": "v1", "kind": kind}}},
			"Spec": object{"type": "object", "required": []string{"size"}, "properties": object{"size": object{"type": "string", "enum": []string{"small", "large"}}}}}
		if name == "configmaps" {
			delete(schemas[kind].(object), "required")
		}
		return paths, schemas
	}
	document := func(group, name, prefix string) object {
		paths, schemas := describe(group, name, prefix)
		return object{"openapi": "3.0.0", "paths": paths, "components": object{"schemas": schemas}}
	}
	switch r.URL.Path {
	case "/openapi/v3":
		index := object{"apis/test.example.com/v1": object{"serverRelativeURL": "/openapi/v3/apis/test.example.com/v1?hash=1"}, ".well-known": object{"serverRelativeURL": "/nowhere"}}
		if !f.noConfigMaps {
			index["api/v1"] = object{"serverRelativeURL": "/openapi/v3/api/v1?hash=2"}
		}
		reply(w, 200, object{"paths": index})
	case "/openapi/v3/apis/test.example.com/v1":
		reply(w, 200, document("test.example.com", "gadgets", "/apis/test.example.com/v1"))
	case "/openapi/v3/api/v1":
		reply(w, 200, document("", "configmaps", "/api/v1"))
	case "/openapi/v2":
		paths, definitions := describe("test.example.com", "gadgets", "/apis/test.example.com/v1")
		more, others := describe("", "configmaps", "/api/v1")
		for k, v := range more {
			paths[k] = v
		}
		for k, v := range others {
			definitions[k] = v
		}
		reply(w, 200, object{"swagger": "2.0", "paths": paths, "definitions": definitions})
	default:
		http.NotFound(w, r)
	}
}

// put stores an object and tells the watches.
func (f *fake) put(kind, prefix, resource string, o object) object {
	f.version++
	m := o["metadata"].(map[string]any)
	if m["uid"] == nil {
		m["uid"] = fmt.Sprintf("uid-%d", f.version)
		m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	m["resourceVersion"] = strconv.Itoa(f.version)
	path := prefix + "/namespaces/" + o.Namespace() + "/" + resource + "/" + o.Name()
	if kind == "DELETED" {
		delete(f.objects, path)
	} else {
		f.objects[path] = o
	}
	f.events = append(f.events, fakeEvent{f.version, prefix + "/" + resource, event{Type: kind, Object: o.Copy()}})
	close(f.changed)
	f.changed = make(chan struct{})
	return o
}

func (f *fake) serveResource(w http.ResponseWriter, r *http.Request, prefix string, rest []string) {
	namespace := ""
	if rest[0] == "namespaces" && len(rest) >= 3 {
		namespace, rest = rest[1], rest[2:]
	}
	resource := rest[0]
	if fakeKinds[resource] == "" || prefix == "/api/v1" != (resource == "configmaps") {
		http.NotFound(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	switch {
	case len(rest) == 1 && r.Method == http.MethodGet && q.Get("watch") == "true":
		f.watch(w, r, prefix+"/"+resource, namespace)
	case len(rest) == 1 && r.Method == http.MethodGet:
		f.list(w, r, prefix, resource, namespace)
	case len(rest) == 1 && r.Method == http.MethodPost:
		f.change(w, r, prefix, resource, namespace, "")
	case len(rest) == 2:
		f.change(w, r, prefix, resource, namespace, rest[1])
	default:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, nil)
	}
}

// selected makes a filter; false if the selectors cannot be read.
func selected(q url.Values, namespace string) (func(object) bool, bool) {
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, false
	}
	name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return func(o object) bool {
		set := labels.Set{}
		given, _ := o.At("metadata", "labels").(map[string]any)
		for k, v := range given {
			set[k] = v.(string)
		}
		return (namespace == "" || o.Namespace() == namespace) && (!byName || o.Name() == name) && selector.Matches(set)
	}, true
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, prefix, resource, namespace string) {
	q := r.URL.Query()
	match, ok := selected(q, namespace)
	wanted, _ := strconv.Atoi(q.Get("resourceVersion"))
	offset, err := strconv.Atoi("0" + q.Get("continue"))
	switch accept := r.Header.Get("Accept"); {
	case !ok:
		refuse(w, 400, metav1.StatusReasonBadRequest, nil)
		return
	case !strings.Contains(accept, ask.JSON):
		refuse(w, 406, metav1.StatusReasonNotAcceptable, nil)
		return
	case err != nil:
		refuse(w, 400, metav1.StatusReasonBadRequest, nil)
		return
	case q.Get("resourceVersionMatch") != "" && q.Get("resourceVersion") == "":
		refuse(w, 422, metav1.StatusReasonInvalid, nil)
		return
	case wanted > f.version:
		refuse(w, 504, metav1.StatusReasonTimeout, nil)
		return
	case q.Get("resourceVersionMatch") == "Exact" && wanted != f.version:
		refuse(w, 410, metav1.StatusReasonExpired, nil)
		return
	}
	var items []object
	var paths []string
	for path, o := range f.objects {
		if o["kind"] == fakeKinds[resource] && match(o) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		items = append(items, f.objects[path])
	}
	items = items[min(offset, len(items)):]
	metadata := object{"resourceVersion": strconv.Itoa(f.version)}
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && len(items) > limit {
		items = items[:limit]
		metadata["continue"] = strconv.Itoa(offset + limit)
	}
	reply(w, 200, shape(r, resource, prefix, metadata, items))
}

// shape makes a list of the form that is asked for.
func shape(r *http.Request, resource, prefix string, metadata object, items []object) object {
	_, params, _ := mime.ParseMediaType(strings.Split(r.Header.Get("Accept"), ",")[0])
	partial := func(o object) object {
		return object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
	}
	switch params["as"] {
	case "Table":
		all := []any{}
		for _, o := range items {
			row := object{"cells": []any{o.Name(), "1d"}}
			if r.URL.Query().Get("includeObject") != "None" {
				row["object"] = partial(o)
			}
			all = append(all, row)
		}
		return object{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "rows": all,
			"columnDefinitions": []any{object{"name": "Name", "type": "string"}, object{"name": "Age", "type": "string"}}}
	case "PartialObjectMetadataList":
		all := []any{}
		for _, o := range items {
			all = append(all, partial(o))
		}
		return object{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": all}
	default:
		gv := strings.TrimPrefix(strings.TrimPrefix(prefix, "/apis/"), "/api/")
		return object{"kind": fakeKinds[resource] + "List", "apiVersion": gv, "metadata": metadata, "items": append([]object{}, items...)}
	}
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request, collection, namespace string) {
	q := r.URL.Query()
	match, _ := selected(q, namespace)
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	next := 0
	w.Header().Set("Content-Type", ask.JSON)
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	send := func(e event) {
		json.NewEncoder(w).Encode(e)
		w.(http.Flusher).Flush()
	}
	if from == 0 {
		for _, o := range f.objects {
			if match(o) && strings.HasSuffix(collection, strings.ToLower(o.Text("kind"))+"s") {
				send(event{Type: "ADDED", Object: o})
			}
		}
		next = len(f.events)
		if q.Get("sendInitialEvents") == "true" {
			kind := fakeKinds[collection[strings.LastIndex(collection, "/")+1:]]
			send(event{Type: "BOOKMARK", Object: object{"kind": kind, "metadata": object{"resourceVersion": strconv.Itoa(f.version), "annotations": object{initialEventsEnd: "true"}}}})
		}
	}
	end := make(<-chan time.Time)
	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil {
		end = time.After(time.Duration(seconds) * time.Second)
	}
	for {
		for ; next < len(f.events); next++ {
			if e := f.events[next]; e.version > from && e.collection == collection && match(e.event.Object) {
				send(e.event)
			}
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
			f.mu.Lock()
		case <-end:
			f.mu.Lock()
			return
		case <-r.Context().Done():
			f.mu.Lock()
			return
		}
	}
}

// change does what is done to one object.
func (f *fake) change(w http.ResponseWriter, r *http.Request, prefix, resource, namespace, name string) {
	var given object
	body, _ := io.ReadAll(r.Body)
	if len(body) > 0 {
		if err := json.Unmarshal(body, &given); err != nil {
			refuse(w, 400, metav1.StatusReasonBadRequest, nil)
			return
		}
	}
	q := r.URL.Query()
	dry := q.Get("dryRun") == "All" || given["kind"] == "DeleteOptions" && given["dryRun"] != nil
	now := f.objects[prefix+"/namespaces/"+namespace+"/"+resource+"/"+name]
	apply := r.Method == http.MethodPatch && r.Header.Get("Content-Type") == ask.ApplyPatch
	if _, unknown := given[unknownField]; unknown {
		switch q.Get("fieldValidation") {
		case "Strict":
			reply(w, 400, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400, "reason": "BadRequest", "message": "unknown field " + unknownField})
			return
		case "Warn":
			w.Header().Set("Warning", `299 - "unknown field `+unknownField+`"`)
		}
		delete(given, unknownField)
	}
	switch {
	case q.Get("dryRun") != "" && q.Get("dryRun") != "All":
		refuse(w, 422, metav1.StatusReasonInvalid, nil)
	case r.Method == http.MethodPost:
		f.create(w, prefix, resource, namespace, given, dry)
	case apply:
		f.apply(w, q, prefix, resource, namespace, name, given)
	case now == nil:
		refuse(w, 404, metav1.StatusReasonNotFound, object{"name": name, "kind": resource})
	case r.Method == http.MethodGet:
		reply(w, 200, now)
	case r.Method == http.MethodDelete:
		if uid := given.Text("preconditions", "uid"); uid != "" && uid != now.UID() {
			refuse(w, 409, metav1.StatusReasonConflict, nil)
			return
		}
		if !dry {
			now = f.put("DELETED", prefix, resource, now.Copy())
		}
		reply(w, 200, now)
	case r.Method == http.MethodPut && given.ResourceVersion() != "" && given.ResourceVersion() != now.ResourceVersion():
		refuse(w, 409, metav1.StatusReasonConflict, nil)
	default: // a PUT, or a merge patch of labels
		next := now.Copy()
		if label := given.Text("metadata", "labels", probeLabel); label != "" {
			next.At("metadata", "labels").(map[string]any)[probeLabel] = label
		}
		if !dry {
			next = f.put("MODIFIED", prefix, resource, next)
		}
		reply(w, 200, next)
	}
}

func (f *fake) create(w http.ResponseWriter, prefix, resource, namespace string, o object, dry bool) {
	m := o["metadata"].(map[string]any)
	m["namespace"] = namespace
	if o.Name() == "" {
		m["name"] = fmt.Sprint(m["generateName"], f.version)
	}
	if f.objects[prefix+"/namespaces/"+namespace+"/"+resource+"/"+o.Name()] != nil {
		refuse(w, 409, metav1.StatusReasonAlreadyExists, nil)
		return
	}
	if !dry {
		o = f.put("ADDED", prefix, resource, o)
	}
	reply(w, 201, o)
}

// apply knows who holds one field: the probe label.
func (f *fake) apply(w http.ResponseWriter, q url.Values, prefix, resource, namespace, name string, o object) {
	const holder = "holder"
	manager, label := q.Get("fieldManager"), o.Text("metadata", "labels", probeLabel)
	now := f.objects[prefix+"/namespaces/"+namespace+"/"+resource+"/"+name]
	managed := func(o object) {
		m := o["metadata"].(map[string]any)
		m["managedFields"] = []any{map[string]any{"manager": manager, "operation": "Apply"}}
		m["namespace"] = namespace
		if label != "" {
			o[holder] = manager
		}
	}
	switch {
	case manager == "":
		refuse(w, 422, metav1.StatusReasonInvalid, nil)
	case now == nil:
		managed(o)
		reply(w, 201, f.put("ADDED", prefix, resource, o))
	case label != "" && label != now.Text("metadata", "labels", probeLabel) && now.Text(holder) != manager && q.Get("force") != "true":
		refuse(w, 409, metav1.StatusReasonConflict, object{"causes": []any{object{"reason": metav1.CauseTypeFieldManagerConflict}}})
	default:
		next := now.Copy()
		held := next.At("metadata", "labels").(map[string]any)
		if label != "" {
			held[probeLabel] = label
		} else if now.Text(holder) == manager {
			delete(held, probeLabel)
		}
		managed(next)
		reply(w, 200, f.put("MODIFIED", prefix, resource, next))
	}
}
