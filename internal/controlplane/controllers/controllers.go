// Package controllers runs the controllers of kube-controller-manager that need no
// nodes, wired as in k8s.io/kubernetes/cmd/kube-controller-manager/app. They act
// through the loopback connection, as the API server itself, and never touch the
// store.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	openapi "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/xbernetes/xbernetes/internal/controlplane/aggregation"
	"github.com/xbernetes/xbernetes/internal/controlplane/election"
	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
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

// A Set is all the controllers of one server.
type Set struct {
	// Loopback is the configuration of an all-powerful client of this server.
	Loopback *rest.Config
	// Identity signs certificates and tokens.
	Identity *identity.Identity
	// Roster has the CAs of all servers, which are published in every namespace.
	Roster *roster.Roster
	// Definitions are the OpenAPI definitions of the kinds that are served.
	Definitions openapi.GetOpenAPIDefinitions
	Log         *slog.Logger
}

// Run stands for election, and runs the controllers whenever this server leads,
// until ctx ends.
func (c *Set) Run(ctx context.Context, pace election.Pace) error {
	client, err := kubernetes.NewForConfig(c.as("leader-election"))
	if err != nil {
		return fmt.Errorf("make leader election client: %w", err)
	}
	return election.Candidate{Client: client, ID: c.Identity.ID, Pace: pace, Log: c.Log}.Run(ctx, c.lead)
}

// A term is what the controllers share for as long as this server leads.
type term struct {
	*Set
	client    *kubernetes.Clientset
	metadata  metadata.Interface
	typed     informers.SharedInformerFactory
	partial   metadataFactory
	mapper    meta.ResettableRESTMapper
	graph     *garbagecollector.GraphBuilder
	monitor   *aggregation.Monitor
	informing chan struct{} // closed once the informers are started

	wg sync.WaitGroup // of everything that runs
}

// lead runs all controllers until ctx ends and they are down.
func (c *Set) lead(ctx context.Context) error {
	t, err := c.newTerm(ctx)
	if err != nil {
		return err
	}
	// All are wired before the first informer starts.
	var runs []func(context.Context)
	for _, wire := range []func(context.Context) (func(context.Context), error){
		t.namespaces, t.garbage, t.quota, t.serviceAccounts, t.clusterRoles,
		t.policyStatus, t.certificates, t.storageVersions, t.publish, t.availability,
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

func (c *Set) newTerm(ctx context.Context) (*term, error) {
	t := &term{Set: c, informing: make(chan struct{})}
	var err error
	if t.client, err = kubernetes.NewForConfig(c.as("controllers")); err != nil {
		return nil, err
	}
	if t.metadata, err = metadata.NewForConfig(c.as("metadata-informers")); err != nil {
		return nil, err
	}
	if t.monitor, err = aggregation.NewMonitor(c.as("apiservice-availability"), c.Identity.FrontProxy, c.Log); err != nil {
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
func (c *Set) as(name string) *rest.Config {
	cfg := rest.AddUserAgent(rest.CopyConfig(c.Loopback), name)
	cfg.QPS = -1
	return cfg
}

// trim drops managed fields before an object is cached, because no controller
// reads them.
func trim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// metadataFactory gives the garbage collector and the quota controller informers
// of metadata alone, for built-in kinds too. They read nothing else, and it takes a
// fraction of the memory.
type metadataFactory struct {
	metadatainformer.SharedInformerFactory
}

func (f metadataFactory) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	i := f.SharedInformerFactory.ForResource(r)
	// An informer outlives its kind, and looks for it more and more rarely. That need
	// not be reported. The error says that the informer runs already, with this handler.
	_ = i.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	return i, nil
}
