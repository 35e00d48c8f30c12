package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Region is one member of the Membership, as the region knows it that is asked: its agent makes
// Regions from its copy, which can be one change behind.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=integer,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
type Region struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Status RegionStatus `json:"status,omitempty"`
}

// RegionStatus is how a region stands.
type RegionStatus struct {
	// State is Joining or Active. A region that was removed has no Region.
	// +optional
	// +kubebuilder:validation:Enum=Joining;Active
	State string `json:"state,omitempty"`
	// Since is the epoch in which it joined.
	// +optional
	Since int64 `json:"since,omitempty"`
	// Epoch is that of the copy of the Membership that this was read from.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
}

// RegionList is a list of Regions.
//
// +kubebuilder:object:root=true
type RegionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Region `json:"items"`
}
