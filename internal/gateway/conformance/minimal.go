package conformance

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A schemaNode is what is looked at in a schema of OpenAPI v2 or v3.
type schemaNode struct {
	Ref         string                 `json:"$ref"`
	Type        string                 `json:"type"`
	Format      string                 `json:"format"`
	Properties  map[string]*schemaNode `json:"properties"`
	Required    []string               `json:"required"`
	Items       *schemaNode            `json:"items"`
	AllOf       []*schemaNode          `json:"allOf"`
	Enum        []any                  `json:"enum"`
	Default     any                    `json:"default"`
	Minimum     *float64               `json:"minimum"`
	MinLength   int                    `json:"minLength"`
	MinItems    int                    `json:"minItems"`
	Pattern     string                 `json:"pattern"`
	IntOrString bool                   `json:"x-kubernetes-int-or-string"`
	Kinds       []groupVersionKind     `json:"x-kubernetes-group-version-kind"`
}

type groupVersionKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (n *schemaNode) is(kind schema.GroupVersionKind) bool {
	return n != nil && slices.Contains(n.Kinds, groupVersionKind(kind))
}

// minimal makes the smallest object of a kind that its schema allows: required
// fields only, with the least values. The server may know more than its schema,
// and refuse it all the same.
func minimal(schemas map[string]*schemaNode, kind schema.GroupVersionKind) (object, error) {
	for _, node := range schemas {
		if !node.is(kind) {
			continue
		}
		m := maker{schemas: schemas, left: mostFields}
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
	return nil, fmt.Errorf("make a minimal %s: there is no schema of it", kind.Kind)
}

// mostFields bounds how large an object may have to be, since schemas can be
// nested without end, and longest how long a list or a text in it.
const (
	mostFields = 1000
	longest    = 64
)

// A maker makes one object.
type maker struct {
	schemas map[string]*schemaNode
	left    int // fields that may still be made
}

func (m *maker) least(n *schemaNode) (any, error) {
	if m.left--; m.left < 0 {
		return nil, fmt.Errorf("more than %d fields are required", mostFields)
	}
	if n == nil {
		return map[string]any{}, nil
	}
	if n.MinItems > longest || n.MinLength > longest {
		return nil, fmt.Errorf("a required field is longer than %d", longest)
	}
	_, structured := n.Default.(map[string]any) // {} stands for what follows
	switch {
	case n.Default != nil && !structured:
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

func (m *maker) leastOfType(n *schemaNode) (any, error) {
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
		list := []any{}
		for range n.MinItems {
			v, err := m.least(n.Items)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	default:
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
}
