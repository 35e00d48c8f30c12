package model

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scope says which namespaces are shared. The zero value shares all but kube-system.
type Scope struct {
	// Watch names the namespaces that are shared; empty: all but kube-system.
	Watch []string
	// Exclude names namespaces that are not shared, even if Watch names them.
	Exclude []string
}

// Includes reports whether a namespace is shared. kube-system is shared only if Watch
// names it.
func (s Scope) Includes(namespace string) bool {
	switch {
	case slices.Contains(s.Exclude, namespace):
		return false
	case len(s.Watch) > 0:
		return slices.Contains(s.Watch, namespace)
	default:
		return namespace != metav1.NamespaceSystem
	}
}
