package objects

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	clientrest "k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/door"
)

const (
	lists   = 8   // that are read at once; each can take some hundred megabytes
	watches = 100 // that are open at once
	// shortestWatch is the least time in seconds after which a watch ends of itself; at
	// most twice as long.
	shortestWatch = 300
)

// Caller is who makes a request.
type Caller struct {
	Token   string
	Address string // whose limits the request counts against
}

type callerKey struct{}

// WithCaller returns a context of a request of a caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns who makes a request. A context without a caller has no token, so that
// regions refuse it.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Serves says whether a path is one that this package answers.
func Serves(path string) bool {
	return slices.Contains([]string{"/api", "/apis", "/version", "/openapi/v2", "/openapi/v3"}, path) ||
		strings.HasPrefix(path, "/apis/") || strings.HasPrefix(path, "/openapi/v3/")
}

// New returns what serves the group region.xbernetes.io over the regions. Requests must have
// a Caller, and Kubernetes' RequestInfo.
func New(regions *client.Regions) (http.Handler, error) {
	clients, err := clientScheme()
	if err != nil {
		return nil, err
	}
	scheme, err := hub()
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericserver.NewConfig(codecs)
	config.Serializer = text{codecs}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.LoopbackClientConfig = &clientrest.Config{} // nothing here calls the server itself
	config.ExternalAddress = "localhost:443"
	config.EnableIndex, config.EnableProfiling, config.EnableMetrics = false, false, false
	config.MinRequestTimeout = shortestWatch
	config.BuildHandlerChainFunc = func(h http.Handler, c *genericserver.Config) http.Handler {
		return filters.WithRequestDeadline(h, nil, nil, c.LongRunningFunc, c.Serializer, c.RequestTimeout) // ?timeout=
	}
	definitions, err := newDefinitions()
	if err != nil {
		return nil, err
	}
	namer := openapinamer.NewDefinitionNamer(clients)
	config.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions.all, namer)
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions.all, namer)
	config.OpenAPIConfig.Info.Title, config.OpenAPIV3Config.Info.Title = "xbernetes regions", "xbernetes regions"
	server, err := config.Complete(nil).New("regions", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the server of %s: %w", v1alpha1.GroupName, err)
	}
	group := genericserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.NegotiatedSerializer = text{codecs}
	bounds := bounds{door.NewShares(lists), door.NewShares(watches)}
	served := map[string]rest.Storage{}
	for _, k := range kinds() {
		served[k.resource] = &storage{k, regions, bounds}
	}
	group.VersionedResourcesStorageMap[v1alpha1.GroupVersion().Version] = served
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("serve %s: %w", v1alpha1.GroupName, err)
	}
	server.PrepareRun() // it installs OpenAPI
	return server.Handler, nil
}

// text serves JSON and YAML. The kinds have no protobuf form, so a client that takes several
// forms must not be given that one.
type text struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (t text) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(t.CodecFactory.SupportedMediaTypes()), func(i runtime.SerializerInfo) bool { return !i.EncodesAsText })
}

// clientScheme returns a scheme that knows the group as clients do.
func clientScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme, v1alpha1.AddToScheme(scheme)
}

// hub returns a scheme for the server's side. There is one version, so that nothing is
// converted between it and the server's own.
func hub() (*runtime.Scheme, error) {
	scheme, err := clientScheme()
	if err != nil {
		return nil, err
	}
	internal := schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}
	for _, k := range kinds() {
		scheme.AddKnownTypes(internal, k.object(), k.list())
	}
	return scheme, nil
}
