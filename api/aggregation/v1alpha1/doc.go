// Package v1alpha1 holds the types of the group aggregation.xbernetes.io:
// RemoteAPIServer, which registers an API server with a gateway. It holds no
// logic beyond what the fields mean, and imports nothing but apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=aggregation.xbernetes.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the group of these types.
const GroupName = "aggregation.xbernetes.io"

// GroupVersion is the group and version of these types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Resource is where RemoteAPIServers are served.
func Resource() schema.GroupVersionResource {
	return GroupVersion().WithResource("remoteapiservers")
}

// AddToScheme tells a scheme of these types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &RemoteAPIServer{}, &RemoteAPIServerList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
