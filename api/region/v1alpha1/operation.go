package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Operation is the record of one create or delete of a key, written ahead of all that it
// does. Its name is the operation's ID. Only clients of the protocol write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Verb",type=string,JSONPath=`.spec.verb`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.key.kind`
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.key.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OperationSpec `json:"spec"`
}

// OperationSpec is what was asked for, and how far it has come.
type OperationSpec struct {
	// +kubebuilder:validation:Enum=Create;Delete
	Verb string `json:"verb"`
	Key  Key    `json:"key"`
	// Home is the region that it was asked for in.
	// +kubebuilder:validation:MinLength=1
	Home string `json:"home"`
	// Payload is what a Create writes into the claims.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Payload string `json:"payload,omitempty"`
	// Target is the operation whose claims a Delete removes.
	// +optional
	Target string `json:"target,omitempty"`
	// TargetHome is the home of the target.
	// +optional
	TargetHome string `json:"targetHome,omitempty"`
	// State becomes Committed or Aborted once, by one conditional write.
	// +kubebuilder:validation:Enum=Pending;Committed;Aborted;Done
	State string `json:"state"`
	// Reason says why it was aborted.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Attempt counts how often it had to reserve its key anew.
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
	// Epoch is that of the membership at the decision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch,omitempty"`
	// Members are the regions at the decision.
	// +listType=set
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Members []string `json:"members,omitempty"`
}

// OperationList is a list of Operations.
//
// +kubebuilder:object:root=true
type OperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Operation `json:"items"`
}
