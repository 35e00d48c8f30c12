package discovery

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// Kind returns the kind of a resource; false if the server's discovery does not show the
// resource.
func (d *Document) Kind(resource schema.GroupVersionResource) (canonical.Kind, bool) {
	for _, g := range d.Groups {
		if g.Name != resource.Group {
			continue
		}
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				if v.Version == resource.Version && r.Resource == resource.Resource {
					return kindFrom(resource, r), true
				}
			}
		}
	}
	return canonical.Kind{}, false
}

// kindFrom returns the kind that discovery gives for a resource. If discovery leaves out the
// kind's group and version, they are the resource's.
func kindFrom(resource schema.GroupVersionResource, r apidiscoveryv2.APIResourceDiscovery) canonical.Kind {
	k := canonical.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: resource.Group, Version: resource.Version},
		Namespaced:       r.Scope == apidiscoveryv2.ScopeNamespace,
	}
	if r.ResponseKind != nil {
		k.Kind = r.ResponseKind.Kind
		if r.ResponseKind.Version != "" {
			k.Group, k.Version = r.ResponseKind.Group, r.ResponseKind.Version
		}
	}
	for _, s := range r.Subresources {
		k.Subresources = append(k.Subresources, s.Subresource)
	}
	return k
}
