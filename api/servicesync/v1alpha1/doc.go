// Package v1alpha1 holds the types of the group servicesync.xbernetes.io: what
// a cluster publishes of its own Services for other clusters to read. It holds
// no logic beyond what the fields mean: deciding is for whoever imports.
//
// One cluster writes the objects of its own cluster and nobody else does. All
// of a cluster's objects lie in one namespace, of its own API or of a shared
// one.
//
// +kubebuilder:object:generate=true
// +groupName=servicesync.xbernetes.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the group of these types.
const GroupName = "servicesync.xbernetes.io"

// FormatVersion is the newest format of publications that this code writes and
// understands. It grows only when an older reader would misunderstand.
const FormatVersion int32 = 3

// FormatApart is the format of a PublishedService without slices.
const FormatApart int32 = 2

// GroupVersion is the group and version of these types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Services is where PublishedServices are served.
func Services() schema.GroupVersionResource {
	return GroupVersion().WithResource("publishedservices")
}

// Slices is where PublishedSlices are served.
func Slices() schema.GroupVersionResource {
	return GroupVersion().WithResource("publishedslices")
}

// Leases is where ClusterLeases are served.
func Leases() schema.GroupVersionResource {
	return GroupVersion().WithResource("clusterleases")
}

// AddToScheme tells a scheme of these types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&PublishedService{}, &PublishedServiceList{},
		&PublishedSlice{}, &PublishedSliceList{},
		&ClusterLease{}, &ClusterLeaseList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
