package survey

import (
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Resource is one that the server has in its discovery.
type Resource struct {
	GroupVersion schema.GroupVersion
	Name         string
	Kind         string
	Namespaced   bool
	Verbs        []string
}

// String is the resource's name as name.version.group.
func (r Resource) String() string {
	if r.GroupVersion.Group == "" {
		return r.Name + "." + r.GroupVersion.Version
	}
	return r.Name + "." + r.GroupVersion.Version + "." + r.GroupVersion.Group
}

// GroupVersionKind is the kind of the resource's objects.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion.WithKind(r.Kind)
}

// Can reports whether the resource has all of the verbs.
func (r Resource) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.Verbs, v) })
}

// Path is that of the collection: in a namespace, or in all if it is empty.
func (r Resource) Path(namespace string) string {
	p := VersionPath(r.GroupVersion)
	if r.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	return p + "/" + r.Name
}

// PathTemplate is the path of the collection as OpenAPI writes it.
func (r Resource) PathTemplate() string {
	if !r.Namespaced {
		return r.Path("")
	}
	return VersionPath(r.GroupVersion) + "/namespaces/{namespace}/" + r.Name
}

// ObjectPath is the path of one object.
func (r Resource) ObjectPath(namespace, name string) string {
	return r.Path(namespace) + "/" + url.PathEscape(name)
}

// VersionPath is the path of a group version.
func VersionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// resourcesOf are the resources of a group version, without subresources.
func resourcesOf(gv schema.GroupVersion, list *metav1.APIResourceList) []Resource {
	var all []Resource
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			all = append(all, Resource{GroupVersion: gv, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
		}
	}
	return all
}

// InTurns orders resources so that each group has its turn.
func InTurns(all []Resource) []Resource {
	var groups []string
	byGroup := map[string][]Resource{}
	for _, r := range all {
		group := r.GroupVersion.Group
		if byGroup[group] == nil {
			groups = append(groups, group)
		}
		byGroup[group] = append(byGroup[group], r)
	}
	var ordered []Resource
	for turn := 0; len(ordered) < len(all); turn++ {
		for _, g := range groups {
			if turn < len(byGroup[g]) {
				ordered = append(ordered, byGroup[g][turn])
			}
		}
	}
	return ordered
}
