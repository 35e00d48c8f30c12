package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Claim is the one object of a key in a region: it says who has reserved or owns the key
// there. Its name is a hash of the key. Only clients of the protocol write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.key.kind`
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.key.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner.operation`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.spec.owner.home`
type Claim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClaimSpec `json:"spec"`
}

// ClaimSpec is who has reserved or owns the key.
type ClaimSpec struct {
	Key Key `json:"key"`
	// Phase says how far the operation has come in this region.
	// +kubebuilder:validation:Enum=Intent;Held;Real;Marked;Tomb;FrozenIntent;FrozenMark;Copy
	Phase string `json:"phase"`
	// Owner is the operation that creates or has created what the key names.
	Owner Stake `json:"owner"`
	// Deleter is the operation that deletes it.
	// +optional
	Deleter *Stake `json:"deleter,omitempty"`
	// WasReal says whether the claim was Real before it was marked.
	// +optional
	WasReal bool `json:"wasReal,omitempty"`
	// Payload is what the key names, as its owner's operation says.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Payload string `json:"payload,omitempty"`
}

// Key is what has one owner in all regions.
type Key struct {
	// Kind is the kind of thing, such as Account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind"`
	// Name is the name of the thing.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
}

// Stake is what an operation has written into a claim.
type Stake struct {
	// Operation is its ID.
	Operation string `json:"operation"`
	// Home is the region that it was asked for in; empty if that was removed.
	// +optional
	Home string `json:"home,omitempty"`
	// Attempt counts how often it had to reserve the key.
	// +kubebuilder:validation:Minimum=0
	Attempt int64 `json:"attempt"`
	// Epoch is that of the membership under which it was written.
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
}

// ClaimList is a list of Claims.
//
// +kubebuilder:object:root=true
type ClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Claim `json:"items"`
}
