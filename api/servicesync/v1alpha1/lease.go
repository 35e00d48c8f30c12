package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterLease is a cluster's sign of life, and what holds for all of its
// publications. Its name is the cluster's identity.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cllease
// +kubebuilder:metadata:annotations="servicesync.xbernetes.io/format=3"
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.spec.renewTime`
// +kubebuilder:printcolumn:name="Complete",type=boolean,JSONPath=`.spec.complete`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.spec.services`
type ClusterLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterLeaseSpec `json:"spec"`
	// +optional
	Status ClusterLeaseStatus `json:"status,omitzero"`
}

// ClusterLeaseSpec is what other clusters act on.
type ClusterLeaseSpec struct {
	// FormatVersion is the format that the cluster's controller writes.
	FormatVersion int32 `json:"formatVersion"`
	// Cluster is the identity of the cluster.
	Cluster string `json:"cluster"`
	// RenewTime is of the cluster's own clock. A reader takes it for alive as
	// long as RenewTime changes within Duration of the reader's clock.
	RenewTime metav1.MicroTime `json:"renewTime"`
	// DurationSeconds is how long a silence says nothing yet.
	// +kubebuilder:validation:Minimum=1
	DurationSeconds int32 `json:"durationSeconds"`
	// Complete says that the controller has read all of its cluster and has
	// published all that there is: only then does absence mean something.
	// +optional
	Complete bool `json:"complete,omitempty"`
	// Services is how many PublishedServices there are or are about to be. Once
	// Complete was said, it is written before one is created and before one is
	// deleted, so that a reader who sees fewer knows that it does not see all.
	// +optional
	Services int32 `json:"services,omitempty"`
	// Peers are the clusters that this one reads.
	// +listType=set
	// +optional
	Peers []string `json:"peers,omitempty"`
	// PodRanges are the cluster's pod ranges, as CIDRs, where they are known.
	// +listType=set
	// +optional
	PodRanges []string `json:"podRanges,omitempty"`
}

// ClusterLeaseStatus is what the cluster remembers of others.
type ClusterLeaseStatus struct {
	// +listType=map
	// +listMapKey=cluster
	// +optional
	Peers []PeerStatus `json:"peers,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PeerStatus is what a cluster knows of another.
type PeerStatus struct {
	Cluster string `json:"cluster"`
	// Heard is when its lease was last seen to change, of this cluster's clock.
	// +optional
	Heard *metav1.MicroTime `json:"heard,omitempty"`
	// DurationSeconds is how long its lease lasts.
	// +optional
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
	// State is Live, Stale or Expired, or Unknown of one that was not reached yet,
	// with a message if there is something to do.
	// +optional
	State string `json:"state,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterLeaseList is a list of them.
//
// +kubebuilder:object:root=true
type ClusterLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterLease `json:"items"`
}
