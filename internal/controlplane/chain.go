package controlplane

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	upstream "k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
)

const (
	// serverName is what the API server calls itself in its logs and identity leases.
	serverName = "xbernetes"
	// stopGrace bounds how long a stop waits for open connections.
	stopGrace = 2 * time.Second
	// policyHook is the name of our post-start hook for RBAC.
	policyHook = "xbernetes/bootstrap-rbac"
)

// chain is the API server, made and not yet running.
type chain struct {
	server   *aggregatorapiserver.APIAggregator
	loopback *rest.Config
}

// newChain makes the API server: custom resources, behind the built-in kinds,
// behind the aggregator. It opens the store's clients, and so needs the store.
func newChain(p parts, log *slog.Logger) (*chain, error) {
	kinds := upstream.DefaultGenericAPIResourceConfigSource()
	kinds.EnableVersions(storagemigrationv1.SchemeGroupVersion) // upstream provides it, and leaves it off
	generic, informers, storage, err := apiserver.BuildGenericConfig(p.opts,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		kinds, servedDefinitions, nil)
	if err != nil {
		return nil, fmt.Errorf("configure API server: %w", err)
	}
	adjust(generic, p.id)
	if p.away != nil {
		checkStore(generic, p.away)
	}

	client, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("make loopback client: %w", err)
	}
	p.tokens.live.Store(client)

	resolver := webhook.NewDefaultServiceResolver()
	native, initializers, err := apiserver.CreateConfig(p.opts, generic, informers, nil, storage, resolver, nil)
	if err != nil {
		return nil, fmt.Errorf("configure built-in kinds: %w", err)
	}
	authInfo := webhook.NewDefaultAuthenticationInfoResolverWrapper(native.ProxyTransport, generic.EgressSelector, generic.LoopbackClientConfig, generic.TracerProvider)
	masters := 1
	if !p.alone {
		masters = 2 // a CRD is given five seconds to reach the other servers
	}
	extensions, err := apiserver.CreateAPIExtensionsConfig(*generic, informers, initializers, p.opts, masters, resolver, authInfo)
	if err != nil {
		return nil, fmt.Errorf("configure custom resources: %w", err)
	}
	servers := &addresses{}
	aggregator, err := apiserver.CreateAggregatorConfig(*generic, p.opts, informers, servers, native.ProxyTransport, native.PeerProxy, initializers)
	if err != nil {
		return nil, fmt.Errorf("configure aggregator: %w", err)
	}
	sayAway(native.Generic, &extensions.GenericConfig.Config, &aggregator.GenericConfig.Config)
	sayAwayCustom(&extensions.ExtraConfig)
	aggregator.ExtraConfig.DisableRemoteAvailableConditionController = true // it needs Services and Endpoints; see aggregation

	limit(&aggregator.GenericConfig.Config, p.watches)

	server, err := link(extensions, native, aggregator, client, log)
	if err != nil {
		return nil, err
	}
	registered := server.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister()
	servers.live.Store(&registered)
	return &chain{server: server, loopback: generic.LoopbackClientConfig}, nil
}

// adjust changes what upstream derives from the host, or decides for a server
// that has its store next door.
func adjust(c *genericapiserver.Config, id *identity) {
	// Upstream hashes the host name. Two accounts may have hosts of one name.
	c.APIServerID = "apiserver-" + id.id
	c.EffectiveVersion = released(c.EffectiveVersion)
	// Without its store a server is not ready, yet restarting it would not help.
	c.LivezChecks = slices.DeleteFunc(c.LivezChecks, func(h healthz.HealthChecker) bool { return h.Name() == "etcd" })
	c.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName)
}

// link makes the three servers from their configurations, each the delegate of
// the next.
func link(extensions *apiextensionsapiserver.Config, native *apiserver.Config, aggregator *aggregatorapiserver.Config,
	client kubernetes.Interface, log *slog.Logger,
) (*aggregatorapiserver.APIAggregator, error) {
	notFound := notfoundhandler.New(native.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensionsServer, err := extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("make server for custom resources: %w", err)
	}

	nativeConfig := native.Complete()
	nativeServer, err := nativeConfig.New(serverName, extensionsServer.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("make server for built-in kinds: %w", err)
	}
	providers, err := nativeConfig.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("make storage of built-in kinds: %w", err)
	}
	if err := nativeServer.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("install built-in kinds: %w", err)
	}
	if err := nativeServer.GenericAPIServer.AddPostStartHook(policyHook, func(ctx genericapiserver.PostStartHookContext) error {
		// Nil when the server stops before it is done: a hook's error would end the process.
		if err := ensurePolicy(ctx, client, log); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("add hook %s: %w", policyHook, err)
	}

	const crdsServed = true // so that every CRD gets its APIServices
	server, err := apiserver.CreateAggregatorServer(aggregator.Complete(), nativeServer.GenericAPIServer,
		extensionsServer.Informers.Apiextensions().V1().CustomResourceDefinitions(), crdsServed,
		apiserver.DefaultGenericAPIServicePriorities())
	if err != nil {
		return nil, fmt.Errorf("make aggregator: %w", err)
	}
	server.GenericAPIServer.ShutdownTimeout = stopGrace
	return server, nil
}

// advertisedIP is an address for the records of the API server; nothing connects to it.
func advertisedIP(listen net.Addr) net.IP {
	if tcp, ok := listen.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		return tcp.IP
	}
	for _, s := range interfaceIPs() {
		return net.ParseIP(s)
	}
	return net.IPv4(127, 0, 0, 1)
}
