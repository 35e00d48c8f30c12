// Package schema reads OpenAPI documents, and makes the smallest object that a
// schema allows. It never asks a server.
package schema

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An Index is the list of OpenAPI v3 documents that a server has.
type Index struct {
	Paths map[string]struct {
		URL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

// URLs are those of the documents that describe a group version.
func (i Index) URLs() map[schema.GroupVersion]string {
	urls := map[schema.GroupVersion]string{}
	for path, item := range i.Paths {
		if version, ok := strings.CutPrefix(path, "api/"); ok {
			urls[schema.GroupVersion{Version: version}] = item.URL
		} else if gv, ok := strings.CutPrefix(path, "apis/"); ok {
			if group, version, ok := strings.Cut(gv, "/"); ok {
				urls[schema.GroupVersion{Group: group, Version: version}] = item.URL
			}
		}
	}
	return urls
}

// A Document is the part of an OpenAPI v3 document that is read here.
type Document struct {
	OpenAPI    string          `json:"openapi"`
	Paths      map[string]Path `json:"paths"`
	Components struct {
		Schemas    map[string]*Node     `json:"schemas"`
		Parameters map[string]parameter `json:"parameters"`
	} `json:"components"`
}

// A DocumentV2 is the part of an OpenAPI v2 document that is read here.
type DocumentV2 struct {
	Swagger     string              `json:"swagger"`
	Paths       map[string]struct{} `json:"paths"`
	Definitions map[string]*Node    `json:"definitions"`
}

// Kinds are the kinds that the document has a definition of.
func (d *DocumentV2) Kinds() map[schema.GroupVersionKind]bool {
	kinds := map[schema.GroupVersionKind]bool{}
	for _, node := range d.Definitions {
		for _, k := range node.kinds() {
			kinds[schema.GroupVersionKind(k)] = true
		}
	}
	return kinds
}

// A Path has operations, and the parameters that these share.
type Path struct {
	Parameters []parameter `json:"parameters"`
	Post       *Operation  `json:"post"`
	Patch      *Operation  `json:"patch"`
}

// An Operation is what one method does at a path.
type Operation struct {
	Parameters  []parameter `json:"parameters"`
	RequestBody struct {
		Content map[string]struct{} `json:"content"` // by media type
	} `json:"requestBody"`
}

type parameter struct {
	Ref  string `json:"$ref"`
	Name string `json:"name"`
}

// Takes are the names of the parameters and the media types that an operation
// of a path takes; nil if there is no such operation.
func (d *Document) Takes(path Path, o *Operation) map[string]bool {
	if o == nil {
		return nil
	}
	takes := map[string]bool{}
	for _, p := range slices.Concat(path.Parameters, o.Parameters) {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			p = d.Components.Parameters[name]
		}
		takes[p.Name] = true
	}
	for media := range o.RequestBody.Content {
		takes[media] = true
	}
	return takes
}

// Describes reports whether the document has a schema of the kind.
func (d *Document) Describes(kind schema.GroupVersionKind) bool { return d.find(kind) != nil }

func (d *Document) find(kind schema.GroupVersionKind) *Node {
	for _, node := range d.Components.Schemas {
		if slices.Contains(node.kinds(), groupVersionKind(kind)) {
			return node
		}
	}
	return nil
}
