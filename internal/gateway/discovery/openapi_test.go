package discovery

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFetchOpenAPI(t *testing.T) {
	const v2 = `{"swagger":"2.0","info":{"title":"t","version":"v"},"paths":{"/apis/a.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK"}}}}}}`
	answers := map[string]string{
		"/docs/v3": `{"paths":{"apis/a.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/a.example.com/v1?hash=ABC"},"apis/b.example.com/v1":{"serverRelativeURL":"/x"},"version":{"serverRelativeURL":"/y"}}}`,
		"/docs/v2": v2,
	}
	rt := served(answers)
	first, err := FetchOpenAPI(t.Context(), rt, "/docs", false, nil)
	if err != nil || first.V2 != nil || first.V3["apis/a.example.com/v1"] != "ABC" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := FetchOpenAPI(t.Context(), rt, "/docs", true, first)
	if err != nil || second.V2 == nil {
		t.Fatalf("%+v, %v", second, err)
	}
	if third, err := FetchOpenAPI(t.Context(), rt, "/docs", true, second); third != second || err != nil {
		t.Errorf("nothing has changed, and the document is another: %v", err)
	}
	if none, err := FetchOpenAPI(t.Context(), served(nil), "/docs", true, nil); err != nil || none.V2 != nil || none.V3 != nil {
		t.Errorf("a server without OpenAPI: %+v, %v", none, err)
	}

	x := NewIndex()
	x.Set([]Member{{Name: "a", Named: anything, Document: fetched(t, aggregatedDocument("a.example.com/v1/things"), ""), OpenAPI: second}})
	root := read[map[string]map[string]map[string]string](t, ask(t, x, "/openapi/v3", "application/json", ""))
	if diff := cmp.Diff(map[string]map[string]map[string]string{"paths": {"apis/a.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/a.example.com/v1?hash=ABC"}}}, root); diff != "" {
		t.Errorf("/openapi/v3 (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
		resp := ask(t, x, path, "application/json", "")
		if again := ask(t, x, path, "application/json", resp.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its own ETag: %d", path, again.StatusCode)
		}
	}
	if resp := ask(t, x, "/openapi/v2", swaggerProto, ""); resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != swaggerProto {
		t.Errorf("as protobuf: %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
}
