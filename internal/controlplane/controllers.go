package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	k8sscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	namespacecontroller "k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/storageversionmigrator"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/features"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	// discoveryPeriod is how often the garbage collector and the quota controller
	// look for new kinds. Discovery never leaves the process.
	discoveryPeriod = 5 * time.Second
	// quotaPeriod is how often every quota is counted again.
	quotaPeriod = 15 * time.Second
	// csrDuration is the longest life of a certificate signed for a CSR.
	csrDuration = 365 * 24 * time.Hour
)

// controllers are the controllers of kube-controller-manager that need no
// nodes, wired as in k8s.io/kubernetes/cmd/kube-controller-manager/app. They act
// through the loopback connection, as the API server itself.
type controllers struct {
	config *rest.Config
	id     *identity
	roster *roster
	log    *slog.Logger
}

// term is what the controllers share for as long as this server leads.
type term struct {
	*controllers
	client    *kubernetes.Clientset
	metadata  metadata.Interface
	typed     informers.SharedInformerFactory
	partial   metadataFactory
	mapper    meta.ResettableRESTMapper
	graph     *garbagecollector.GraphBuilder
	informing chan struct{} // closed once the informers are started

	wg sync.WaitGroup
}

// lead runs all controllers until ctx ends and they are down.
func (c *controllers) lead(ctx context.Context) error {
	t, err := c.newTerm(ctx)
	if err != nil {
		return err
	}
	// All are wired before the first informer starts.
	var runs []func(context.Context)
	for _, wire := range []func(context.Context) (func(context.Context), error){
		t.namespaces, t.garbage, t.quota, t.serviceAccounts, t.clusterRoles,
		t.policyStatus, t.certificates, t.storageVersions, t.publish, t.aggregation,
	} {
		run, err := wire(ctx)
		if err != nil {
			return fmt.Errorf("wire controllers: %w", err)
		}
		runs = append(runs, run)
	}
	t.typed.Start(ctx.Done())
	t.partial.Start(ctx.Done())
	close(t.informing)
	for _, run := range runs {
		t.wg.Go(func() { run(ctx) })
	}
	t.wg.Wait()
	t.typed.Shutdown()
	t.partial.Shutdown()
	return nil
}

func (c *controllers) newTerm(ctx context.Context) (*term, error) {
	t := &term{controllers: c, informing: make(chan struct{})}
	var err error
	if t.client, err = kubernetes.NewForConfig(c.as("controllers")); err != nil {
		return nil, err
	}
	if t.metadata, err = metadata.NewForConfig(c.as("metadata-informers")); err != nil {
		return nil, err
	}
	t.typed = informers.NewSharedInformerFactoryWithOptions(t.client, 0, informers.WithTransform(trim))
	t.partial = metadataFactory{metadatainformer.NewSharedInformerFactoryWithOptions(t.metadata, 0, metadatainformer.WithTransform(trim))}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(t.client.Discovery()))
	t.mapper = mapper
	t.graph = garbagecollector.NewDependencyGraphBuilder(ctx, t.metadata, t.mapper,
		garbagecollector.DefaultIgnoredResources(), t.partial, t.informing)
	return t, nil
}

// as names a controller in its requests. There is no client-side rate limit: the
// number of workers is the limit.
func (c *controllers) as(name string) *rest.Config {
	cfg := rest.AddUserAgent(rest.CopyConfig(c.config), name)
	cfg.QPS = -1
	return cfg
}

// trim drops what no controller reads, before it is cached.
func trim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// metadataFactory gives the garbage collector and the quota controller informers
// of metadata alone, for built-in kinds too: all that they read, at a fraction of
// the memory.
type metadataFactory struct {
	metadatainformer.SharedInformerFactory
}

func (f metadataFactory) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	i := f.SharedInformerFactory.ForResource(r)
	// An informer outlives its kind, and looks for it ever more rarely: nothing to
	// report. The error is that the informer runs already, with this handler.
	_ = i.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	return i, nil
}

func (t *term) namespaces(ctx context.Context) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(t.as("namespace-controller"))
	if err != nil {
		return nil, err
	}
	ctrl := namespacecontroller.NewNamespaceController(ctx, client, t.metadata,
		t.discoverNamespaced(client.Discovery()),
		t.typed.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { ctrl.Run(ctx, 10) }, nil
}

func (t *term) garbage(ctx context.Context) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(t.as("generic-garbage-collector"))
	if err != nil {
		return nil, err
	}
	gc, err := garbagecollector.NewComposedGarbageCollector(ctx, client, t.metadata, t.mapper, t.graph)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		t.wg.Go(func() { gc.Sync(ctx, client.Discovery(), discoveryPeriod) })
		gc.Run(ctx, 20, 30*time.Second)
	}, nil
}

func (t *term) quota(ctx context.Context) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(t.as("resourcequota-controller"))
	if err != nil {
		return nil, err
	}
	discover := t.discoverNamespaced(client.Discovery())
	ignored := quotainstall.DefaultIgnoredResources()
	ctrl, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:           client.CoreV1(),
		ResourceQuotaInformer: t.typed.Core().V1().ResourceQuotas(),
		// A quota may be made before the kind that it counts is known here. Counting
		// again is done from memory, and writes only what differs.
		ResyncPeriod:              func() time.Duration { return quotaPeriod },
		InformerFactory:           t.partial,
		ReplenishmentResyncPeriod: func() time.Duration { return 12 * time.Hour },
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      generic.NewConfiguration(nil, ignored).IgnoredResources,
		InformersStarted:          t.informing,
		Registry:                  generic.NewRegistry(t.evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		t.wg.Go(func() { ctrl.Sync(ctx, discover, discoveryPeriod) })
		ctrl.Run(ctx, 5)
	}, nil
}

// plainlyCounted are the kinds served here that a quota may name without count/.
// The admission plugin, upstream's own, expects a count of them by that name too.
var plainlyCounted = []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceSecrets}

// evaluators count the kinds whose plain names are limited as well. Upstream's
// others are about pods, services and claims; each kind that has none here gets
// one from the controller, which counts objects.
func (t *term) evaluators() []quota.Evaluator {
	list := generic.ListerFuncForResourceFunc(t.partial.ForResource)
	var all []quota.Evaluator
	for _, name := range plainlyCounted {
		kind := corev1.SchemeGroupVersion.WithResource(string(name))
		all = append(all, generic.NewObjectCountEvaluator(kind.GroupResource(), generic.ListResourceUsingListerFunc(list, kind), name))
	}
	return all
}

func (t *term) serviceAccounts(ctx context.Context) (func(context.Context), error) {
	ctrl, err := serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx),
		t.typed.Core().V1().ServiceAccounts(), t.typed.Core().V1().Namespaces(), t.client,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { ctrl.Run(ctx, 2) }, nil
}

func (t *term) clusterRoles(context.Context) (func(context.Context), error) {
	ctrl := clusterroleaggregation.NewClusterRoleAggregation(t.typed.Rbac().V1().ClusterRoles(), t.client.RbacV1())
	return func(ctx context.Context) { ctrl.Run(ctx, 5) }, nil
}

func (t *term) policyStatus(context.Context) (func(context.Context), error) {
	definitions := resolver.NewDefinitionsSchemaResolver(servedDefinitions, k8sscheme.Scheme, apiextensionsscheme.Scheme)
	ctrl, err := validatingadmissionpolicystatus.NewController(
		t.typed.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		t.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&validatingadmissionpolicy.TypeChecker{
			SchemaResolver: definitions.Combine(&resolver.ClientDiscoveryResolver{Discovery: t.client.Discovery()}),
			RestMapper:     t.mapper,
		})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { ctrl.Run(ctx, 2) }, nil
}

// certificates approves what kube-controller-manager approves, and signs for
// client certificates with this server's CA, which all servers accept.
func (t *term) certificates(ctx context.Context) (func(context.Context), error) {
	csrs := t.typed.Certificates().V1().CertificateSigningRequests()
	approve := approver.NewCSRApprovingController(ctx, t.client, csrs)
	sign, err := signer.NewKubeAPIServerClientCSRSigningController(ctx, t.client, csrs,
		t.id.path("ca.crt"), t.id.path("ca.key"), csrDuration)
	if err != nil {
		return nil, err
	}
	clean := cleaner.NewCSRCleanerController(t.client.CertificatesV1().CertificateSigningRequests(), csrs)
	return func(ctx context.Context) {
		t.wg.Go(func() { approve.Run(ctx, 1) })
		t.wg.Go(func() { sign.Run(ctx, 1) })
		clean.Run(ctx, 1)
	}, nil
}

func (t *term) storageVersions(ctx context.Context) (func(context.Context), error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.StorageVersionMigrator) {
		return func(context.Context) {}, nil
	}
	const name = "storage-version-migrator-controller"
	cfg := t.as(name)
	crds, err := apiextensionsclientset.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	migrations := t.typed.Storagemigration().V1().StorageVersionMigrations()
	migrate := storageversionmigrator.NewSVMController(ctx, t.client, dyn, migrations, name, t.mapper, t.graph)
	revisions := storageversionmigrator.NewResourceVersionController(ctx, t.client, disco, t.metadata, migrations, t.mapper)
	custom := storageversionmigrator.NewCustomResourceController(ctx, t.client, migrations, crds.ApiextensionsV1().CustomResourceDefinitions())
	return func(ctx context.Context) {
		t.wg.Go(func() { revisions.Run(ctx) })
		t.wg.Go(func() { custom.Run(ctx) })
		migrate.Run(ctx)
	}, nil
}

// publish keeps kube-root-ca.crt in every namespace, and fills token secrets.
// Both carry the bundle of all servers' CAs, so both start anew when it changes.
func (t *term) publish(context.Context) (func(context.Context), error) {
	// Their informers have to exist before the factory starts.
	t.typed.Core().V1().ConfigMaps().Informer()
	t.typed.Core().V1().Secrets().Informer()
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			trust, changed := t.roster.current()
			until, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := t.publishBundle(until, trust.bundle); err != nil {
					t.log.Error("cannot publish the CA bundle", "error", err)
				}
			}()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			cancel()
			<-done
		}
	}, nil
}

func (t *term) publishBundle(ctx context.Context, bundle []byte) error {
	core := t.typed.Core().V1()
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), t.client, bundle)
	if err != nil {
		return fmt.Errorf("make root CA publisher: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(t.id.serviceAccountKey)
	if err != nil {
		return fmt.Errorf("parse service-account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("make token generator: %w", err)
	}
	tokens, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), t.client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: bundle})
	if err != nil {
		return fmt.Errorf("make token controller: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { publisher.Run(ctx, 2) })
	wg.Go(func() { tokens.Run(ctx, 2) })
	wg.Wait()
	return nil
}
