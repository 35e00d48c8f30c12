package schema

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Node is the part of a schema of OpenAPI v2 or v3 that is read here.
type Node struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Default     any                `json:"default"`
	AllOf       []*Node            `json:"allOf"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	Kinds       []groupVersionKind `json:"x-kubernetes-group-version-kind"`
	limits
	parts
}

// limits are what a schema demands of a value.
type limits struct {
	Enum      []any    `json:"enum"`
	Minimum   *float64 `json:"minimum"`
	MinLength int      `json:"minLength"`
	MinItems  int      `json:"minItems"`
	Pattern   string   `json:"pattern"`
}

// parts are the schemas of what an object or an array holds.
type parts struct {
	Properties map[string]*Node `json:"properties"`
	Required   []string         `json:"required"`
	Items      *Node            `json:"items"`
}

type groupVersionKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (n *Node) kinds() []groupVersionKind {
	if n == nil { // a server may give null
		return nil
	}
	return n.Kinds
}

// Minimal makes the smallest object of a kind that its schema allows: required
// fields only, with the least values. The server may refuse it nevertheless,
// because it may demand more than its schema says.
func (d *Document) Minimal(kind schema.GroupVersionKind) (map[string]any, error) {
	node := d.find(kind)
	if node == nil {
		return nil, fmt.Errorf("make a minimal %s: there is no schema of it", kind.Kind)
	}
	m := maker{schemas: d.Components.Schemas, left: mostFields}
	v, err := m.least(node)
	if err != nil {
		return nil, fmt.Errorf("make a minimal %s: %w", kind.Kind, err)
	}
	made, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("make a minimal %s: its schema is no object's", kind.Kind)
	}
	made["apiVersion"], made["kind"], made["metadata"] = kind.GroupVersion().String(), kind.Kind, map[string]any{}
	delete(made, "status")
	return made, nil
}

const (
	mostFields = 1000 // in an object, because schemas can be nested without end
	longest    = 64   // list or text in an object
)

// A maker makes one object.
type maker struct {
	schemas map[string]*Node
	left    int // fields that may still be made
}

// least makes the smallest value that a schema allows.
func (m *maker) least(n *Node) (any, error) {
	if m.left--; m.left < 0 {
		return nil, fmt.Errorf("more than %d fields are required", mostFields)
	}
	if n == nil {
		return map[string]any{}, nil
	}
	if n.MinItems > longest || n.MinLength > longest {
		return nil, fmt.Errorf("a required field is longer than %d", longest)
	}
	_, isObject := n.Default.(map[string]any) // such a default lacks the defaults of its fields
	switch {
	case n.Default != nil && !isObject:
		return n.Default, nil
	case len(n.Enum) > 0:
		return n.Enum[0], nil
	case n.Ref != "":
		name := n.Ref[strings.LastIndex(n.Ref, "/")+1:]
		to, ok := m.schemas[name]
		if !ok {
			return nil, fmt.Errorf("there is no schema %q", name)
		}
		return m.least(to)
	case len(n.AllOf) > 0 && n.Type == "":
		return m.least(n.AllOf[0])
	case n.IntOrString:
		return int64(1), nil
	case n.Pattern != "":
		return nil, fmt.Errorf("a required field is to match %q", n.Pattern)
	}
	return m.leastOfType(n)
}

func (m *maker) leastOfType(n *Node) (any, error) {
	switch n.Type {
	case "string":
		if n.Format == "date-time" {
			return "2000-01-01T00:00:00Z", nil
		}
		return strings.Repeat("x", max(1, n.MinLength)), nil
	case "integer", "number":
		if n.Minimum != nil {
			return *n.Minimum, nil
		}
		return int64(1), nil
	case "boolean":
		return false, nil
	case "array":
		return m.leastArray(n)
	default:
		return m.leastObject(n)
	}
}

func (m *maker) leastArray(n *Node) (any, error) {
	list := []any{}
	for range n.MinItems {
		v, err := m.least(n.Items)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (m *maker) leastObject(n *Node) (any, error) {
	made := map[string]any{}
	for _, name := range n.Required {
		v, err := m.least(n.Properties[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		made[name] = v
	}
	return made, nil
}
