package controlplane

import (
	"maps"
	"strings"

	openapi "k8s.io/kube-openapi/pkg/common"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// unserved are the API groups and components, as OpenAPI names them, of which a
// generic control plane serves nothing.
var unserved = []string{
	"io.k8s.api.apps.", "io.k8s.api.autoscaling.", "io.k8s.api.batch.", "io.k8s.api.discovery.",
	"io.k8s.api.extensions.", "io.k8s.api.imagepolicy.", "io.k8s.api.networking.", "io.k8s.api.node.",
	"io.k8s.api.policy.", "io.k8s.api.resource.", "io.k8s.api.scheduling.", "io.k8s.api.storage.",
	"io.k8s.kube-controller-manager.", "io.k8s.kube-proxy.", "io.k8s.kube-scheduler.", "io.k8s.kubelet.", "io.k8s.metrics.",
}

// coreGroup is the only group of which some kinds are served and others are not.
const coreGroup = "io.k8s.api.core.v1."

// coreServed are the kinds of the core group that are served.
var coreServed = []string{"ConfigMap", "Event", "Namespace", "ResourceQuota", "Secret", "ServiceAccount"}

// definitionsWith are the definitions of the kinds that are served, and those of more.
func definitionsWith(more map[string]openapi.OpenAPIDefinition) openapi.GetOpenAPIDefinitions {
	return func(ref openapi.ReferenceCallback) map[string]openapi.OpenAPIDefinition {
		all := servedDefinitions(ref)
		maps.Copy(all, more)
		return all
	}
}

// servedDefinitions are the OpenAPI definitions of the kinds that are served, and
// of all kinds that these refer to. They are a third of what upstream generates,
// and take a third of the memory in the API server's copies.
func servedDefinitions(ref openapi.ReferenceCallback) map[string]openapi.OpenAPIDefinition {
	all := generatedopenapi.GetOpenAPIDefinitions(ref)
	served := map[string]openapi.OpenAPIDefinition{}
	var keep func(name string)
	keep = func(name string) {
		def, ok := all[name]
		if _, kept := served[name]; kept || !ok {
			return
		}
		served[name] = def
		for _, dep := range def.Dependencies {
			keep(dep)
		}
	}
	for name := range all {
		if !strings.HasPrefix(name, coreGroup) && !hasAnyPrefix(name, unserved) {
			keep(name)
		}
	}
	for _, kind := range coreServed {
		keep(coreGroup + kind)
		keep(coreGroup + kind + "List")
	}
	return served
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
