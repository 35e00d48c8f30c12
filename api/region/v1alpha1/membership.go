package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Membership says which regions there are. It is changed in one place, and each region has
// a copy. Its name is "members". Only clients of the protocol write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.spec.epoch`
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.spec.members[*].region`
type Membership struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MembershipSpec `json:"spec"`
}

// MembershipSpec is one state of the membership.
type MembershipSpec struct {
	// Epoch counts its changes.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
	// Horizon is the window of operations that are decided now.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Horizon int64 `json:"horizon,omitempty"`
	// +listType=map
	// +listMapKey=region
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`
}

// Member is one region.
type Member struct {
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
	// Active is false while the region joins.
	// +optional
	Active bool `json:"active,omitempty"`
	// Since is the epoch in which it joined.
	// +kubebuilder:validation:Minimum=1
	Since int64 `json:"since"`
}

// MembershipList is a list of Memberships.
//
// +kubebuilder:object:root=true
type MembershipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Membership `json:"items"`
}
