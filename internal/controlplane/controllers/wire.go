package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	k8sscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
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
)

// availability keeps the condition Available of APIServices.
func (t *term) availability(context.Context) (func(context.Context), error) {
	return t.monitor.Run, nil
}

func (t *term) namespaces(ctx context.Context) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(t.as("namespace-controller"))
	if err != nil {
		return nil, err
	}
	ctrl := namespacecontroller.NewNamespaceController(ctx, client, t.metadata,
		t.monitor.Namespaced(client.Discovery()),
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
	discover := t.monitor.Namespaced(client.Discovery())
	ignored := quotainstall.DefaultIgnoredResources()
	ctrl, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:           client.CoreV1(),
		ResourceQuotaInformer: t.typed.Core().V1().ResourceQuotas(),
		// A quota may be made before the kind that it counts is known here. Counting
		// again reads from memory, and writes only quotas that differ.
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
// Upstream's admission plugin expects a count of them by that name too.
var plainlyCounted = []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceSecrets}

// evaluators count the plainly counted kinds. Upstream's other evaluators are about
// pods, services and claims. For every other kind the controller makes an evaluator
// that counts objects.
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
	definitions := resolver.NewDefinitionsSchemaResolver(t.Definitions, k8sscheme.Scheme, apiextensionsscheme.Scheme)
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

// certificates approves the requests that kube-controller-manager approves, and
// signs client certificates with this server's CA, which all servers accept.
func (t *term) certificates(ctx context.Context) (func(context.Context), error) {
	csrs := t.typed.Certificates().V1().CertificateSigningRequests()
	approve := approver.NewCSRApprovingController(ctx, t.client, csrs)
	sign, err := signer.NewKubeAPIServerClientCSRSigningController(ctx, t.client, csrs,
		t.Identity.Path("ca.crt"), t.Identity.Path("ca.key"), csrDuration)
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
