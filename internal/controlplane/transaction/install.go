package transaction

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapi "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// Scheme returns a scheme that knows the group as clients do.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, v1alpha1.AddToScheme(s)
}

// hub returns a scheme for the server's side. There is one version, so that nothing is
// converted between it and the server's own.
func hub() (*runtime.Scheme, error) {
	s, err := Scheme()
	s.AddKnownTypes(schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}, &v1alpha1.Transaction{})
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, err
}

// Group returns what a generic API server installs.
func (s *Server) Group() (genericapiserver.APIGroupInfo, error) {
	scheme, err := hub()
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("make the scheme of transactions: %w", err)
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, scheme, runtime.NewParameterCodec(scheme), serializer.NewCodecFactory(scheme))
	group.VersionedResourcesStorageMap[v1alpha1.GroupVersion().Version] = map[string]rest.Storage{"transactions": REST{s}}
	return group, nil
}

// Definitions returns the OpenAPI definition of the group's kind by its name, made from
// the same comments as a CustomResourceDefinition would be.
func Definitions() (map[string]openapi.OpenAPIDefinition, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(v1alpha1.CRD()), &crd); err != nil {
		return nil, fmt.Errorf("read the definition of transactions: %w", err)
	}
	definition := openapi.OpenAPIDefinition{}
	if err := json.Unmarshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &definition.Schema); err != nil {
		return nil, fmt.Errorf("read the schema of transactions: %w", err)
	}
	return map[string]openapi.OpenAPIDefinition{util.GetCanonicalTypeName(&v1alpha1.Transaction{}): definition}, nil
}
