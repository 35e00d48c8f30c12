package policy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/policytest"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

var requests = flag.Int("requests", 6000, "how many requests to read with Kubernetes' own handlers beside the guard's")

// referenceServers is the reference server, guarded.
type referenceServers struct{ url string }

func (s referenceServers) For(group string) (servers.Server, bool) {
	return servers.Server{Name: "A", Guard: v1alpha1.Guard{Namespaces: true, Authorization: true, Quota: true}}, group == referenceGroup.Group
}
func (s referenceServers) Claims(string, string) bool { return true }
func (s referenceServers) Names() []string            { return []string{"A"} }
func (s referenceServers) Kind(_ string, gvr schema.GroupVersionResource) (canonical.Kind, error) {
	return referenceKind(gvr)
}
func (s referenceServers) Client(string) (*rest.Config, *http.Client, error) {
	return &rest.Config{Host: s.url, QPS: -1}, http.DefaultClient, nil
}

// differential sends requests to a server through a guard, and holds what the
// server carries out against what the guard has judged.
type differential struct {
	guard     *Guard
	memory    *policytest.Memory
	reference http.Handler

	asked  []authorizer.AttributesRecord // of the request that is being sent
	passed int                           // requests that were carried out
}

func newDifferential(t testing.TB) *differential {
	reference, err := newReference()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(reference)
	t.Cleanup(s.Close)
	d := &differential{reference: reference, memory: newMemory(1<<40, 0)}
	d.guard = &Guard{
		servers: referenceServers{s.URL}, log: slog.New(slog.DiscardHandler), requestTimeout: 5 * time.Second,
		answers: newAnswers(), identity: "test",
		authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			d.asked = append(d.asked, *a.(*authorizer.AttributesRecord))
			return authorizer.DecisionAllow, "", nil
		}),
	}
	d.guard.over(d.memory)
	return d
}

// pending counts the creates of a resource that are pending.
func (d *differential) pending(t *testing.T, resource, namespace string) int {
	l := d.memory.Ledger(t, ledger.Key{Namespace: namespace, UID: "uid"})
	if l == nil {
		return 0
	}
	return l.PendingOf(resource)
}

// try sends one request, as it came over the wire, to a server of each sort.
func (d *differential) try(t *testing.T, raw string) {
	t.Helper()
	for name, server := range map[string]http.Handler{"Kubernetes": d.reference, "careless": http.HandlerFunc(careless)} {
		r := parseRequest(raw)
		if r == nil || !strings.HasPrefix(r.URL.Path, "/apis/"+referenceGroup.Group+"/") {
			return // the gateway sends it elsewhere
		}
		d.asked = nil
		before := d.passed
		through := &effects{}
		h := d.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.passed++
			httptrace.ContextClientTrace(orTrace(r)).GotConn(httptrace.GotConnInfo{})
			server.ServeHTTP(w, overTheWire(t, r))
			d.judge(t, name, raw, through.all)
		}))
		r, err := call.Begin(r)
		if err != nil {
			return // the gateway refuses a request whose URL Kubernetes cannot read
		}
		call.Of(r).Server = guardedA(v1alpha1.Guard{Namespaces: true, Authorization: true, Quota: true})
		ctx := context.WithValue(r.Context(), effectsKey{}, through)
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "ann"})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		if d.passed == before {
			if len(through.all) > 0 || w.Code < 400 {
				t.Errorf("%s: refused with %d, and carried out: %+v\n%q", name, w.Code, through.all, raw)
			}
			continue
		}
		if name != "Kubernetes" {
			continue
		}
		// What passes means what it meant.
		straight := &effects{}
		r = parseRequest(raw)
		server.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), effectsKey{}, straight)))
		if len(straight.all) > 0 && !slices.Equal(straight.all, through.all) {
			t.Errorf("straight to Kubernetes it is %+v, and through the guard %+v\n%q", straight.all, through.all, raw)
		}
	}
}

func orTrace(r *http.Request) context.Context {
	if httptrace.ContextClientTrace(r.Context()) != nil {
		return r.Context()
	}
	return httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {}})
}

// judge holds what was carried out against what the core server was asked, and
// what is written down.
func (d *differential) judge(t *testing.T, server, raw string, all []effect) {
	t.Helper()
	reserved := 0
	for _, e := range all {
		if !slices.ContainsFunc(d.asked, func(a authorizer.AttributesRecord) bool { return covers(a, e, e.Verb) }) {
			t.Errorf("%s carried out %+v, and the core server was asked of %+v\n%q", server, e, d.asked, raw)
		}
		if !e.Creates {
			continue
		}
		if !slices.ContainsFunc(d.asked, func(a authorizer.AttributesRecord) bool { return covers(a, e, "create") }) {
			t.Errorf("%s created %+v, and the core server was asked of %+v\n%q", server, e, d.asked, raw)
		}
		if e.Resource != "pods" {
			continue
		}
		if reserved++; d.pending(t, "pods."+referenceGroup.Group, e.Namespace) < reserved {
			t.Errorf("%s created %+v, and no place was taken\n%q", server, e, raw)
		}
	}
}

// covers says whether the right that was asked for is that for the effect. The
// right to create is asked for by the name that the path has, which is none where
// the body has it.
func covers(a authorizer.AttributesRecord, e effect, verb string) bool {
	return a.Verb == verb && a.APIGroup == referenceGroup.Group && a.Resource == e.Resource && a.Subresource == e.Subresource &&
		a.Namespace == e.Namespace && (a.Name == e.Name || a.Name == "" && verb == "create")
}

// parseRequest reads a request as net/http's server does; nil if it is none.
func parseRequest(raw string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// overTheWire is a request as it arrives: by its letters alone.
func overTheWire(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	out := r.Clone(r.Context())
	out.URL = &url.URL{Scheme: "http", Host: "a", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	var wire bytes.Buffer
	if err := out.Write(&wire); err != nil {
		t.Fatalf("what passed cannot be written: %v", err)
	}
	in, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("what passed cannot be read: %v", err)
	}
	return in.WithContext(context.WithValue(context.Background(), effectsKey{}, r.Context().Value(effectsKey{})))
}

// draft is a request that is being made up.
type draft struct {
	method, path, query string
	header              []string // lines
	body                string
}

func (d draft) String() string {
	target := d.path
	if d.query != "" {
		target += "?" + d.query
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s", d.method, target, len(d.body), strings.Join(append(d.header, ""), "\r\n"), d.body)
}

const (
	podsPath  = "/apis/example.apiserver.k8s.io/v1/namespaces/ns/pods"
	nodesPath = "/apis/example.apiserver.k8s.io/v1/nodes"
)

func podText(name string) string {
	return `{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"nodeName":"n"}}`
}

// drafts are requests that Kubernetes carries out.
func drafts() []draft {
	typed := func(t string) []string { return []string{"Content-Type: " + t} }
	var all []draft
	for _, base := range []string{podsPath, nodesPath} {
		for _, name := range []string{"new", there} {
			one := base + "/" + name
			all = append(all,
				draft{"POST", base, "", typed("application/json"), podText(name)},
				draft{"PUT", one, "", typed("application/json"), podText(name)},
				draft{"PATCH", one, "fieldManager=m", typed("application/apply-patch+yaml"), podText(name)},
				draft{"PATCH", one, "", typed("application/merge-patch+json"), `{"spec":{"nodeName":"m"}}`},
				draft{"PATCH", one, "", typed("application/strategic-merge-patch+json"), `{"spec":{"nodeName":"m"}}`},
				draft{"PATCH", one, "", typed("application/json-patch+json"), `[{"op":"add","path":"/spec/nodeName","value":"m"}]`},
				draft{"PUT", one + "/status", "", typed("application/json"), podText(name)},
				draft{"GET", one, "", nil, ""}, draft{"DELETE", one, "", nil, ""},
			)
		}
		all = append(all, draft{"GET", base, "", nil, ""}, draft{"GET", base, "watch=true", nil, ""}, draft{"DELETE", base, "", nil, ""},
			draft{"GET", base, "fieldSelector=metadata.name=there", nil, ""})
	}
	return append(all, draft{"GET", "/apis/example.apiserver.k8s.io/v1/pods", "", nil, ""})
}

var (
	strangeTypes = []string{
		"", "application/json", "application/json; charset=utf-8", "Application/JSON", "application/json;", "application/json; a=1; a=2", "application/json, application/yaml",
		"application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf", "application/apply-patch+yaml; a=1; a=2", "application/apply-patch+yaml;", " application/apply-patch+yaml ",
		"application/apply-patch+yaml", "Application/Apply-Patch+YAML", "application/apply-patch+cbor", "application/merge-patch+json; a=1", "application/merge-patch+json;=",
		"application/x-www-form-urlencoded", "text/plain", "application/json\tapplication/yaml", "application/json;charset=utf-7", "application/merge-patch+json, application/apply-patch+yaml",
	}
	strangeQueries = []string{
		"dryRun=All", "dryRun=", "dryRun=all", "DryRun=All", "dryRun=All&dryRun=None", "dryRun=All&dryRun=All", "dry%52un=All", "dryRun=All;x=1", "watch=1", "watch", "watch=false",
		"watch=false&watch=true", "Watch=true", "watch=yes", "fieldSelector=metadata.name=other", "fieldSelector=metadata.name=there", "timeout=3s", "timeout=x", "timeout=1s&timeout=2s",
		"_method=DELETE", "_method=POST", "pretty=true", "%zz", "a=b", "fieldManager=m", "force=true", "limit=x", "limit=1", "labelSelector=a=b", "resourceVersion=0", "access_token=x", "fieldValidation=Strict",
	}
	strangeHeaders = []string{
		"X-HTTP-Method-Override: POST", "X_HTTP_Method_Override: DELETE", "X-Method-Override: PUT", "Content-Encoding: gzip", "Content-Encoding: identity", "Connection: Content-Type",
		"Connection: Upgrade\r\nUpgrade: websocket", "Upgrade: h2c", "Content-Type: application/apply-patch+yaml", "Content-Type: application/json", "X-Original-URL: /", "Accept: application/yaml",
		"Accept: application/json;as=Table;v=v1;g=meta.k8s.io", "X-Remote-User: root", "Impersonate-User: bob", "Authorization: Bearer a\r\nAuthorization: Bearer b", "If-Match: \"1\"", "Expect: 100-continue",
	}
	strangeMethods = []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE", "post", "patch", "PURGE"}
)

// mutate changes one thing about a request.
func mutate(rng *rand.Rand, d draft) draft {
	d.header = slices.Clone(d.header)
	switch rng.IntN(6) {
	case 0:
		d.method = pick(rng, strangeMethods)
	case 1:
		d.path = mutatePath(rng, d.path)
	case 2:
		d.query = strings.Trim(d.query+"&"+pick(rng, strangeQueries), "&")
	case 3:
		d.header = append([]string{"Content-Type: " + pick(rng, strangeTypes)}, d.header[min(1, len(d.header)):]...)
	case 4:
		d.header = append(d.header, pick(rng, strangeHeaders))
		if strings.HasSuffix(d.header[len(d.header)-1], "gzip") && rng.IntN(2) == 0 {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write([]byte(d.body))
			_ = z.Close()
			d.body = b.String()
		}
	default:
		d.body = mutateBody(rng, d.body)
	}
	return d
}

func mutatePath(rng *rand.Rand, path string) string {
	parts := strings.Split(path, "/")
	i := 1 + rng.IntN(len(parts)-1)
	switch rng.IntN(12) {
	case 0:
		parts[i] += pick(rng, []string{";a=1", ";", "%3Ba=1", "%2F", "%00", "%20", "..", "%252F", ",a", "?", "%5C"})
	case 1:
		parts[i] = strings.ToUpper(parts[i])
	case 2:
		parts[i] = url.PathEscape(parts[i][:min(1, len(parts[i]))]) + parts[i][min(1, len(parts[i])):]
		if parts[i] != "" {
			parts[i] = fmt.Sprintf("%%%02x", parts[i][0]) + parts[i][1:]
		}
	case 3:
		parts = append(parts, pick(rng, []string{"", "status", "status/extra", "scale", "x", "..", "namespaces"}))
	case 4:
		parts = slices.Insert(parts, min(4, len(parts)), pick(rng, []string{"watch", "proxy", "", "."}))
	case 5:
		path = strings.Replace(path, "/namespaces/ns", "", 1)
		return path
	case 6:
		return strings.Replace(path, "/nodes", "/namespaces/ns/nodes", 1)
	case 7:
		return strings.Replace(path, "/namespaces/ns", "/namespaces/"+pick(rng, []string{"other", "NS", "ns/namespaces/ns", "n%73", "-", "ns%2Fpods"}), 1)
	case 8:
		return strings.Replace(path, "/v1", pick(rng, []string{"/v2", "/V1", "/v1beta1"}), 1)
	case 9:
		return strings.Replace(path, "pods", pick(rng, []string{"nodes", "secrets", "Pods", "pod"}), 1)
	case 10:
		return path + pick(rng, []string{"/", "//", "/;", "/status", "/new"})
	default:
		parts = slices.Delete(parts, i, i+1)
	}
	return strings.Join(parts, "/")
}

func mutateBody(rng *rand.Rand, body string) string {
	replace := func(old, now string) string { return strings.Replace(body, old, now, 1) }
	const kind = `"kind":"Pod"`
	switch rng.IntN(22) {
	case 0:
		return ""
	case 1:
		return replace(kind+",", "")
	case 2:
		return replace(kind, `"kind":"Node"`)
	case 3:
		return replace(kind, `"kind":"Pod","kind":"Node"`)
	case 4:
		return replace(kind, `"Kind":"Node",`+kind)
	case 5:
		return replace(kind, kind+`,"K`+"\u0131"+`nd":"Node","`+"\u212a"+`ind":"Node"`)
	case 6:
		return replace(`"name":"`, `"namespace":"`+pick(rng, []string{"ns", "other", "NS"})+`","name":"`)
	case 7:
		return replace(`"name":"`, `"name":"`+pick(rng, []string{"x", "../", "a/b", "%2e"}))
	case 8:
		return replace(`"name":"`, `"Name":"other","name":"`)
	case 9:
		return replace(`"name":"`, `"name":"other","name":"`)
	case 10:
		return `{"apiVersion":"v1","kind":"List","items":[` + body + `,` + body + `]}`
	case 11:
		return `{"items":[` + body + `],` + strings.TrimPrefix(body, "{")
	case 12:
		return body + body
	case 13:
		return "apiVersion: example.apiserver.k8s.io/v1\nkind: Pod\nmetadata: {name: new}\n"
	case 14:
		return "apiVersion: example.apiserver.k8s.io/v1\nkind: Pod\nmetadata: {name: new}\n---\n" + body
	case 15:
		return "a: &a {name: new}\napiVersion: example.apiserver.k8s.io/v1\nkind: Pod\nmetadata:\n  <<: *a\n"
	case 16:
		return pick(rng, []string{
			`{"kind":"Node"}`, `{"metadata":{"name":"other"}}`, `{"metadata":null}`, `{"kind":null}`, `{"metadata":{"namespace":"other"}}`, `[]`, `null`, `"x"`, `{}`,
			`[{"op":"replace","path":"/metadata/name","value":"other"}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"test","path":"/metadata/name","value":"there"}]`,
			`[{"op":"move","from":"/metadata/name","path":"/spec/nodeName"}]`, `[{"op":"copy","from":"/spec/nodeName","path":"/metadata/na~0me"},{"op":"add","Path":"/kind","path":"/spec/x","value":1}]`,
		})
	case 17:
		b, _ := direct.Marshal(map[string]any{"apiVersion": referenceGroup.String(), "kind": pick(rng, []string{"Pod", "Node"}), "metadata": map[string]any{"name": pick(rng, []string{"new", there})}})
		return string(b)
	case 18:
		return protobuf(pick(rng, []string{"Pod", "Node", ""}), pick(rng, []string{"new", there, "a/b"}), pick(rng, []string{"", "", "gzip"}))
	case 19:
		return replace(`"name":"`, `"generateName":"g-","name":"`)
	case 20:
		return replace(`"metadata":{`, `"Metadata":{"name":"other"},"metadata":{`)
	default:
		if len(body) == 0 {
			return "{"
		}
		i := rng.IntN(len(body))
		return body[:i] + string(rune(rng.IntN(128))) + body[i+1:]
	}
}

// protobuf is an object in Kubernetes' envelope.
func protobuf(kind, name, encoding string) string {
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	raw, err := o.Marshal()
	if err != nil {
		panic(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: referenceGroup.String(), Kind: kind}, Raw: raw, ContentEncoding: encoding}
	b, err := u.Marshal()
	if err != nil {
		panic(err)
	}
	return "k8s\x00" + string(b)
}

// TestNothingIsCarriedOutThatWasNotJudged makes up requests, and has Kubernetes'
// own handlers and a careless server read what the guard lets through: whatever
// they carry out is what the guard asked the core server about, and every create
// has a place in the ledger.
func TestNothingIsCarriedOutThatWasNotJudged(t *testing.T) {
	d := newDifferential(t)
	for _, one := range drafts() {
		before := d.passed
		d.try(t, one.String())
		patches := one.method == "PATCH" && strings.HasSuffix(one.path, "/new") && !strings.Contains(one.header[0], "apply")
		if d.passed == before && !patches {
			t.Errorf("an ordinary request does not pass:\n%s", one)
		}
	}
	for seed := range uint64(*requests) {
		rng := rand.New(rand.NewPCG(seed, 1))
		one := pick(rng, drafts())
		for range 1 + rng.IntN(3) {
			one = mutate(rng, one)
		}
		if d.try(t, one.String()); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d requests, %d of them let through to one server or both", *requests, d.passed)
}

// FuzzRequest is the same with requests that a fuzzer makes up.
func FuzzRequest(f *testing.F) {
	for _, one := range drafts() {
		f.Add(one.String())
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		f.Add(mutate(rng, pick(rng, drafts())).String())
	}
	d := newDifferential(f)
	f.Fuzz(func(t *testing.T, raw string) { d.try(t, raw) })
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }
