// Package local is the API of one region, as its agent uses it: typed clients, and what claims
// say of a name there. It decides nothing, and reaches no other region.
package local

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/kube"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Object is an object of Kubernetes.
type Object interface {
	runtime.Object
	metav1.Object
}

// Client is the client of one kind.
type Client[T Object, L runtime.Object] = gentype.ClientWithList[T, L]

// API is one region's.
type API struct {
	Region stored.Region
	Kube   kubernetes.Interface

	Claims          *Client[*v1alpha1.Claim, *v1alpha1.ClaimList]
	Memberships     *Client[*v1alpha1.Membership, *v1alpha1.MembershipList]
	Accounts        *Client[*v1alpha1.Account, *v1alpha1.AccountList]
	ServiceClusters *Client[*v1alpha1.ServiceCluster, *v1alpha1.ServiceClusterList]
	Assignments     *Client[*v1alpha1.ServiceClusterAssignment, *v1alpha1.ServiceClusterAssignmentList]
	Regions         *Client[*v1alpha1.Region, *v1alpha1.RegionList]
	// Events takes Events about the region's own kinds; nil: nobody is told.
	Events record.EventRecorder
	// Dynamic is for the kinds of the catalog and their definitions.
	Dynamic dynamic.Interface

	entries func(namespace string) *Client[*v1alpha1.CatalogEntry, *v1alpha1.CatalogEntryList]
	places  *kube.Places
}

// Entries is the client of the CatalogEntries of a namespace; "" is all.
func (a *API) Entries(namespace string) *Client[*v1alpha1.CatalogEntry, *v1alpha1.CatalogEntryList] {
	return a.entries(namespace)
}

// New makes the clients of a region's API. It does not connect.
func New(region string, config *rest.Config) (*API, error) {
	a := &API{Region: stored.Region(region)}
	var err error
	if a.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.places, err = kube.New(map[stored.Place]*rest.Config{a.Region.Place(): config}); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	version := v1alpha1.GroupVersion()
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	codec := runtime.NewParameterCodec(scheme)
	a.Claims = of(client, codec, "claims", func() *v1alpha1.Claim { return &v1alpha1.Claim{} }, func() *v1alpha1.ClaimList { return &v1alpha1.ClaimList{} })
	a.Memberships = of(client, codec, "memberships", func() *v1alpha1.Membership { return &v1alpha1.Membership{} }, func() *v1alpha1.MembershipList { return &v1alpha1.MembershipList{} })
	a.Accounts = of(client, codec, "accounts", func() *v1alpha1.Account { return &v1alpha1.Account{} }, func() *v1alpha1.AccountList { return &v1alpha1.AccountList{} })
	a.ServiceClusters = of(client, codec, "serviceclusters", func() *v1alpha1.ServiceCluster { return &v1alpha1.ServiceCluster{} }, func() *v1alpha1.ServiceClusterList { return &v1alpha1.ServiceClusterList{} })
	a.Assignments = of(client, codec, "serviceclusterassignments", func() *v1alpha1.ServiceClusterAssignment { return &v1alpha1.ServiceClusterAssignment{} }, func() *v1alpha1.ServiceClusterAssignmentList { return &v1alpha1.ServiceClusterAssignmentList{} })
	if a.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	a.entries = func(namespace string) *Client[*v1alpha1.CatalogEntry, *v1alpha1.CatalogEntryList] {
		return gentype.NewClientWithList("catalogentries", rest.Interface(client), codec, namespace,
			func() *v1alpha1.CatalogEntry { return &v1alpha1.CatalogEntry{} }, func() *v1alpha1.CatalogEntryList { return &v1alpha1.CatalogEntryList{} })
	}
	a.Regions = of(client, codec, "regions", func() *v1alpha1.Region { return &v1alpha1.Region{} }, func() *v1alpha1.RegionList { return &v1alpha1.RegionList{} })
	return a, nil
}

// Connects says whether the agent of this region is the one that connects to a service cluster.
func (a *API) Connects(c *v1alpha1.ServiceCluster) bool {
	return c.Spec.Region == string(a.Region) && c.Spec.KubeconfigSecret != nil
}

// of is the client of a kind without a namespace.
func of[T Object, L runtime.Object](client rest.Interface, codec runtime.ParameterCodec, resource string, one func() T, list func() L) *Client[T, L] {
	return gentype.NewClientWithList(resource, client, codec, "", one, list)
}

// Standing is what a region knows of a name.
type Standing int

const (
	// Undecided: the region is not an active member now, or learns of the name just now.
	// Whatever was made for the name stays as it is.
	Undecided Standing = iota
	// Absent: nobody owns the name.
	Absent
	// Owned: somebody owns the name, and the claim says who.
	Owned
)

// Standing reads what a claim says. The membership is read before the claim and after it: a
// region that was removed and joins again has claims that are void, and misses some that stand.
func (a *API) Standing(ctx context.Context, key stored.Key) (stored.Claim, Standing, error) {
	before, active, err := a.active(ctx)
	if err != nil || !active {
		return stored.Claim{}, Undecided, err
	}
	found, err := a.read(ctx, stored.ReadOf(a.Region.Place(), stored.KindClaim, key.ClaimName()))
	if err != nil {
		return stored.Claim{}, Undecided, err
	}
	after, active, err := a.active(ctx)
	if err != nil || !active || before != after {
		return stored.Claim{}, Undecided, err
	}
	claim, _ := found.(stored.Claim)
	switch {
	case claim.Owned() && claim.Key == key:
		return claim, Owned, nil
	case claim.Phase == stored.Copy:
		return claim, Undecided, nil
	}
	return claim, Absent, nil
}

// active says whether the region is an active member, and since when, as its copy of the
// membership has it.
func (a *API) active(ctx context.Context) (stored.Epoch, bool, error) {
	m, err := a.Membership(ctx)
	here, _ := m.Find(a.Region)
	return here.Since, here.Active, err
}

// Membership is the region's copy; zero if it never was a member.
func (a *API) Membership(ctx context.Context) (stored.Membership, error) {
	found, err := a.read(ctx, stored.ReadOf(a.Region.Place(), stored.KindMembership, stored.MembershipName))
	m, _ := found.(stored.Membership)
	return m, err
}

// read returns nil if there is nothing.
func (a *API) read(ctx context.Context, r stored.Request) (stored.Body, error) {
	answer := a.places.Call(ctx)(r)[0]
	switch answer.Outcome {
	case stored.OK:
		return answer.Object.Body, nil
	case stored.NotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("read %s %s: %w", r.Kind, r.Name, answer.Err)
	}
}
