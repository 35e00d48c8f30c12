package servicesync

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
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// fieldManager is the name that all writes carry.
const fieldManager = "xb-servicesync"

// Pace is how fast a client may ask. client-go's own default would take hours
// for a large cluster; the API server has its own fairness.
type Pace struct {
	QPS   float32
	Burst int
}

// api is one Kubernetes API: the own cluster's, the store's, or a peer's.
type api struct {
	config *rest.Config
	kube   *kubernetes.Clientset
	groups map[schema.GroupVersion]rest.Interface
	// resources is where each type of object is served.
	resources map[schema.GroupVersionKind]string
	scheme    *runtime.Scheme
}

// kinds are the objects that are read or written.
func kinds() map[schema.GroupVersionKind]string {
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

// mcsVersion is the version of the multi-cluster Services API that is used.
func mcsVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: mcs.GroupName, Version: mcs.GroupVersion.Version}
}

// newAPI makes clients of an API; it does not connect.
func newAPI(config *rest.Config, pace Pace, agent string) (*api, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = pace.QPS, pace.Burst, agent
	config.WarningHandler = rest.NoWarnings{} // that Endpoints are deprecated is known
	// Slices are many, and half as large.
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
	a := &api{config: config, kube: kube, resources: kinds(), scheme: scheme, groups: map[schema.GroupVersion]rest.Interface{
		corev1.SchemeGroupVersion:      kube.CoreV1().RESTClient(),
		discoveryv1.SchemeGroupVersion: kube.DiscoveryV1().RESTClient(),
	}}
	for _, gv := range []schema.GroupVersion{v1alpha1.GroupVersion(), mcsVersion()} {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath = &gv, "/apis"
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // there is no protobuf of these
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if a.groups[gv], err = rest.RESTClientForConfigAndClient(c, httpClient); err != nil {
			return nil, fmt.Errorf("make client of %s for %s: %w", config.Host, gv, err)
		}
	}
	return a, nil
}

// place is where an object is served.
func (a *api) place(obj runtime.Object) (rest.Interface, string, error) {
	known, _, err := a.scheme.ObjectKinds(obj)
	if err != nil || len(known) == 0 {
		return nil, "", fmt.Errorf("find where %T is served: %w", obj, err)
	}
	return a.groups[known[0].GroupVersion()], a.resources[known[0]], nil
}

// inJSON reports whether objects like this one are served in nothing but JSON.
func (a *api) inJSON(obj runtime.Object) bool {
	known, _, err := a.scheme.ObjectKinds(obj)
	return err == nil && slices.ContainsFunc(known, func(k schema.GroupVersionKind) bool {
		return k.Group == v1alpha1.GroupName || k.Group == mcs.GroupName
	})
}

// kindOf is what people call an object's kind.
func kindOf(obj model.Object) string {
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
