package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestMinimal: an object has the fields that its schema requires, and no other.
func TestMinimal(t *testing.T) {
	for name, c := range map[string]struct{ fields, want string }{
		"nothing required": {`"properties":{"a":{"type":"string"}}`, `{}`},
		"text":             {`"required":["a"],"properties":{"a":{"type":"string","minLength":2}}`, `{"a":"xx"}`},
		"a number":         {`"required":["a","b"],"properties":{"a":{"type":"integer","minimum":7},"b":{"type":"number"}}`, `{"a":7,"b":1}`},
		"a default":        {`"required":["a"],"properties":{"a":{"type":"string","default":"d"}}`, `{"a":"d"}`},
		"an enumeration":   {`"required":["a"],"properties":{"a":{"type":"string","enum":["e","f"]}}`, `{"a":"e"}`},
		"a reference":      {`"required":["a"],"properties":{"a":{"$ref":"#/x/Other","default":{}}}`, `{"a":{"b":false}}`},
		"an array":         {`"required":["a"],"properties":{"a":{"type":"array","minItems":2,"items":{"type":"boolean"}}}`, `{"a":[false,false]}`},
		"a time":           {`"required":["a"],"properties":{"a":{"type":"string","format":"date-time"}}`, `{"a":"2000-01-01T00:00:00Z"}`},
		"a pattern":        {`"required":["a"],"properties":{"a":{"type":"string","pattern":"^x$"}}`, "is to match"},
		"too long":         {`"required":["a"],"properties":{"a":{"type":"string","minLength":65}}`, "longer than 64"},
		"no such schema":   {`"required":["a"],"properties":{"a":{"$ref":"#/x/Nothing"}}`, `no schema "Nothing"`},
		"without end":      {`"required":["a"],"properties":{"a":{"$ref":"#/x/K"}}`, "more than 1000 fields"},
	} {
		text := `{"components":{"schemas":{"N":null,
			"K":{"type":"object","x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"K"}],` + c.fields + `},
			"Other":{"type":"object","required":["b"],"properties":{"b":{"type":"boolean"}}}}}}`
		var d Document
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		made, err := d.Minimal(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %s", name, err, c.want)
			}
			continue
		}
		delete(made, "apiVersion")
		delete(made, "kind")
		delete(made, "metadata")
		got, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
