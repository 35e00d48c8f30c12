// Package storage makes the storage of each kind: etcd3's store over a client that
// its caller opens, and the watch cache before it. It knows no API server.
//
// Upstream's own decorators open their clients by address, and hide the store
// behind the cache. A request that is part of a transaction must not ask the cache.
package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	genericregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// Opener opens what each kind is stored by. Its methods are safe for concurrent use.
type Opener struct {
	// Client opens a client of the store. It is called once for each kind, and once
	// for the compactor. Who calls it closes the client.
	Client func() (*clientv3.Client, error)
	// Store is where transactions are written.
	Store stage.Store

	once      sync.Once
	err       error            // of the compactor's start
	client    *clientv3.Client // the compactor's
	compactor interface {
		etcd3.Compactor
		Stop()
	} // nil: the API server compacts nothing
}

// Close stops the compactor. The storage of the kinds is closed by those who
// opened it.
func (o *Opener) Close() error {
	o.once.Do(func() { o.err = errors.New("closed") }) // none starts later
	if o.compactor != nil {
		o.compactor.Stop()
	}
	if o.client != nil {
		return o.client.Close()
	}
	return nil
}

// Options returns g with storage that o opens.
func (o *Opener) Options(g genericregistry.RESTOptionsGetter) genericregistry.RESTOptionsGetter {
	return options{g, o}
}

type options struct {
	genericregistry.RESTOptionsGetter
	opener *Opener
}

func (g options) GetRESTOptions(kind schema.GroupResource, example runtime.Object) (genericregistry.RESTOptions, error) {
	opts, err := g.RESTOptionsGetter.GetRESTOptions(kind, example)
	opts.Decorator = g.opener.open
	return opts, err
}

// uncached are the kinds that upstream keeps no watch cache for.
var uncached = map[schema.GroupResource]bool{{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true}

// open is a genericregistry.StorageDecorator.
func (o *Opener) open(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	store, closeStore, err := o.store(config, resourcePrefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, fmt.Errorf("open the storage of %s: %w", config.GroupResource, err)
	}
	if uncached[config.GroupResource] {
		return &staged{Interface: store, store: store, opener: o}, closeStore, nil
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             store,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attrs,
		IndexerFuncs:        trigger,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		closeStore()
		return nil, nil, fmt.Errorf("make the watch cache of %s: %w", config.GroupResource, err)
	}
	cached := cacher.NewCacheDelegator(c, store)
	return &staged{Interface: cached, store: store, opener: o}, sync.OnceFunc(func() {
		cached.Stop()
		c.Stop()
		closeStore()
	}), nil
}

// store opens the store of a kind, without a cache.
func (o *Opener) store(config *storagebackend.ConfigForResource, resourcePrefix string, newFunc, newListFunc func() runtime.Object) (storage.Interface, func(), error) {
	compactor, err := o.compact(config.CompactionInterval)
	if err != nil {
		return nil, nil, err
	}
	plain, err := o.Client()
	if err != nil {
		return nil, nil, err
	}
	plain.KV = etcd3.NewETCDLatencyTracker(plain.KV)
	client := &etcdkubernetes.Client{Client: plain}
	client.Kubernetes = stage.Client{Interface: client}

	transformer, versioner := config.Transformer, storage.APIObjectVersioner{}
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	forced := feature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
	if forced {
		transformer = etcd3.WithCorruptObjErrorHandlingTransformer(transformer)
		decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	store, err := etcd3.New(client, compactor, config.Codec, newFunc, newListFunc, config.Prefix, resourcePrefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, errors.Join(err, plain.Close())
	}
	closeStore := sync.OnceFunc(func() { // subresources share a store, and each of them closes it
		store.Close()
		_ = plain.Close() // nothing is lost
	})
	if forced {
		return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(store, config.GroupResource), closeStore, nil
	}
	return store, closeStore, nil
}

// compact starts the compactor once.
func (o *Opener) compact(every time.Duration) (etcd3.Compactor, error) {
	if every == 0 {
		return nil, nil
	}
	o.once.Do(func() {
		if o.client, o.err = o.Client(); o.err == nil {
			o.compactor = etcd3.StartCompactorPerEndpoint(o.client, every)
		}
	})
	return o.compactor, o.err
}

// staged is the storage of a kind. A request that is part of a transaction goes to
// the store itself: the cache knows nothing of what is staged.
type staged struct {
	storage.Interface // for everybody else
	store             storage.Interface
	opener            *Opener
	whole             atomic.Int64 // a revision that is known to be in the middle of no transaction
}

func (s *staged) of(ctx context.Context) storage.Interface {
	if stage.From(ctx) != nil {
		return s.store
	}
	return s.Interface
}

// told says in the API's words what a transaction does not take.
func told(err error) error {
	switch {
	case errors.Is(err, stage.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, stage.ErrExpires):
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

func (s *staged) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return told(s.of(ctx).Create(ctx, key, obj, out, ttl))
}

func (s *staged) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if stage.From(ctx) != nil {
		cached = nil
	}
	return told(s.of(ctx).Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (s *staged) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if stage.From(ctx) != nil {
		cached = nil
	}
	return told(s.of(ctx).GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

func (s *staged) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return told(s.of(ctx).Get(ctx, key, opts, out))
}

var errNoLists = apierrors.NewBadRequest("a transaction can neither list nor watch")

// GetList never shows a part of a transaction: if the watch cache is just taking in the
// events of one, the list comes from the store, which has all of them.
func (s *staged) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if stage.From(ctx) != nil {
		return errNoLists
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.Predicate.Continue != "" {
		return err
	}
	middle, err := s.middle(ctx, list)
	if err != nil || !middle { // a store that does not answer keeps nobody from the cache
		return nil
	}
	if err := meta.SetList(list, nil); err != nil {
		return err
	}
	return s.store.GetList(ctx, key, opts, list)
}

// middle says whether a list is as of the middle of a transaction.
func (s *staged) middle(ctx context.Context, list runtime.Object) (bool, error) {
	head, err := meta.ListAccessor(list)
	if err != nil {
		return false, err
	}
	revision, err := strconv.ParseInt(head.GetResourceVersion(), 10, 64)
	if err != nil || revision == s.whole.Load() {
		return false, err
	}
	middle, err := s.opener.Store.Middle(ctx, revision)
	if err == nil && !middle {
		s.whole.Store(revision)
	}
	return middle, err
}

func (s *staged) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if stage.From(ctx) != nil {
		return nil, errNoLists
	}
	return s.Interface.Watch(ctx, key, opts)
}
