// Package access reads and writes the objects that are synced in one Kubernetes API:
// a cluster's, a peer's or a shared store's. It never decides what to write.
package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// FieldManager is the field manager of all writes.
const FieldManager = "xb-servicesync"

// Pace limits a client's requests. client-go's default would take hours for a large
// cluster, and the API server protects itself by priority and fairness.
type Pace struct {
	QPS   float32
	Burst int
}

// API is one Kubernetes API: the own cluster's, the store's, or a peer's.
type API struct {
	Config *rest.Config
	Kube   *kubernetes.Clientset
	groups map[schema.GroupVersion]rest.Interface
	// resources are the names of the resources that serve each kind.
	resources map[schema.GroupVersionKind]string
	Scheme    *runtime.Scheme
}

// Kinds returns the kinds that are read or written, each with its resource's name.
func Kinds() map[schema.GroupVersionKind]string {
	own, mc := v1alpha1.GroupVersion(), mcsVersion()
	return map[schema.GroupVersionKind]string{
		corev1.SchemeGroupVersion.WithKind("Service"):            "services",
		corev1.SchemeGroupVersion.WithKind("Namespace"):          "namespaces",
		corev1.SchemeGroupVersion.WithKind("Endpoints"):          "endpoints",
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"): "endpointslices",
		own.WithKind("PublishedService"):                         "publishedservices",
		own.WithKind("PublishedSlice"):                           "publishedslices",
		own.WithKind("ClusterLease"):                             "clusterleases",
		mc.WithKind("ServiceExport"):                             "serviceexports",
		mc.WithKind("ServiceImport"):                             "serviceimports",
	}
}

// mcsVersion returns the version of the multi-cluster Services API that is used.
func mcsVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: mcs.GroupName, Version: mcs.GroupVersion.Version}
}

// New makes the clients of an API. It does not connect.
func New(config *rest.Config, pace Pace, agent string) (*API, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = pace.QPS, pace.Burst, agent
	config.WarningHandler = rest.NoWarnings{} // it would warn that Endpoints are deprecated
	// EndpointSlices are many, and half as large in protobuf.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme, mcs.Install} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	kube, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	a := &API{Config: config, Kube: kube, resources: Kinds(), Scheme: scheme, groups: map[schema.GroupVersion]rest.Interface{
		corev1.SchemeGroupVersion:      kube.CoreV1().RESTClient(),
		discoveryv1.SchemeGroupVersion: kube.DiscoveryV1().RESTClient(),
	}}
	for _, gv := range []schema.GroupVersion{v1alpha1.GroupVersion(), mcsVersion()} {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath = &gv, "/apis"
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // these types have no protobuf encoding
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if a.groups[gv], err = rest.RESTClientForConfigAndClient(c, httpClient); err != nil {
			return nil, fmt.Errorf("make client of %s for %s: %w", config.Host, gv, err)
		}
	}
	return a, nil
}

// Resource returns a client of the API group that serves an object, and the name of
// its resource there.
func (a *API) Resource(obj runtime.Object) (rest.Interface, string, error) {
	known, _, err := a.Scheme.ObjectKinds(obj)
	if err != nil || len(known) == 0 {
		return nil, "", fmt.Errorf("find where %T is served: %w", obj, err)
	}
	return a.groups[known[0].GroupVersion()], a.resources[known[0]], nil
}

// inJSON reports whether objects of this type are served in JSON only.
func (a *API) inJSON(obj runtime.Object) bool {
	known, _, err := a.Scheme.ObjectKinds(obj)
	return err == nil && slices.ContainsFunc(known, func(k schema.GroupVersionKind) bool {
		return k.Group == v1alpha1.GroupName || k.Group == mcs.GroupName
	})
}

// KindOf returns an object's kind, for people and metrics.
func KindOf(obj plan.Object) string {
	switch obj.(type) {
	case *corev1.Service:
		return "Service"
	case *corev1.Namespace:
		return "Namespace"
	case *corev1.Endpoints: //nolint:staticcheck // deprecated, and written on request
		return "Endpoints"
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case *v1alpha1.PublishedService:
		return "PublishedService"
	case *v1alpha1.PublishedSlice:
		return "PublishedSlice"
	case *v1alpha1.ClusterLease:
		return "ClusterLease"
	case *mcs.ServiceExport:
		return "ServiceExport"
	case *mcs.ServiceImport:
		return "ServiceImport"
	default:
		return fmt.Sprintf("%T", obj)
	}
}
