package swagger

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/google/go-cmp/cmp"
)

// swagger is an OpenAPI v2 document of one group, whose kind has a field of a
// shared type, which has one of another.
func swagger(group, meta string) string {
	return `{"swagger":"2.0","info":{"title":"t","version":"v"},
"paths":{
 "/apis/` + group + `/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/` + group + `.Thing"}}}},"parameters":[{"$ref":"#/parameters/pretty"}]},
 "/apis/hidden.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Hidden"}}}}},
 "/version/":{"get":{"responses":{"200":{"description":"OK"}}}}},
"definitions":{
 "` + group + `.Thing":{"description":"says \"$ref\":\"#/definitions/Time\"","properties":{"metadata":{"$ref":"#/definitions/Meta"}}},
 "Meta":{"properties":{"time":{"$ref":"#/definitions/Time"}}},
 "Time":` + meta + `,
 "Options":{"x-kubernetes-group-version-kind":[{"group":"` + group + `","kind":"Options","version":"v1"},{"group":"","kind":"Options","version":"v1"}]},
 "Hidden":{"properties":{"o":{"$ref":"#/definitions/Options"}}}},
"parameters":{"pretty":{"name":"pretty","in":"query","type":"string"},"unused":{"name":"x","in":"query","type":"string"}}}`
}

func parse(t *testing.T, text string) *Document {
	t.Helper()
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type document struct {
	Paths       map[string]json.RawMessage
	Definitions map[string]json.RawMessage
	Parameters  map[string]json.RawMessage
}

// whole reads the merged document, and checks that it is one: it parses, also
// as protobuf, and points to nothing that is not there.
func whole(t *testing.T, m *Merged, order ...string) document {
	t.Helper()
	body, _ := m.JSON(order)
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if _, err := openapi_v2.ParseDocument(body); err != nil {
		t.Errorf("as protobuf: %v", err)
	}
	for _, ref := range regexp.MustCompile(`[^\\]"\$ref":\s*"#/(\w+)/([^"]+)"`).FindAllStringSubmatch(string(body), -1) {
		if d.Definitions[ref[2]] == nil && d.Parameters[ref[2]] == nil {
			t.Errorf("it points to %s/%s, which is not there", ref[1], ref[2])
		}
	}
	return d
}

func keys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func TestMergedSharesWhatIsEqual(t *testing.T) {
	m := New()
	m.Set("a", parse(t, swagger("a.example.com", `{"type":"string"}`)), []string{"a.example.com"})
	m.Set("b", parse(t, swagger("b.example.com", `{"type":"string"}`)), []string{"b.example.com"})
	d := whole(t, m, "a", "b")
	if diff := cmp.Diff(set("/apis/a.example.com/v1/things", "/apis/b.example.com/v1/things"), keys(d.Paths)); diff != "" {
		t.Errorf("paths of held groups only (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(set("a.example.com.Thing", "b.example.com.Thing", "Meta", "Time"), keys(d.Definitions)); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(set("pretty"), keys(d.Parameters)); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// TestMergedTellsApart: Meta is alike at both, but what it points to is not, so
// there are two of it as well. When the first server goes, the second's stay
// what they were called.
func TestMergedTellsApart(t *testing.T) {
	m := New()
	m.Set("a", parse(t, swagger("a.example.com", `{"type":"string"}`)), []string{"a.example.com"})
	m.Set("b", parse(t, swagger("b.example.com", `{"type":"integer"}`)), []string{"b.example.com"})
	d := whole(t, m, "a", "b")
	if diff := cmp.Diff(set("a.example.com.Thing", "b.example.com.Thing", "Meta", "Time", "Meta_v2", "Time_v2"), keys(d.Definitions)); diff != "" {
		t.Fatalf("definitions (-want +got):\n%s", diff)
	}
	if got := string(d.Definitions["b.example.com.Thing"]); !strings.Contains(got, `"$ref":"#/definitions/Meta_v2"`) || !strings.Contains(got, `says \"$ref\":\"#/definitions/Time\"`) {
		t.Errorf("b's kind: %s", got)
	}
	if got := string(d.Definitions["Meta_v2"]); !strings.Contains(got, `"$ref":"#/definitions/Time_v2"`) {
		t.Errorf("b's Meta: %s", got)
	}
	m.Set("c", parse(t, swagger("c.example.com", `{"type":"string"}`)), []string{"c.example.com"})
	before, hash := m.JSON([]string{"a", "b", "c"})
	m.Set("a", nil, nil)
	d = whole(t, m, "b", "c")
	if diff := cmp.Diff(set("b.example.com.Thing", "c.example.com.Thing", "Meta", "Time", "Meta_v2", "Time_v2"), keys(d.Definitions)); diff != "" {
		t.Errorf("definitions without a, which c shares (-want +got):\n%s", diff)
	}
	after, hashAfter := m.JSON([]string{"b", "c"})
	if string(before) == string(after) || hash == hashAfter {
		t.Error("the document is another, and its hash is not")
	}
	m.Set("b", nil, nil)
	m.Set("c", nil, nil)
	if d := whole(t, m); len(d.Paths)+len(d.Definitions)+len(d.Parameters) != 0 {
		t.Errorf("nobody is left, but %+v", d)
	}
}

// TestMergedIgnoresListsOfKinds: a definition that is for all kinds of its
// server is the same everywhere.
func TestMergedIgnoresListsOfKinds(t *testing.T) {
	m := New()
	for _, server := range []string{"a", "b"} {
		text := strings.ReplaceAll(swagger(server+".example.com", `{"type":"string"}`), "hidden.example.com", "shown."+server)
		m.Set(server, parse(t, text), []string{"shown." + server})
	}
	if diff := cmp.Diff(set("Hidden", "Options"), keys(whole(t, m, "a", "b").Definitions)); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

func TestMergedChangesOnlyWhatChanged(t *testing.T) {
	m := New()
	doc := parse(t, swagger("a.example.com", `{}`))
	if !m.Set("a", doc, []string{"a.example.com"}) || m.Set("a", doc, []string{"a.example.com"}) {
		t.Error("the same document of the same groups is a change only once")
	}
	if !m.Set("a", doc, nil) {
		t.Error("a server that lost its group has changed")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(swagger("a.example.com", `{"type":"string"}`)), []byte(swagger("a.example.com", `{"$ref":"#/definitions/Meta"}`)))
	f.Add([]byte(`{"swagger":"2.0","paths":{"/api/v1":null},"definitions":{"":{"$ref":"#/definitions/"}}}`), []byte(`{"swagger":"2.0"}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := New()
		for name, body := range map[string][]byte{"a": a, "b": b} {
			s, err := Read(body)
			if err != nil {
				return
			}
			m.Set(name, s, []string{"", "a.example.com"})
		}
		body, _ := m.JSON([]string{"a", "b"})
		if !json.Valid(body) {
			t.Errorf("no JSON: %s", body)
		}
		m.Set("a", nil, nil)
		m.Set("b", nil, nil)
		if len(m.variants) != 0 {
			t.Errorf("%d variants are left of nobody", len(m.variants))
		}
	})
}
