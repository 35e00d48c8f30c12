// Package model decides what a cluster's API should hold of the Services that
// clusters share, and in which order to get there. It never asks the time,
// reads or writes anything, or starts a goroutine: all it knows is its Input.
//
// Every cluster runs the same function over what it sees. Nothing but
// publications goes from one to another, and each is written by one cluster
// only. What must be remembered lies in the objects themselves, so that a
// crash between any two writes loses nothing.
package model

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// ClusterID is the identity of a cluster: a DNS label, the same for everybody.
type ClusterID string

// Config is what holds for all Services of a cluster.
type Config struct {
	// Cluster is the cluster whose API is decided about.
	Cluster ClusterID
	// Namespace is where its publications lie.
	Namespace string
	// Scope is which namespaces are shared.
	Scope Scope
	// CreateNamespaces allows creating a namespace that a replica needs.
	CreateNamespaces bool
	// Families are the IP families that Services of the cluster can have; empty:
	// unknown.
	Families []corev1.IPFamily
	// MinReady is how many endpoints must be ready at those who take over, as a
	// number, or a percentage of those ready at the one that gives up; zero: 75%,
	// which is what a Deployment keeps while it is rolled.
	MinReady intstr.IntOrString
	// StableFor is for how long they must have been ready.
	StableFor time.Duration
	// Endpoints has Endpoints written beside the slices of every replica.
	Endpoints bool
	// PerSlice is how many endpoints of other clusters share a slice at most; zero:
	// 100, as many as Kubernetes' own controllers put into one.
	PerSlice int
	// Apart publishes no more endpoints in a PublishedService, as format 2 had it: what
	// comes after it is tested with it.
	Apart bool
	// Trust is what peers may do here, beyond what every peer may; see Trust.
	Trust Trusts
	// Reserved are this cluster's own addresses (of its pods, Services and API
	// servers): no endpoint of a peer has one, unless the peer's Trust says so.
	Reserved []netip.Prefix
	// Carry is which labels and annotations go along; see Carry.
	Carry Carry
	// ExportedOnly leaves Services without a ServiceExport or a mode alone.
	ExportedOnly bool
}

// Input is all that a decision about one Service depends on. Nothing in it is
// changed, and results share no memory with it that anybody may write to.
type Input struct {
	Now     time.Time
	Service types.NamespacedName
	Local   Local
	// Published is the cluster's own publication, as it is stored.
	Published Published
	// Peers are all clusters that are read. One that is missing here is one of
	// which nothing was ever heard: what came from it stays as it is.
	Peers map[ClusterID]Peer
}

// Local is what the cluster's own API holds of a Service.
type Local struct {
	// Namespace says that the namespace exists and is not being deleted.
	Namespace bool
	// Service is nil where there is none.
	Service *corev1.Service
	// Slices are all EndpointSlices of the Service, whoever manages them.
	Slices []*discoveryv1.EndpointSlice
	// Endpoints is the object of the Service's name.
	Endpoints *corev1.Endpoints //nolint:staticcheck // deprecated, and still written by Kubernetes itself
	// Export and Import are those of the Service's name.
	Export *mcs.ServiceExport
	Import *mcs.ServiceImport
	// Derived is the Service of DerivedName, which gives the import its address,
	// and DerivedSlices are all EndpointSlices of it.
	Derived       *corev1.Service
	DerivedSlices []*discoveryv1.EndpointSlice
}

// Published is what a cluster publishes of one Service.
type Published struct {
	// Service is nil where nothing is published.
	Service *v1alpha1.PublishedService
	// Slices are all PublishedSlices that name the Service.
	Slices []*v1alpha1.PublishedSlice
}

// All are the slices of both. Of one name, that in the PublishedService is the last.
func (p Published) All() []*v1alpha1.PublishedSlice {
	if p.Service == nil {
		return p.Slices
	}
	all := slices.Grow(slices.Clone(p.Slices), len(p.Service.Spec.Slices))
	for _, in := range p.Service.Spec.Slices {
		s := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{
			Cluster: p.Service.Spec.Cluster, Service: p.Service.Spec.Service, PublishedEndpoints: in.PublishedEndpoints,
		}}
		if s.Name = in.Name; strings.ContainsAny(in.Name, "/=,") { // no API server let it pass that knows the type
			s.Name = digest(in.Name) // AnnotationFrom would read it as something else
		}
		all = append(all, s)
	}
	return all
}

// Whole reports whether these are all slices that the Service says there are.
func (p Published) Whole(all []*v1alpha1.PublishedSlice) bool {
	return p.Service == nil || countPublished(all) >= int(p.Service.Spec.Total)
}

// Peer is what is known of another cluster, and of one Service of it.
type Peer struct {
	Health Health
	// Synced says that all publications of the peer have been listed since this
	// process began to read it. Without it, Published means nothing, and what the
	// cluster's own API holds of the peer is the last that is known.
	Synced bool
	// Confirmed says that what Published lacks does not exist; see Peering.
	Confirmed bool
	// Reads says that the peer reads this cluster: it will answer handovers.
	Reads bool
	// Forgotten says that somebody took the peer out of the configuration and
	// wants nothing left of it.
	Forgotten bool
	Published Published
}

// Health is how sure it is that a peer's publications still hold.
type Health string

// The grades of health.
const (
	Live    Health = "Live"    // its lease was renewed
	Stale   Health = "Stale"   // nothing was heard for a while
	Expired Health = "Expired" // nothing was heard for as long as its lease lasts
)

// Result is what to do about one Service.
type Result struct {
	// Writes are to be carried out in their order; after one that fails none of
	// the rest. It is safe to stop anywhere. A second pass over what they lead to
	// has none.
	Writes []Write
	// Events are what people who look at the Service should know. They are the
	// same as long as the same holds: say each once.
	Events []Event
	// Again is when time alone will change the result; zero: never.
	Again time.Time
	// Facts are for metrics and for status.
	Facts Facts
}

// Facts are what a decision found out, for metrics and status.
type Facts struct {
	Role v1alpha1.Role
	// Mode is what is asked for, and Asked whether it is still to be answered.
	Mode  v1alpha1.Mode
	Asked bool
	// Conflict is the reason of a conflict; empty: none.
	Conflict string
	// Holds is what a handover waits for, for people; empty: nothing.
	Holds string
	// Phase is of the cluster's own handover, if one is under way.
	Phase v1alpha1.Phase
	// Ready counts the ready endpoints of each cluster in use here.
	Ready map[ClusterID]int
	// Kept says that endpoints are still in use only because without them there
	// would be none: a zero-endpoint moment avoided.
	Kept bool
}

// Object is an API object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is what a write does.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
	// UpdateStatus writes the status subresource only.
	UpdateStatus Verb = "update-status"
)

// Store is which API a write goes to.
type Store string

// The stores.
const (
	Own          Store = "own"          // the cluster's own API
	Publications Store = "publications" // where the cluster publishes; with the direct transport the same
)

// Write is one change of one object.
type Write struct {
	Verb  Verb
	Store Store
	// Object is what to have afterwards; of a Delete what is there now.
	Object Object
	// Before is what is there now, of an Update. Where it is not the cluster's
	// own creation, send only the difference. An update holds only if the
	// resourceVersion is still Before's, a delete only if UID and
	// resourceVersion are still Object's: else drop all and decide anew. An update
	// that changes nothing is sent all the same: it is there to fail.
	Before Object
	// Why says it to people who read a dry run or a log.
	Why string
}

// Event is a Kubernetes Event about the Service.
type Event struct {
	// Type is Normal or Warning.
	Type   string
	Reason string
	Note   string
}
