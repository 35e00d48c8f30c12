// The race detector uses memory of its own.

//go:build !race

package discovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/swagger"
)

// flood is a server whose answers are made for whoever decodes them.
type flood func(path string) (body string, ok bool)

func (f flood) RoundTrip(r *http.Request) (*http.Response, error) {
	body, ok := f(r.URL.Path)
	code := http.StatusOK
	if !ok {
		code, body = http.StatusNotFound, "{}"
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// filled is a text that repeats a piece up to some bytes.
func filled(before, piece, after string, size int) string {
	return before + strings.TrimSuffix(strings.Repeat(piece+",", size/(len(piece)+1)), ",") + after
}

// floods are answers of some bytes, with as much in them as fits.
func floods(size int) map[string]flood {
	one := func(path, body string) flood {
		return func(p string) (string, bool) { return body, p == path }
	}
	aggregated := func(inner string) string {
		return `{"kind":"APIGroupDiscoveryList","items":[` + inner + `]}`
	}
	version := func(resources string) string {
		return aggregated(`{"metadata":{"name":"a.example.com"},"versions":[{"version":"v1","resources":[` + resources + `]}]}`)
	}
	list := filled(`{"kind":"APIResourceList","resources":[`, `{}`, `]}`, size)
	groups := func(piece string) flood {
		return one("/apis", filled(`{"kind":"APIGroupList","groups":[`, piece, `]}`, size))
	}
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf(`{"name":"g%d.example.com","versions":[{"version":"v1"}]}`, i))
	}
	return map[string]flood{
		"resources":    one("/apis", filled(strings.TrimSuffix(version(""), `]}]}]}`), `{}`, `]}]}]}`, size)),
		"verbs":        one("/apis", version(filled(`{"verbs":[`, `""`, `]}`, size))),
		"subresources": one("/apis", version(filled(`{"resource":"a","subresources":[`, `{}`, `]}`, size))),
		"groups":       one("/apis", aggregated(filled("", `{}`, "", size))),
		"managers":     one("/apis", aggregated(filled(`{"metadata":{"name":"a.example.com","managedFields":[`, `{}`, `]}}`, size))),
		"labels":       one("/apis", aggregated(filled(`{"metadata":{"name":"a.example.com","labels":{`, `"":""`, `}}}`, size))),
		"old groups":   groups(`{}`),
		"old versions": groups(`{"name":"a.example.com","versions":[{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}`),
		"core": func(p string) (string, bool) {
			if p == "/apis" {
				return aggregated(""), true
			}
			return filled(`{"kind":"APIVersions","versions":[`, `""`, `]}`, size), p == "/api"
		},
		"unaggregated": func(p string) (string, bool) {
			if p == "/apis" {
				return `{"kind":"APIGroupList","groups":[` + strings.Join(many, ",") + `]}`, true
			}
			return list, strings.HasSuffix(p, "/v1")
		},
		"unaggregated, with strings": func(p string) (string, bool) {
			if p == "/apis" {
				return `{"kind":"APIGroupList","groups":[` + strings.Join(many, ",") + `]}`, true
			}
			return `{"kind":"APIResourceList","resources":[{"name":"` + strings.Repeat("x", size) + `"}]}`, strings.HasSuffix(p, "/v1")
		},
	}
}

// allocated is how much a call allocates, whether or not it keeps it.
func allocated(call func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// mostAllocated is what one fetch may allocate in all, garbage included: the
// texts as they are read, and what is decoded of them.
const mostAllocated = 256 << 20

// TestFloods: whatever a server puts into its discovery, the gateway refuses it
// before it holds it, and what it does not refuse takes no more.
func TestFloods(t *testing.T) {
	for _, size := range []int{7 << 20, 1 << 20, 150 << 10} {
		for name, f := range floods(size) {
			t.Run(fmt.Sprintf("%s/%d KiB", name, size>>10), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var err error
				asked := 0
				got := allocated(func() {
					_, err = Fetch(ctx, flood(func(p string) (string, bool) {
						if asked++; asked > 200 {
							t.Error("it goes on asking") // and would hold gigabytes
							cancel()
							return "", false
						}
						return f(p)
					}), nil)
				})
				t.Logf("%d MiB were allocated after %d requests: %.200v", got>>20, asked, err)
				if got > mostAllocated {
					t.Errorf("%d MiB were allocated; want at most %d MiB", got>>20, mostAllocated>>20)
				}
				if size == 7<<20 && (err == nil || !strings.Contains(err.Error(), "than the gateway takes")) {
					t.Errorf("the error is %.300v; want a refusal", err)
				}
			})
		}
	}
}

// TestOpenAPIFloods: the same for OpenAPI v2, as it is merged, and as protobuf.
func TestOpenAPIFloods(t *testing.T) {
	path := func(inner string) string {
		return `{"swagger":"2.0","info":{"title":"t","version":"v"},"paths":{"/apis/a.example.com/v1/things":{"get":{"parameters":[{"name":"n","in":"query","type":"string","enum":[` + inner + `]}],"responses":{"200":{"description":"OK"}}}}}}`
	}
	var properties []string
	for i := range swagger.MaxDecoded / 1300 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
	}
	schema := strings.Replace(strings.Replace(path(""), `"in":"query","type":"string","enum":[]`, `"in":"body","schema":{"$ref":"#/definitions/d"}`, 1), `}}}}}}`, `}}}}},"definitions":{"d":{"type":"object","properties":{`+strings.Join(properties, ",")+`}}}}`, 1)
	// Each definition leads to all that follow.
	var links []string
	for i := range swagger.MaxDecoded / 1300 {
		links = append(links, fmt.Sprintf(`"d%d":{"$ref":"#/definitions/d%d"}`, i, i+1))
	}
	chain := strings.Replace(strings.Replace(path(""), `"in":"query","type":"string","enum":[]`, `"in":"body","schema":{"$ref":"#/definitions/d0"}`, 1), `}}}}}}`, `}}}}},"definitions":{`+strings.Join(links, ",")+`}}`, 1)
	for name, c := range map[string]struct {
		body, accept string // no accept: it is refused
	}{
		"values, too many":      {path(filled("", `{}`, "", 20<<20)), ""},
		"definitions, too many": {filled(`{"swagger":"2.0","definitions":{`, `"":0`, `}}`, 20<<20), ""},
		"values":                {path(filled("", `0`, "", 2*(swagger.MaxDecoded/66)-1000)), "application/json"},
		"properties":            {schema, swaggerProto},
		"a chain":               {chain, "application/json"},
		"strings":               {path(filled("", `"`+strings.Repeat("x", 100_000)+`"`, "", 20<<20)), swaggerProto},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			var doc *OpenAPIDocument
			got := allocated(func() {
				doc, err = FetchOpenAPI(t.Context(), flood(func(p string) (string, bool) { return c.body, p == "/openapi/v2" }), "", true, nil)
			})
			t.Logf("%d MiB were allocated for %d MiB: %.200v", got>>20, len(c.body)>>20, err)
			if got > mostAllocated {
				t.Errorf("%d MiB were allocated; want at most %d MiB", got>>20, mostAllocated>>20)
			}
			if c.accept == "" {
				if err == nil || !strings.Contains(err.Error(), "than the gateway takes") {
					t.Errorf("the error is %v; want a refusal", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			x := NewIndex()
			x.Set([]Member{{Name: "s", Named: anything, Document: fetched(t, aggregatedDocument("a.example.com/v1/things"), ""), OpenAPI: doc}})
			var resp *http.Response
			got = allocated(func() { resp = ask(t, x, "/openapi/v2", c.accept, "") })
			t.Logf("%d MiB were allocated to serve it: %s", got>>20, resp.Status)
			if got > 4*mostAllocated || resp.StatusCode != http.StatusOK {
				t.Errorf("%d MiB were allocated to serve it: %s", got>>20, resp.Status)
			}
		})
	}
}
