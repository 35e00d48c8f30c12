package servicesync

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/servicesync/access"
)

// fakeAPI is as much of a Kubernetes API as the shell speaks, in memory: objects
// with resourceVersions, preconditions, merge patches, lists and watches. It
// has no defaults and no controllers.
type fakeAPI struct {
	t   *testing.T
	srv *httptest.Server

	mu      sync.Mutex
	changed *sync.Cond
	objects map[string]map[string]any // by path
	events  []fakeEvent
	version int64
	writes  []string          // VERB PATH, of what changed something
	groups  []metav1.APIGroup // that it says to serve
	denied  func(verb, resource string) bool
	before  func(verb, path string) error // called, with mu held, before each write
	closed  bool
}

type fakeEvent struct {
	collection string // path without the namespace and the name
	namespace  string
	kind       string
	version    int64
	object     map[string]any
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{t: t, objects: make(map[string]map[string]any)}
	f.changed = sync.NewCond(&f.mu)
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.mu.Lock()
		f.closed = true
		f.changed.Broadcast()
		f.mu.Unlock()
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

func (f *fakeAPI) config() *rest.Config { return &rest.Config{Host: f.srv.URL} }

// target is what a path names.
type target struct {
	collection, namespace, name, sub string
}

func (t target) path() string { return t.collection + " " + t.namespace + "/" + t.name }

func parseTarget(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := 2 // api/v1
	if parts[0] == "apis" {
		n = 3
	}
	t := target{}
	base, rest := strings.Join(parts[:min(n, len(parts))], "/"), parts[min(n, len(parts)):]
	if len(rest) > 2 && rest[0] == "namespaces" {
		t.namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 0 {
		t.collection = base + "/" + rest[0]
	}
	if len(rest) > 1 {
		t.name = rest[1]
	}
	if len(rest) > 2 {
		t.sub = rest[2]
	}
	return t
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/api":
		reply(w, 200, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case "/apis":
		reply(w, 200, &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: f.groups})
		return
	}
	t := parseTarget(r.URL.Path)
	resource := t.collection[strings.LastIndex(t.collection, "/")+1:]
	verb := map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	if resource == "selfsubjectaccessreviews" {
		f.review(w, r)
		return
	}
	f.mu.Lock()
	refused := f.denied != nil && f.denied(verb, resource)
	f.mu.Unlock()
	switch {
	case refused:
		fail(w, 403, metav1.StatusReasonForbidden, fmt.Sprintf("%s is forbidden: User \"sync\" cannot %s resource %q", resource, verb, resource))
	case r.Method == "GET" && t.name == "" && r.URL.Query().Get("watch") != "":
		f.watch(w, r, t)
	case r.Method == "GET" && t.name == "":
		f.list(w, r, t)
	default:
		f.one(w, r, t)
	}
}

// typeOf is the apiVersion and kind of what a collection holds.
func typeOf(collection string) (version, kind string) {
	base, resource, _ := strings.Cut(collection, "/")
	version, resource, _ = strings.Cut(resource, "/")
	if base == "apis" {
		group := version
		version, resource, _ = strings.Cut(resource, "/")
		version = group + "/" + version
	}
	for gvk, name := range access.Kinds() {
		if name == resource {
			return version, gvk.Kind
		}
	}
	return version, map[string]string{
		"leases": "Lease", "events": "Event", "customresourcedefinitions": "CustomResourceDefinition", "nodes": "Node",
		"servicecidrs": "ServiceCIDR", "secrets": "Secret",
	}[resource]
}

func reply(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(obj)
}

func fail(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	reply(w, int(code), &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason, Message: message})
}

// decode reads a body, of JSON or protobuf.
func decode(r *http.Request) (map[string]any, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
		all := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
			if err := add(all); err != nil {
				return nil, err
			}
		}
		obj, _, err := serializer.NewCodecFactory(all).UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	}
	out := map[string]any{}
	return out, json.Unmarshal(data, &out)
}

func (f *fakeAPI) review(w http.ResponseWriter, r *http.Request) {
	body, err := decode(r)
	if err != nil {
		fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	verb, _, _ := unstructured.NestedString(body, "spec", "resourceAttributes", "verb")
	resource, _, _ := unstructured.NestedString(body, "spec", "resourceAttributes", "resource")
	f.mu.Lock()
	allowed := f.denied == nil || verb != "*" && !f.denied(verb, resource)
	f.mu.Unlock()
	body["apiVersion"], body["kind"] = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	body["status"] = map[string]any{"allowed": allowed}
	reply(w, 201, body)
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, t target) {
	selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []any{}
	for path, obj := range f.objects {
		u := unstructured.Unstructured{Object: obj}
		if strings.HasPrefix(path, t.collection+" ") && (t.namespace == "" || u.GetNamespace() == t.namespace) && selector.Matches(labels.Set(u.GetLabels())) {
			items = append(items, obj)
		}
	}
	version, kind := typeOf(t.collection)
	reply(w, 200, map[string]any{"apiVersion": version, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": strconv.FormatInt(f.version, 10)}, "items": items})
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, t target) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "" {
		fail(w, 422, metav1.StatusReasonInvalid, "sendInitialEvents is not served here")
		return
	}
	selector, _ := labels.Parse(q.Get("labelSelector"))
	since, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
		f.mu.Lock()
		f.changed.Broadcast()
		f.mu.Unlock()
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	for next := 0; ; {
		for ; next < len(f.events); next++ {
			e := f.events[next]
			u := unstructured.Unstructured{Object: e.object}
			if e.version > since && e.collection == t.collection && (t.namespace == "" || e.namespace == t.namespace) && selector.Matches(labels.Set(u.GetLabels())) {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object})
			}
		}
		w.(http.Flusher).Flush()
		if r.Context().Err() != nil || f.closed {
			return
		}
		f.changed.Wait()
	}
}

// one serves a single object.
func (f *fakeAPI) one(w http.ResponseWriter, r *http.Request, t target) {
	var body map[string]any
	var err error
	if r.Method != "GET" {
		if body, err = decode(r); err != nil && r.Method != "DELETE" {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	if r.Method == "POST" {
		t.name, _, _ = unstructured.NestedString(body, "metadata", "name")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method != "GET" && f.before != nil {
		if err := f.before(r.Method, t.path()); err != nil {
			fail(w, 500, metav1.StatusReasonInternalError, err.Error())
			return
		}
	}
	old, exists := f.objects[t.path()]
	switch {
	case r.Method == "POST" && exists:
		fail(w, 409, metav1.StatusReasonAlreadyExists, t.path()+" exists")
	case r.Method == "POST":
		reply(w, 201, asked(r, f.put("ADDED", t, body, "POST")))
	case !exists:
		fail(w, 404, metav1.StatusReasonNotFound, t.path()+" is not there")
	case r.Method == "GET":
		reply(w, 200, old)
	case r.Method == "DELETE":
		if !same(old, body, "preconditions") {
			fail(w, 409, metav1.StatusReasonConflict, t.path()+" has changed")
			return
		}
		f.put("DELETED", t, old, "DELETE")
		reply(w, 200, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	default:
		f.change(w, r, t, old, body)
	}
}

// change serves an update or a patch.
func (f *fakeAPI) change(w http.ResponseWriter, r *http.Request, t target, old, body map[string]any) {
	if !same(old, body, "metadata") {
		fail(w, 409, metav1.StatusReasonConflict, t.path()+" has changed")
		return
	}
	next := body
	if r.Method == "PATCH" {
		was, _ := json.Marshal(old)
		patch, _ := json.Marshal(body)
		merged, err := jsonpatch.MergePatch(was, patch)
		if err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		next = map[string]any{}
		_ = json.Unmarshal(merged, &next)
	}
	next = clone(next)
	if t.sub == "status" {
		status := next["status"]
		next = clone(old)
		next["status"] = status
	} else if status, ok := old["status"]; ok && strings.Contains(t.collection, "xbernetes") {
		next["status"] = status
	}
	if reflect.DeepEqual(old, next) {
		reply(w, 200, asked(r, old)) // as if nothing had been written
		return
	}
	reply(w, 200, asked(r, f.put("MODIFIED", t, next, r.Method)))
}

// asked is what of an object the client wants: all, or its metadata.
func asked(r *http.Request, obj map[string]any) map[string]any {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return obj
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}
}

// same tells whether the uid and resourceVersion in a field of the body, if
// any, are the object's.
func same(old, body map[string]any, field string) bool {
	for _, what := range []string{"uid", "resourceVersion"} {
		asked, _, _ := unstructured.NestedString(body, field, what)
		is, _, _ := unstructured.NestedString(old, "metadata", what)
		if asked != "" && asked != is {
			return false
		}
	}
	return true
}

func clone(obj map[string]any) map[string]any { return runtime.DeepCopyJSON(obj) }

// put stores an object, or removes it, and tells watchers. f.mu is held.
func (f *fakeAPI) put(kind string, t target, obj map[string]any, method string) map[string]any {
	f.version++
	obj = clone(obj)
	obj["apiVersion"], obj["kind"] = typeOf(t.collection)
	u := unstructured.Unstructured{Object: obj}
	u.SetName(t.name)
	u.SetNamespace(t.namespace)
	u.SetResourceVersion(strconv.FormatInt(f.version, 10))
	if u.GetUID() == "" {
		u.SetUID(types.UID("uid-" + u.GetResourceVersion()))
		u.SetCreationTimestamp(metav1.NewTime(time.Unix(f.version, 0)))
	}
	if strings.HasSuffix(t.collection, "customresourcedefinitions") {
		obj["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	}
	f.objects[t.path()] = obj
	if kind == "DELETED" {
		delete(f.objects, t.path())
	}
	f.events = append(f.events, fakeEvent{t.collection, t.namespace, kind, f.version, obj})
	f.writes = append(f.writes, method+" "+t.path())
	f.changed.Broadcast()
	return obj
}

// wrote are the writes since mark that are of objects people look at: no leases, no events.
func (f *fakeAPI) wrote(mark int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.writes[mark:]), func(w string) bool {
		return strings.Contains(w, "leases") || strings.Contains(w, "/events ")
	})
}

func (f *fakeAPI) mark() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.writes)
}

// await waits until check, which is called after every change, is true.
func (f *fakeAPI) await(what string, check func() bool) {
	f.t.Helper()
	late := time.AfterFunc(30*time.Second, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer late.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for start := time.Now(); !check(); f.changed.Wait() {
		if time.Since(start) > 29*time.Second {
			f.t.Fatalf("waited too long for: %s; there is %q", what, f.paths())
		}
	}
}

func (f *fakeAPI) paths() []string {
	var all []string
	for p := range f.objects {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}
