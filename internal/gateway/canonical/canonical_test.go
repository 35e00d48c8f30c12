package canonical

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

func kinds(gvr schema.GroupVersionResource) (Kind, error) {
	k := Kind{GroupVersionKind: gvr.GroupVersion().WithKind("Widget"), Namespaced: true, Subresources: []string{"status", "proxy"}}
	switch gvr {
	case schema.GroupVersionResource{Group: "a", Version: "v1", Resource: "widgets"}:
	case schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}:
		k.Kind, k.Namespaced = "Namespace", false
	default:
		return k, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	return k, nil
}

const (
	all    = "/apis/a/v1/namespaces/ns/widgets"
	one    = all + "/x"
	widget = `{"apiVersion":"a/v1","kind":"Widget","metadata":{"name":"x"}}`
)

// wire is a request by its letters; more are headers, in pairs.
func wire(method, target, body string, more ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i+1 < len(more); i += 2 {
		r.Header[more[i]] = append(r.Header[more[i]], more[i+1])
	}
	return r
}

// read is both stages of reading.
func read(r *http.Request) (*Request, error) {
	info, err := call.ReadURL(r)
	if err != nil {
		return nil, bad("%v", err)
	}
	q, err := Read(r, info, kinds)
	if err == nil && q.Writes() {
		err = q.ReadObject(&Bodies{}, "ann")
	}
	return q, err
}

func code(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// TestWhatIsSentSaysWhatWasRead: a request that passes is sent in one form,
// however it was written.
func TestWhatIsSentSaysWhatWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		from        *http.Request
		url         string
		contentType string
		body        string
	}{
		"as it is":              {wire("POST", all, widget, "Content-Type", "application/json"), all, "application/json", widget},
		"no type":               {wire("POST", all, widget), all, "application/json", widget},
		"a type with a charset": {wire("POST", all, widget, "Content-Type", "Application/JSON; charset=UTF-8"), all, "application/json", widget},
		"encoded letters":       {wire("PUT", "/apis/a/v1/namespaces/n%73/w%69dgets/x?dry%52un=All", widget), one + "?dryRun=All", "application/json", widget},
		"a slash at the end":    {wire("GET", one+"/", ""), one, "", ""},
		"a watch":               {wire("GET", all+"?watch=1&b=2&a=1", ""), all + "?a=1&b=2&watch=true", "", ""},
		"no watch":              {wire("GET", all+"?watch=0", ""), all, "", ""},
		"a get is no watch":     {wire("GET", one+"?watch=true", ""), one, "", ""},
		"the same twice":        {wire("POST", all+"?dryRun=All&dryRun=All", widget), all + "?dryRun=All", "application/json", widget},
		"a proxy":               {wire("GET", one+"/proxy/a%2Fb/?watch=1&watch=2", ""), one + "/proxy/a%2Fb/?watch=1&watch=2", "", ""},
		"a namespace":           {wire("GET", "/api/v1/namespaces/ns", ""), "/api/v1/namespaces/ns", "", ""},
		"outside the API":       {wire("GET", "/openapi/v3/apis/a/v1?hash=b", ""), "/openapi/v3/apis/a/v1?hash=b", "", ""},
		"YAML": {
			wire("POST", all, "apiVersion: a/v1\nkind: Widget\n---\nkind: Other\n", "Content-Type", "application/yaml"), all, "application/json", `{"apiVersion":"a/v1","kind":"Widget"}`,
		},
		"an apply in YAML": {
			wire("PATCH", one, "apiVersion: a/v1\nkind: Widget\n", "Content-Type", "application/apply-patch+yaml"), one, "application/apply-patch+yaml", `{"apiVersion":"a/v1","kind":"Widget"}`,
		},
		"a patch of a field": {
			wire("PATCH", one, `[{"op":"test","path":"/metadata/name","value":"x"},{"op":"remove","path":"/metadata/finalizers"}]`, "Content-Type", "application/json-patch+json"),
			one, "application/json-patch+json", `[{"op":"test","path":"/metadata/name","value":"x"},{"op":"remove","path":"/metadata/finalizers"}]`,
		},
		"headers of the connection": {wire("GET", one, "", "Connection", "Authorization", "X-Forwarded-For", "b", "Content-Encoding", "identity"), one, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := read(c.from)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			sent := q.Sent(t.Context())
			body, err := io.ReadAll(sent.Body)
			if err != nil {
				t.Fatal(err)
			}
			want, got := []string{c.url, c.contentType, c.body}, []string{sent.URL.String(), sent.Header.Get("Content-Type"), string(body)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if len(sent.Header) > 1 || c.contentType == "" && len(sent.Header) > 0 {
				t.Errorf("headers: %v", sent.Header)
			}
			sent.Body = io.NopCloser(bytes.NewReader(body))
			again, err := read(sent)
			if err != nil {
				t.Fatalf("what is sent is refused: %v", err)
			}
			if diff := cmp.Diff(q.Info, again.Info, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Path" }, cmp.Ignore())); diff != "" {
				t.Errorf("what is sent is read as something else:\n%s", diff)
			}
		})
	}
}

// TestWhatIsUnclearIsRefused: the code says what kind of mistake it is.
func TestWhatIsUnclearIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		from *http.Request
		code int32
	}{
		"parameters of a segment":    {wire("POST", all+";a=1", widget), 400},
		"an escaped semicolon":       {wire("POST", all+"%3Ba=1", widget), 400},
		"an escaped slash":           {wire("GET", all+"/x%2Fstatus", ""), 400},
		"an escaped escape":          {wire("GET", all+"/x%252Fy", ""), 400},
		"a verb in the path":         {wire("GET", "/apis/a/v1/watch/namespaces/ns/widgets", ""), 400},
		"another, of old":            {wire("POST", "/apis/a/v1/proxy/namespaces/ns/widgets/x", widget), 400},
		"a verb before a proxy":      {wire("GET", "/apis/a/v1/watch/namespaces/ns/widgets/x/proxy", ""), 400},
		"a namespace twice":          {wire("GET", "/api/v1/namespaces/ns/namespaces/ns", ""), 400},
		"no name of a namespace":     {wire("GET", "/apis/a/v1/namespaces/NS/widgets", ""), 400},
		"no namespace":               {wire("POST", "/apis/a/v1/widgets", widget), 400},
		"a resource in other case":   {wire("POST", "/apis/a/v1/namespaces/ns/Widgets", widget), 404},
		"a subresource not shown":    {wire("PUT", one+"/other", widget), 404},
		"a create with a name":       {wire("POST", one, widget), 405},
		"an update without":          {wire("PUT", all, widget), 405},
		"another method":             {wire("PURGE", one, ""), 405},
		"a method in other case":     {wire("post", all, widget), 405},
		"a write outside the API":    {wire("POST", "/apis/a/v1", ""), 405},
		"a method by header":         {wire("GET", one, "", "X_http_method_override", "DELETE"), 400},
		"a method by parameter":      {wire("GET", one+"?_method=DELETE", ""), 400},
		"two callers":                {wire("GET", one, "", "Authorization", "Bearer a", "Sec-Websocket-Protocol", bearerProtocol+"YQ"), 400},
		"two dry runs":               {wire("POST", all+"?dryRun=All&dryRun=None", widget), 400},
		"no dry run":                 {wire("POST", all+"?dryRun=all", widget), 400},
		"a parameter in other case":  {wire("POST", all+"?DryRun=All", widget), 400},
		"no query":                   {wire("GET", all+"?a=%zz", ""), 400},
		"a semicolon in the query":   {wire("GET", all+"?a=1;watch=1", ""), 400},
		"an upgraded create":         {wire("POST", all, widget, "Upgrade", "websocket", "Connection", "Upgrade"), 400},
		"a body that is encoded":     {wire("POST", all, widget, "Content-Encoding", "gzip"), 415},
		"a type of two readings":     {wire("PATCH", one, widget, "Content-Type", "application/apply-patch+yaml; a=1; a=2"), 415},
		"a type with parameters":     {wire("PATCH", one, widget, "Content-Type", "application/apply-patch+yaml; a=1"), 415},
		"two types":                  {wire("PATCH", one, widget, "Content-Type", "application/apply-patch+yaml", "Content-Type", "application/json"), 400},
		"two types in one":           {wire("POST", all, widget, "Content-Type", "application/json, application/yaml"), 415},
		"a patch of no type":         {wire("PATCH", one, widget), 415},
		"a form":                     {wire("POST", all, widget, "Content-Type", "application/x-www-form-urlencoded"), 415},
		"no body":                    {wire("POST", all, ""), 400},
		"no kind":                    {wire("POST", all, `{"apiVersion":"a/v1"}`), 400},
		"another version":            {wire("POST", all, `{"apiVersion":"a/v2","kind":"Widget"}`), 400},
		"a list":                     {wire("POST", all, `{"apiVersion":"a/v1","kind":"WidgetList","items":[]}`), 400},
		"a list that denies it":      {wire("POST", all, `{"apiVersion":"a/v1","kind":"Widget","items":[]}`), 400},
		"two objects":                {wire("POST", all, widget+widget), 400},
		"another name":               {wire("PUT", all+"/y", widget), 400},
		"another namespace":          {wire("POST", all, `{"apiVersion":"a/v1","kind":"Widget","metadata":{"namespace":"other"}}`), 400},
		"a name that climbs":         {wire("POST", all, `{"apiVersion":"a/v1","kind":"Widget","metadata":{"name":"../x"}}`), 400},
		"a name made of what climbs": {wire("POST", all, `{"apiVersion":"a/v1","kind":"Widget","metadata":{"generateName":"../x"}}`), 400},
		"YAML with a key twice":      {wire("POST", all, "apiVersion: a/v1\nkind: Widget\nkind: Other\n", "Content-Type", "application/yaml"), 400},
		"a patch of the name":        {wire("PATCH", one, `{"metadata":{"name":"y"}}`, "Content-Type", "application/merge-patch+json"), 400},
		"a patch that unsets it":     {wire("PATCH", one, `{"metadata":null}`, "Content-Type", "application/merge-patch+json"), 400},
		"a patch of all metadata":    {wire("PATCH", one, `[{"op":"replace","path":"/metad~0ata","value":1},{"op":"add","path":"/metadata","value":{}}]`, "Content-Type", "application/json-patch+json"), 400},
		"a patch that moves it":      {wire("PATCH", one, `[{"op":"move","from":"/metadata/name","path":"/spec/x"}]`, "Content-Type", "application/json-patch+json"), 400},
		"too large":                  {wire("POST", all, `{"a":"`+strings.Repeat("x", bodyMost)+`"}`), 413},
		"too much YAML":              {wire("POST", all, "a: "+strings.Repeat("x", parsedMost), "Content-Type", "application/yaml"), 413},
	} {
		t.Run(name, func(t *testing.T) {
			if q, err := read(c.from); code(err) != c.code {
				t.Errorf("%v, and read as %+v; want %d", err, q, c.code)
			}
		})
	}
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestBodiesAreBounded: one user's bodies leave room for others', and what is
// read no more takes nothing.
func TestBodiesAreBounded(t *testing.T) {
	var b Bodies
	if _, _, err := b.read("ann", endless{}); code(err) != 413 {
		t.Errorf("a body without end: %v", err)
	}
	if _, _, err := b.read("ann", io.MultiReader(strings.NewReader("x"), brokenBody{})); code(err) != 400 {
		t.Errorf("a body that breaks off: %v", err)
	}
	if b.total != 0 || len(b.users) != 0 {
		t.Errorf("what was refused takes %d bytes, of %v", b.total, b.users)
	}
	large := strings.Repeat("x", bodyMost)
	var held []func()
	most := func(user string) int {
		for n := 0; ; n++ {
			_, release, err := b.read(user, strings.NewReader(large))
			if err != nil {
				if code(err) != 429 {
					t.Fatal(err)
				}
				return n
			}
			held = append(held, release)
		}
	}
	for _, user := range []string{"ann", "bob", "cyn", "dan"} {
		if n := most(user); n != userMost>>22 { // each takes four MiB
			t.Errorf("%s holds %d bodies", user, n)
		}
	}
	if n := most("eve"); n != 0 {
		t.Errorf("%d bodies above what all may take", n)
	}
	for _, release := range held {
		release()
		release()
	}
	if b.total != 0 || len(b.users) != 0 {
		t.Errorf("after all were released, %d bytes are taken, of %v", b.total, b.users)
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }
