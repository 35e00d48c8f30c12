package controlplane

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/group"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericregistry "k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	clientgoinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	openapi "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	upstream "k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/controlplane/aggregation"
	"github.com/xbernetes/xbernetes/internal/controlplane/away"
	"github.com/xbernetes/xbernetes/internal/controlplane/bootstrap"
	"github.com/xbernetes/xbernetes/internal/controlplane/clientcert"
	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
	"github.com/xbernetes/xbernetes/internal/controlplane/transaction"
)

const (
	// serverName is what the API server calls itself in its logs and identity leases.
	serverName = "xbernetes"
	// stopGrace bounds how long a stop waits for open connections.
	stopGrace = 2 * time.Second
	// policyHook is the name of this project's post-start hook for RBAC.
	policyHook = "xbernetes/bootstrap-rbac"
)

// chain is an API server that does not run yet.
type chain struct {
	server   *aggregatorapiserver.APIAggregator
	loopback *rest.Config
}

// newChain makes the API server: custom resources, behind the built-in kinds,
// behind the aggregator. It opens the store's clients, and so needs the store.
func newChain(cfg Config, p parts) (*chain, error) {
	kinds := upstream.DefaultGenericAPIResourceConfigSource()
	kinds.EnableVersions(storagemigrationv1.SchemeGroupVersion) // upstream has it, and leaves it off
	changes, err := newTransactionGroup(p.transactions)
	if err != nil {
		return nil, err
	}
	generic, informers, storage, err := apiserver.BuildGenericConfig(p.opts,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme, changes.scheme},
		kinds, changes.definitions, nil)
	if err != nil {
		return nil, fmt.Errorf("configure API server: %w", err)
	}
	adjust(generic, p.id)
	auth := &generic.Authentication
	// Upstream adds the group of all who are known within its own authenticators.
	auth.Authenticator = group.NewAuthenticatedGroupAdder(
		clientcert.New(auth.Authenticator, clientCAs{p.roster}, auth.RequestHeaderConfig.CAContentProvider))
	if generic.AuditPolicyRuleEvaluator != nil {
		generic.AuditPolicyRuleEvaluator = transaction.Discreet{PolicyRuleEvaluator: generic.AuditPolicyRuleEvaluator}
	}
	if cfg.Etcd.Away != nil {
		away.Check(generic, cfg.Etcd.Away)
	}
	client, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("make loopback client: %w", err)
	}
	p.tokens.live.Store(client)

	servers := &aggregation.Resolver{}
	l, err := configure(p.opts, generic, informers, storage, servers, p.upcoming.Initializer(informers), cfg.Alone)
	if err != nil {
		return nil, err
	}
	// Configuring sets upstream's.
	metrics.SetStorageMonitorGetter(func() ([]metrics.Monitor, error) { return []metrics.Monitor{sizeOf{p.etcd}}, nil })
	for _, getter := range []*genericregistry.RESTOptionsGetter{
		&l.native.Generic.RESTOptionsGetter, &l.extensions.GenericConfig.RESTOptionsGetter,
		&l.extensions.ExtraConfig.CRDRESTOptionsGetter, &l.aggregator.GenericConfig.RESTOptionsGetter,
	} {
		*getter = away.Options(p.storage.Options(*getter))
	}
	limit(&l.aggregator.GenericConfig.Config, cfg.Options.MaxWatches)
	server, definitions, err := l.link(client, changes.info, cfg.Logger)
	if err != nil {
		return nil, err
	}
	apiServices := server.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister()
	servers.Bind(apiServices)
	p.transactions.Bind(server.GenericAPIServer, l.aggregator.GenericConfig.Config, transaction.Bound{
		Definitions: definitions,
		Mapper:      restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		Elsewhere:   func(gv schema.GroupVersion) bool { return servedElsewhere(apiServices, gv) },
		Quotas:      informers.Core().V1().ResourceQuotas().Lister(),
	})
	return &chain{server: server, loopback: generic.LoopbackClientConfig}, nil
}

// links are the configurations of the three servers of the chain.
type links struct {
	extensions *apiextensionsapiserver.Config
	native     *apiserver.Config
	aggregator *aggregatorapiserver.Config
}

// configure makes the configurations from the one that all three share.
func configure(opts options.CompletedOptions, generic *genericapiserver.Config, informers clientgoinformers.SharedInformerFactory,
	storage *serverstorage.DefaultStorageFactory, servers *aggregation.Resolver, namespaces admission.PluginInitializer, alone bool,
) (links, error) {
	var l links
	resolver := webhook.NewDefaultServiceResolver()
	native, initializers, err := apiserver.CreateConfig(opts, generic, informers, nil, storage, resolver, []admission.PluginInitializer{namespaces})
	if err != nil {
		return l, fmt.Errorf("configure built-in kinds: %w", err)
	}
	initializers = append(initializers, namespaces)
	l.native = native
	authInfo := webhook.NewDefaultAuthenticationInfoResolverWrapper(native.ProxyTransport, generic.EgressSelector, generic.LoopbackClientConfig, generic.TracerProvider)
	masters := 1
	if !alone {
		masters = 2 // a CRD is given five seconds to reach the other servers
	}
	if l.extensions, err = apiserver.CreateAPIExtensionsConfig(*generic, informers, initializers, opts, masters, resolver, authInfo); err != nil {
		return l, fmt.Errorf("configure custom resources: %w", err)
	}
	if l.aggregator, err = apiserver.CreateAggregatorConfig(*generic, opts, informers, servers, native.ProxyTransport, native.PeerProxy, initializers); err != nil {
		return l, fmt.Errorf("configure aggregator: %w", err)
	}
	l.aggregator.ExtraConfig.DisableRemoteAvailableConditionController = true // it needs Services and Endpoints; see package aggregation
	return l, nil
}

// adjust changes settings that upstream derives from the host, or that it chose
// for a server whose store is near.
func adjust(c *genericapiserver.Config, id *identity.Identity) {
	// Upstream hashes the host name. Two accounts may have hosts of one name.
	c.APIServerID = "apiserver-" + id.ID
	c.EffectiveVersion = released(c.EffectiveVersion)
	// Without its store a server is not ready, but restarting it would not help.
	c.LivezChecks = slices.DeleteFunc(c.LivezChecks, func(h healthz.HealthChecker) bool { return h.Name() == "etcd" })
	c.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName)
}

// link makes the three servers from their configurations, each the delegate of
// the next.
func (l links) link(client kubernetes.Interface, transactions genericapiserver.APIGroupInfo, log *slog.Logger) (*aggregatorapiserver.APIAggregator, crdlisters.CustomResourceDefinitionLister, error) {
	notFound := notfoundhandler.New(l.native.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := l.extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, nil, fmt.Errorf("make server for custom resources: %w", err)
	}
	native, err := l.serveNative(extensions.GenericAPIServer, client, transactions, log)
	if err != nil {
		return nil, nil, err
	}
	priorities := apiserver.DefaultGenericAPIServicePriorities()
	priorities[v1alpha1.GroupVersion()] = apiserver.APIServicePriority{Group: 16000, Version: 1}
	definitions := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	const crdsServed = true // so that every CRD gets its APIServices
	server, err := apiserver.CreateAggregatorServer(l.aggregator.Complete(), native,
		definitions, crdsServed, priorities)
	if err != nil {
		return nil, nil, fmt.Errorf("make aggregator: %w", err)
	}
	server.GenericAPIServer.ShutdownTimeout = stopGrace
	return server, definitions.Lister(), nil
}

// serveNative makes the server of the built-in kinds, which creates the RBAC roles once it
// runs.
func (l links) serveNative(delegate genericapiserver.DelegationTarget, client kubernetes.Interface,
	transactions genericapiserver.APIGroupInfo, log *slog.Logger,
) (*genericapiserver.GenericAPIServer, error) {
	config := l.native.Complete()
	native, err := config.New(serverName, delegate)
	if err != nil {
		return nil, fmt.Errorf("make server for built-in kinds: %w", err)
	}
	providers, err := config.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("make storage of built-in kinds: %w", err)
	}
	if err := native.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("install built-in kinds: %w", err)
	}
	if err := native.GenericAPIServer.InstallAPIGroup(&transactions); err != nil {
		return nil, fmt.Errorf("install transactions: %w", err)
	}
	if err := native.GenericAPIServer.AddPostStartHook(policyHook, func(ctx genericapiserver.PostStartHookContext) error {
		// Nil when the server stops before the roles are there: a hook's error would end the process.
		if err := bootstrap.Ensure(ctx, client, defaultPolicy(), log); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("add hook %s: %w", policyHook, err)
	}
	return native.GenericAPIServer, nil
}

// defaultPolicy returns Kubernetes' default roles and bindings.
func defaultPolicy() bootstrap.Policy {
	return bootstrap.Policy{
		ClusterRoles:        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		ClusterRoleBindings: append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
		Roles:               slices.Concat(slices.Collect(maps.Values(bootstrappolicy.NamespaceRoles()))...),
		RoleBindings:        slices.Concat(slices.Collect(maps.Values(bootstrappolicy.NamespaceRoleBindings()))...),
	}
}

// advertisedIP returns the address for the API server's own records. Nothing connects to it.
func advertisedIP(listen net.Addr) net.IP {
	if tcp, ok := listen.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		return tcp.IP
	}
	for _, s := range identity.InterfaceIPs() {
		return net.ParseIP(s)
	}
	return net.IPv4(127, 0, 0, 1)
}

// transactionGroup holds what the API server needs to serve transactions.
type transactionGroup struct {
	scheme      *runtime.Scheme
	definitions openapi.GetOpenAPIDefinitions // of all kinds
	info        genericapiserver.APIGroupInfo
}

func newTransactionGroup(s *transaction.Server) (transactionGroup, error) {
	scheme, err := transaction.Scheme()
	if err != nil {
		return transactionGroup{}, fmt.Errorf("make the scheme of transactions: %w", err)
	}
	definitions, err := transaction.Definitions()
	if err != nil {
		return transactionGroup{}, err
	}
	info, err := s.Group()
	return transactionGroup{scheme, definitionsWith(definitions), info}, err
}

// servedElsewhere says whether an APIService leads to another server.
func servedElsewhere(services aggregatorlisters.APIServiceLister, gv schema.GroupVersion) bool {
	service, err := services.Get(gv.Version + "." + gv.Group)
	return err == nil && service.Spec.Service != nil
}
