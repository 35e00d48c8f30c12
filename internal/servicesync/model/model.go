// Package model decides what a cluster's API should hold of the Services that
// clusters share, and in which order to write it. It never reads the clock, reads or
// writes anything, or starts a goroutine: its Input is all that it knows.
//
// Every cluster runs the same function over its own view. Clusters exchange nothing
// but publications, and each publication is written by one cluster only. All state
// that a decision depends on lies in API objects, so that a crash between any two
// writes loses nothing.
package model

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/mcs"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// Config is what holds for all Services of a cluster.
type Config struct {
	// Cluster is the cluster that the decisions are made for: "this cluster".
	Cluster ClusterID
	// Namespace is where this cluster's publications lie.
	Namespace string
	// Scope says which namespaces are shared.
	Scope Scope
	// CreateNamespaces allows creating a namespace that a replica needs.
	CreateNamespaces bool
	// Families are the IP families that Services of this cluster can have; empty:
	// unknown.
	Families []corev1.IPFamily
	// MinReady is how many endpoints must be ready in the clusters that take over, as
	// a number, or as a percentage of those ready in the cluster that hands over.
	// Zero: 75%, which is what a Deployment keeps ready during a rollout.
	MinReady intstr.IntOrString
	// StableFor is for how long so many endpoints must have been ready.
	StableFor time.Duration
	// Endpoints says that every replica gets an Endpoints object beside its slices.
	Endpoints bool
	// PerSlice is how many endpoints of other clusters share a slice at most; zero:
	// 100, as many as Kubernetes' own controllers put into one.
	PerSlice int
	// Apart publishes no further endpoints in the PublishedService itself, as format 2
	// did. It is set by tests of versions that read such publications.
	Apart bool
	// Trust is what each peer may do here.
	Trust Trusts
	// Reserved are this cluster's own addresses (of its pods, Services and API
	// servers). No endpoint of a peer has one, unless the peer's Trust lists ranges.
	Reserved []netip.Prefix
	// Carry lists the labels and annotations that Services share with their replicas.
	Carry Carry
	// ExportedOnly ignores Services that have neither a ServiceExport nor a mode.
	ExportedOnly bool
}

// Input is all that a decision about one Service depends on. Decide changes nothing in
// it, and the Result may be written to without changing the Input.
type Input struct {
	Now     time.Time
	Service types.NamespacedName
	Local   Local
	// Published is this cluster's own publication, as it is stored.
	Published Published
	// Peers are all clusters that are read. Endpoints of clusters that are not listed
	// are left unchanged.
	Peers map[ClusterID]Peer
}

// Local is what the cluster's own API holds of a Service.
type Local struct {
	// Namespace says that the namespace exists and is not being deleted.
	Namespace bool
	// Service is nil if there is none.
	Service *corev1.Service
	// Slices are all EndpointSlices of the Service, whoever manages them.
	Slices []*discoveryv1.EndpointSlice
	// Endpoints is the Endpoints object of the Service's name; nil: none.
	Endpoints *corev1.Endpoints //nolint:staticcheck // deprecated, and still written by Kubernetes itself
	// Export and Import are those of the Service's name; nil: none.
	Export *mcsv1beta1.ServiceExport
	Import *mcsv1beta1.ServiceImport
	// Derived is the Service of DerivedName, which gives the import its address,
	// and DerivedSlices are all EndpointSlices of it.
	Derived       *corev1.Service
	DerivedSlices []*discoveryv1.EndpointSlice
}

// Result is what to do about one Service.
type Result struct {
	// Writes are to be carried out in this order. If one fails, carry out none of the
	// rest. It is safe to stop after any of them. Deciding again after all of them
	// yields no writes.
	Writes []Write
	// Events are for people who look at the Service. The same Input yields the same
	// events each time: report each only once.
	Events []Event
	// Again is when the result changes although no object does; zero: never.
	Again time.Time
	// Facts are for metrics and for status.
	Facts Facts
}

// Facts are what a decision found out, for metrics and status.
type Facts struct {
	Role v1alpha1.Role
	// Mode is what the Service's annotation asks for, and Asked whether that is still
	// to be answered.
	Mode  v1alpha1.Mode
	Asked bool
	// Conflict is the reason of a conflict; empty: none.
	Conflict string
	// Holds is what a change of role waits for, as a text for people; empty: nothing.
	Holds string
	// Phase is that of this cluster's own handover; empty: none is under way.
	Phase v1alpha1.Phase
	// Ready counts the ready endpoints in use here, by the cluster that has them.
	Ready map[ClusterID]int
	// Kept says that endpoints stay in use although their cluster has handed over,
	// because nothing else is ready.
	Kept bool
}

// The words of a decision, from the packages that define them.
type (
	ClusterID = clusterset.ID
	Published = clusterset.Published
	Peer      = clusterset.Peer
	PeerState = clusterset.PeerState
	Health    = clusterset.Health
	Trust     = clusterset.Trust
	Trusts    = clusterset.Trusts
	Carry     = template.Carry
	Part      = endpointslice.Part
	Object    = plan.Object
	Verb      = plan.Verb
	Where     = plan.Where
	Write     = plan.Write
	Event     = plan.Event
)

// The values of these types; see there.
const (
	Live         = clusterset.Live
	Stale        = clusterset.Stale
	Expired      = clusterset.Expired
	LongestLease = clusterset.LongestLease
	Everybody    = clusterset.Everybody
	Create       = plan.Create
	Update       = plan.Update
	Delete       = plan.Delete
	UpdateStatus = plan.UpdateStatus
	Own          = plan.Own
	Publications = plan.Publications
)

// DerivedName is mcs.DerivedName, for those who also import a package mcs of the API.
func DerivedName(service types.NamespacedName) string { return mcs.DerivedName(service) }
