package model

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scope is which namespaces are shared: all but kube-system, if nothing is said.
type Scope struct {
	// Watch names those that are; empty: all but kube-system.
	Watch []string
	// Exclude names those that are not, also of those in Watch.
	Exclude []string
}

// Includes reports whether a namespace is shared. kube-system is only if Watch
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
