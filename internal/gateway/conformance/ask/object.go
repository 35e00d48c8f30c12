package ask

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// An Object is any JSON object, with the fields that all of Kubernetes' have.
type Object map[string]any

// At is the value at a path of fields; nil if there is none.
func (o Object) At(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// Text is the string at a path of fields; empty if there is none.
func (o Object) Text(path ...string) string {
	s, _ := o.At(path...).(string)
	return s
}

// Copy is a deep copy.
func (o Object) Copy() Object { return runtime.DeepCopyJSON(o) }

// Name is metadata.name.
func (o Object) Name() string { return o.Text("metadata", "name") }

// Namespace is metadata.namespace.
func (o Object) Namespace() string { return o.Text("metadata", "namespace") }

// UID is metadata.uid.
func (o Object) UID() string { return o.Text("metadata", "uid") }

// ResourceVersion is metadata.resourceVersion.
func (o Object) ResourceVersion() string { return o.Text("metadata", "resourceVersion") }

// Items are the objects in a list; an error if it has no such array.
func (o Object) Items() ([]Object, error) {
	if _, ok := o["items"].([]any); !ok {
		return nil, fmt.Errorf("items is %s; want an array, empty if there is nothing", typeOf(o["items"]))
	}
	return o.Array("items")
}

// Array are the objects in an array; none if the field is not an array.
func (o Object) Array(field string) ([]Object, error) {
	array, _ := o[field].([]any)
	var objects []Object
	for i, v := range array {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s; want an object", field, i, typeOf(v))
		}
		objects = append(objects, m)
	}
	return objects, nil
}

// typeOf names the type of a JSON value.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null or not there"
	case string:
		return "a string"
	case float64:
		return "a number"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
