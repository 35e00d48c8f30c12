package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ServiceCluster is a cluster on which services run. Its name is unique over all regions, and
// each region has the same ServiceCluster, made by that region's agent from the name's Claim,
// as Accounts are. The agent of its home alone connects to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ServiceClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ServiceClusterStatus `json:"status,omitempty"`
}

// ServiceClusterSpec is what a service cluster is. It never changes.
type ServiceClusterSpec struct {
	// KubeconfigSecret is a Secret in the home region. Nothing of its content leaves that
	// region. Without one, nobody connects to the service cluster.
	// +optional
	KubeconfigSecret *SecretReference `json:"kubeconfigSecret,omitempty"`
	// Region is its home: where it was created. It is not part of what Claims carry.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
}

// SecretReference names a Secret that has a kubeconfig under the key kubeconfig, and whose
// label region.xbernetes.io/service-cluster has the service cluster's name: whoever may not
// write the Secret cannot have it used. The kubeconfig may name no command and no file.
type SecretReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ServiceClusterStatus is how a service cluster stands, as its home's agent sees it. In other
// regions it has no conditions.
type ServiceClusterStatus struct {
	// Conditions has Reachable: its API answers; and Ready: it answers, and the kubeconfig
	// has the rights that are needed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ServiceClusterList is a list of ServiceClusters.
//
// +kubebuilder:object:root=true
type ServiceClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceCluster `json:"items"`
}
