package objects

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// definitions are the schemas of the kinds, as the CustomResourceDefinitions have them.
type definitions map[string]spec.Schema // by the name of the kind

func newDefinitions() (definitions, error) {
	found := definitions{}
	for _, document := range v1alpha1.CRDs() {
		var crd struct {
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(document, &crd); err != nil {
			return nil, fmt.Errorf("read the definitions of %s: %w", v1alpha1.GroupName, err)
		}
		var schema spec.Schema
		if err := json.Unmarshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema); err != nil {
			return nil, fmt.Errorf("read the schema of %s: %w", crd.Spec.Names.Kind, err)
		}
		found[crd.Spec.Names.Kind] = schema
	}
	return found, nil
}

// all returns the definitions of the kinds, of their lists, and of what Kubernetes itself
// sends and takes.
func (d definitions) all(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := openapi.GetOpenAPIDefinitions(ref)
	for _, k := range kinds() {
		one, many := util.GetCanonicalTypeName(k.object()), util.GetCanonicalTypeName(k.list())
		meta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
		schema := d[string(k.kind)]
		schema.Properties = maps.Clone(schema.Properties)
		schema.Properties["metadata"] = *spec.RefSchema(refTo(ref, meta))
		all[one] = common.OpenAPIDefinition{Schema: schema, Dependencies: []string{meta}}

		list := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Required: []string{"items"}, Properties: map[string]spec.Schema{
			"apiVersion": *spec.StringProperty(), "kind": *spec.StringProperty(),
			"metadata": *spec.RefSchema(refTo(ref, listMeta)),
			"items":    *spec.ArrayProperty(spec.RefSchema(refTo(ref, one))),
		}}}
		all[many] = common.OpenAPIDefinition{Schema: list, Dependencies: []string{listMeta, one}}
	}
	return all
}

func refTo(ref common.ReferenceCallback, name string) string {
	to := ref(name)
	return to.String()
}
