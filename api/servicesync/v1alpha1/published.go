package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode is what somebody asks for with an annotation. The empty mode asks for
// what goes without saying: a Service that was created in a cluster is a
// source, and one that was made as a replica of it a receiver.
type Mode string

// The modes.
const (
	ModeNone     Mode = ""
	ModeSource   Mode = "source"
	ModeReceiver Mode = "receiver"
	ModeUnion    Mode = "union"
	ModeSingular Mode = "singular"
)

// Role is what a cluster's Service does now.
//
// +kubebuilder:validation:Enum=source;candidate;receiver;union;singular;none
type Role string

// The roles.
const (
	// RoleSource gives its own endpoints to all clusters.
	RoleSource Role = "source"
	// RoleCandidate has endpoints of its own and is about to take over; others
	// use them once the handover says so, or if nothing else is ready.
	RoleCandidate Role = "candidate"
	// RoleReceiver gives nothing and uses what others give.
	RoleReceiver Role = "receiver"
	// RoleUnion gives its own endpoints, and uses those of others in union too.
	RoleUnion Role = "union"
	// RoleSingular stands alone: gives nothing to others, and takes nothing.
	RoleSingular Role = "singular"
	// RoleNone takes no part: the cluster only answers handovers.
	RoleNone Role = "none"
)

// PublishedService is what a cluster says about one of its Services.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pubsvc
// +kubebuilder:metadata:annotations="servicesync.xbernetes.io/format=3"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.handover.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.spec.ready`
type PublishedService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PublishedServiceSpec `json:"spec"`
	// +optional
	Status PublishedServiceStatus `json:"status,omitzero"`
}

// PublishedServiceSpec is what other clusters act on.
type PublishedServiceSpec struct {
	// FormatVersion is the oldest format that a reader must know.
	FormatVersion int32 `json:"formatVersion"`
	// Cluster is the identity of the cluster that publishes.
	Cluster string `json:"cluster"`
	// Service is which Service this is about.
	Service ServiceReference `json:"service"`
	// Role is what the Service does now.
	Role Role `json:"role"`
	// Mode is what its annotation asks for.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Asked says that Mode is a wish that was not answered yet.
	// +optional
	Asked bool `json:"asked,omitempty"`
	// To is the cluster that a receiver wants to hand over to, if it named one.
	// +optional
	To string `json:"to,omitempty"`
	// Replica says that the Service was made for another cluster's.
	// +optional
	Replica bool `json:"replica,omitempty"`
	// Exported says that the cluster has a ServiceExport for it.
	// +optional
	Exported *Export `json:"exported,omitempty"`
	// Template is the Service as replicas need it; nil where the cluster has none.
	// +optional
	Template *ServiceTemplate `json:"template,omitempty"`
	// Ready and Total count the Service's own endpoints, by address.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// +optional
	Total int32 `json:"total,omitempty"`
	// Slices are the first of its own endpoints of each kind, as long as they are
	// those of a role that gives them. What finds no room here is in PublishedSlices.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Slices []InlineSlice `json:"slices,omitempty"`
	// Handover is the latest wish to stop giving endpoints; nil: none yet.
	// +optional
	Handover *Handover `json:"handover,omitempty"`
	// Seen answers the handovers of other clusters.
	// +listType=map
	// +listMapKey=cluster
	// +optional
	Seen []Seen `json:"seen,omitempty"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Export is what a ServiceExport adds.
type Export struct {
	// Created is when the export was created: of exports that conflict, the
	// oldest counts.
	Created metav1.Time `json:"created"`
	// Labels and Annotations are those that the export asks to be exported.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ServiceTemplate is a Service without what belongs to its cluster: addresses,
// node ports and status.
type ServiceTemplate struct {
	// Created is when the Service was created; of Services that conflict, the
	// oldest is kept where one must be.
	Created metav1.Time `json:"created"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string  `json:"annotations,omitempty"`
	Type        corev1.ServiceType `json:"type"`
	// +optional
	Headless bool `json:"headless,omitempty"`
	// +optional
	ExternalName string `json:"externalName,omitempty"`
	// Selector is the one in use, or the one that was taken away.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`
	// +listType=atomic
	// +optional
	Ports []corev1.ServicePort `json:"ports,omitempty"`
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
	// +listType=atomic
	// +optional
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// +optional
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	// +optional
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	// +optional
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`
	// +optional
	PublishNotReadyAddresses bool `json:"publishNotReadyAddresses,omitempty"`
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
	// +optional
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`
	// +listType=atomic
	// +optional
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
}

// Phase is how far a handover has come.
//
// +kubebuilder:validation:Enum=Preparing;Joining;Committed;Done;Withdrawn
type Phase string

// The phases, in their order. Each is published before anything acts on it.
const (
	// PhasePreparing waits until enough endpoints of the heirs are ready and have
	// been for long enough.
	PhasePreparing Phase = "Preparing"
	// PhaseJoining has every cluster use the heirs' endpoints beside the old
	// ones, and waits until each has said so.
	PhaseJoining Phase = "Joining"
	// PhaseCommitted cannot be taken back: the role, the selector and the
	// endpoints go.
	PhaseCommitted Phase = "Committed"
	// PhaseDone says that they are gone.
	PhaseDone Phase = "Done"
	// PhaseWithdrawn says that the wish was taken back before it was committed.
	PhaseWithdrawn Phase = "Withdrawn"
)

// Handover is the wish of a cluster to stop giving its endpoints, because
// others give theirs.
type Handover struct {
	// Turn tells handovers of one Service and cluster apart. It grows, also over
	// a deletion of the record.
	Turn int64 `json:"turn"`
	// Phase is how far it has come.
	Phase Phase `json:"phase"`
	// Heirs are the clusters that give instead; none: nobody need, because nobody
	// else uses the endpoints, or because it was asked for.
	// +listType=set
	// +optional
	Heirs []string `json:"heirs,omitempty"`
	// Need is how many endpoints of the heirs must be ready.
	// +optional
	Need int32 `json:"need,omitempty"`
	// Since is when enough of them were seen ready, without a break until now.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
}

// Seen answers a handover of another cluster.
type Seen struct {
	// Cluster and Turn say which.
	Cluster string `json:"cluster"`
	Turn    int64  `json:"turn"`
	// Ready is how many ready endpoints of the heirs are in use here: read from
	// what the cluster's API holds, not from what is wished.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Stays promises, of an heir, to go on giving until the handover is over.
	// +optional
	Stays bool `json:"stays,omitempty"`
	// Aside says that the cluster does not use the Service: nothing to wait for.
	// +optional
	Aside bool `json:"aside,omitempty"`
}

// PublishedServiceStatus is what the cluster's own people want to know.
type PublishedServiceStatus struct {
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PublishedServiceList is a list of them.
//
// +kubebuilder:object:root=true
type PublishedServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PublishedService `json:"items"`
}

// InlineSlice is a slice of endpoints within a PublishedService.
type InlineSlice struct {
	// Name tells it from all other slices of the Service, those in
	// PublishedSlices too.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name               string `json:"name"`
	PublishedEndpoints `json:",inline"`
}

// PublishedEndpoints are a part of a Service's own endpoints: of one address
// family, with one set of ports, 100 at most. An endpoint stays in its slice.
type PublishedEndpoints struct {
	AddressType discoveryv1.AddressType `json:"addressType"`
	// +listType=atomic
	// +optional
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Endpoints []EndpointGroup `json:"endpoints,omitempty"`
	// Changed is when the newest change in it was first noticed by the cluster's
	// controller, to measure how long it takes.
	// +optional
	Changed *metav1.MicroTime `json:"changed,omitempty"`
}

// PublishedSlice is endpoints that find no room in their PublishedService.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pubslice
// +kubebuilder:metadata:annotations="servicesync.xbernetes.io/format=3"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addressType`
type PublishedSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PublishedSliceSpec `json:"spec"`
}

// PublishedSliceSpec is what other clusters act on.
type PublishedSliceSpec struct {
	// Cluster is the identity of the cluster that publishes.
	Cluster string `json:"cluster"`
	// Service is which Service this is about.
	Service            ServiceReference `json:"service"`
	PublishedEndpoints `json:",inline"`
}

// EndpointGroup is endpoints of a slice that have all but their addresses in
// common, without what means something in their own cluster only: no node, no
// reference to the pod. A slice has about as many as there are zones: an API
// server checks every field of every entry at each write.
type EndpointGroup struct {
	// Addresses are those of the endpoints, one of each.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Addresses []string `json:"addresses"`
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// +optional
	Zone string `json:"zone,omitempty"`
	// Ready, Serving and Terminating are the three conditions, with the defaults
	// that an absent condition has already filled in.
	Ready bool `json:"ready"`
	// +optional
	Serving bool `json:"serving,omitempty"`
	// +optional
	Terminating bool `json:"terminating,omitempty"`
}

// PublishedSliceList is a list of them.
//
// +kubebuilder:object:root=true
type PublishedSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PublishedSlice `json:"items"`
}
