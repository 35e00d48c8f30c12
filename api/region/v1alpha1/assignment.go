package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ServiceClusterAssignment gives an account the use of a service cluster. There is one of the
// two in all regions, and each region has the same ServiceClusterAssignment, made by that
// region's agent from its Claim, as Accounts are. Its name is SERVICECLUSTER.ACCOUNT.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Service Cluster",type=string,JSONPath=`.spec.serviceCluster`
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.account`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespace`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceClusterAssignment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ServiceClusterAssignmentSpec `json:"spec"`
	// +optional
	Status ServiceClusterAssignmentStatus `json:"status,omitempty"`
}

// ServiceClusterAssignmentSpec is what an assignment is. It never changes.
type ServiceClusterAssignmentSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ServiceCluster string `json:"serviceCluster"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Account string `json:"account"`
	// Region is its home: where it was created, which need not be that of the service cluster
	// or the account.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
}

// ServiceClusterAssignmentStatus is how an assignment stands, as the agent of the service
// cluster's home sees it. In other regions it is empty.
type ServiceClusterAssignmentStatus struct {
	// Namespace is that of the account on the service cluster; empty until there is one.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Conditions has Ready: the namespace is there.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ServiceClusterAssignmentList is a list of ServiceClusterAssignments.
//
// +kubebuilder:object:root=true
type ServiceClusterAssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceClusterAssignment `json:"items"`
}
