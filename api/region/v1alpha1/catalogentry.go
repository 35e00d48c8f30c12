package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CatalogGroupName is the group in which a region serves the kinds that its catalog offers.
const CatalogGroupName = "catalog." + GroupName

// CatalogEntry offers a kind of a service cluster to accounts, in the service cluster's home
// region. It lies in the namespace that has the service cluster's kubeconfig Secret: whoever
// provides the cluster decides what is offered.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Service Cluster",type=string,JSONPath=`.spec.serviceCluster`
// +kubebuilder:printcolumn:name="CRD",type=string,JSONPath=`.spec.crd`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CatalogEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CatalogEntrySpec `json:"spec"`
	// +optional
	Status CatalogEntryStatus `json:"status,omitempty"`
}

// CatalogEntrySpec is what is offered, and to whom.
type CatalogEntrySpec struct {
	// ServiceCluster is where instances run.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it cannot be changed: delete the entry and create another"
	ServiceCluster string `json:"serviceCluster"`
	// CRD is the name of a CustomResourceDefinition there, PLURAL.GROUP, of a kind with
	// namespaces. The region serves the kind as PLURAL.catalog.region.xbernetes.io.
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]{0,62}\.[a-z0-9.-]{1,189}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it cannot be changed: delete the entry and create another"
	CRD string `json:"crd"`
	// Accounts may use it if they are assigned to the service cluster; "*" is all that are.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	Accounts []string `json:"accounts"`
	// Fields of spec and status are those that a tenant can set and see, such as spec.size and
	// status.phase, each with all below it. Without any, all are.
	// +listType=set
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(spec|status)(\.[A-Za-z_][A-Za-z0-9_-]*)*$`
	Fields []string `json:"fields,omitempty"`
}

// CatalogEntryStatus is how an entry stands.
type CatalogEntryStatus struct {
	// Resource is what the region serves for it, PLURAL.catalog.region.xbernetes.io; empty
	// until it is served.
	// +optional
	Resource string `json:"resource,omitempty"`
	// Conditions has Ready: accounts can create instances.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CatalogEntryList is a list of CatalogEntries.
//
// +kubebuilder:object:root=true
type CatalogEntryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CatalogEntry `json:"items"`
}
