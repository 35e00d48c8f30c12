// Package v1alpha1 holds the types of the group transaction.xbernetes.io: several
// changes that are made together or not at all. It holds no logic beyond what the
// fields mean, and imports nothing but apimachinery. docs/transactions.md explains how
// they are used.
//
// +kubebuilder:object:generate=true
// +groupName=transaction.xbernetes.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the group of these types.
const GroupName = "transaction.xbernetes.io"

// GroupVersion is the group and version of these types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme tells a scheme of these types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Transaction{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// OpenAPIModelName is the name of the type in OpenAPI.
func (Transaction) OpenAPIModelName() string { return "io.xbernetes.transaction.v1alpha1.Transaction" }
