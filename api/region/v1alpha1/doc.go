// Package v1alpha1 holds the types of the group region.xbernetes.io: what regions store to
// agree on who owns a key, and what each region's agent makes of the keys. It holds no logic
// beyond what the fields mean. docs/regions.md explains what writes them.
//
// +kubebuilder:object:generate=true
// +groupName=region.xbernetes.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the group of these types.
const GroupName = "region.xbernetes.io"

// GroupVersion is the group and version of these types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme tells a scheme of these types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&Claim{}, &ClaimList{}, &Operation{}, &OperationList{}, &Membership{}, &MembershipList{},
		&Account{}, &AccountList{}, &ServiceCluster{}, &ServiceClusterList{},
		&ServiceClusterAssignment{}, &ServiceClusterAssignmentList{}, &Region{}, &RegionList{},
		&CatalogEntry{}, &CatalogEntryList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
