package survey

import (
	"encoding/json"
	"testing"

	gvschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/schema"
)

// FuzzMinimal: whatever a server says of its schemas, reading them and making an
// object ends.
func FuzzMinimal(f *testing.F) {
	f.Add([]byte(`{"components":{"schemas":{"A":{"type":"object","required":["a","b"],"properties":{"a":{"$ref":"#/components/schemas/A"},"b":{"$ref":"#/components/schemas/A"}},"x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"K"}]}}}}`))
	f.Add([]byte(`{"components":{"schemas":{"A":{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":3,"items":{"type":"integer","minimum":2}}},"x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"K"}]}}}}`))
	f.Add([]byte(`{"components":{"schemas":{"A":null}},"paths":{"/x":{"post":{"parameters":[{"$ref":"#/components/parameters/p"}]}}}}`))
	f.Add([]byte(`{"swagger":"2.0","definitions":{"A":null,"B":{"x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"K"}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var old schema.DocumentV2
		if json.Unmarshal(data, &old) == nil {
			old.Kinds()
		}
		var document schema.Document
		if json.Unmarshal(data, &document) != nil {
			return
		}
		r := Resource{GroupVersion: gvschema.GroupVersion{Group: "g", Version: "v1"}, Name: "ks", Kind: "K"}
		traitsOf(&document, r)
		made, err := document.Minimal(r.GroupVersionKind())
		if err != nil {
			return
		}
		if made["kind"] != "K" {
			t.Errorf("made %v", made)
		}
		if _, err := json.Marshal(made); err != nil {
			t.Error(err)
		}
	})
}
