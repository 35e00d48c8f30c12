package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Account is somebody who provides or uses services. Its name is unique over all regions, and
// each region has the same Account, made by that region's agent from the name's Claim. An edit
// of its spec is put back, and an Account that is deleted while the name stands is made again:
// names are created and deleted in all regions together, by api/region/client.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.roles`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Account struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec AccountSpec `json:"spec,omitempty"`
	// +optional
	Status AccountStatus `json:"status,omitempty"`
}

// AccountRole is what an account does.
//
// +kubebuilder:validation:Enum=Provider;Tenant
type AccountRole string

// The roles.
const (
	// Provider: registers service clusters, and keeps their kubeconfigs in its namespace.
	Provider AccountRole = "Provider"
	// Tenant: uses services, by objects in its namespace.
	Tenant AccountRole = "Tenant"
)

// AccountSpec is what an account is. It never changes.
type AccountSpec struct {
	// Roles say what its subjects may do in its namespace. Without any, they may do nothing.
	// +listType=set
	// +optional
	// +kubebuilder:validation:MaxItems=2
	Roles []AccountRole `json:"roles,omitempty"`
	// Subjects are the users, groups and service accounts that act for it. The API does not
	// know whether they exist.
	// +listType=atomic
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`
	// Region is its home: where it was created. It is not part of what Claims carry.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
}

// AccountStatus is how an account stands in one region.
type AccountStatus struct {
	// Namespace is the account's, in this region; empty until there is one.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Conditions has Ready: the namespace is there, and its subjects have their rights.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AccountList is a list of Accounts.
//
// +kubebuilder:object:root=true
type AccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Account `json:"items"`
}
