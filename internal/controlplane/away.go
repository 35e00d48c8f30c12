package controlplane

import (
	"context"
	"errors"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// A store that knows why it does not answer says so in the message of its error,
// and in an ErrorInfo of this domain. With the reason notDone the request was not
// carried out, and never will be.
const (
	awayDomain = "etcdapi.xbernetes.io"
	notDone    = "NOT_DONE"
)

// silence is an etcd client's error, where it says that the store did not answer.
type silence struct {
	why     string
	notDone bool // the request; if false, nobody knows
}

func silenceOf(err error) (silence, bool) {
	// The client gives the messages that it knows types of its own, without details.
	if named := (rpctypes.EtcdError{}); errors.As(err, &named) {
		return silence{why: "the store did not answer in time (" + named.Error() + ")"}, named.Code() == codes.Unavailable
	}
	s, ok := grpcstatus.FromError(err)
	if err == nil || !ok {
		return silence{}, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == awayDomain {
			return silence{why: s.Message(), notDone: info.Reason == notDone}, true
		}
	}
	return silence{}, false
}

// readError is err, of a read; 503 and why, if the store did not answer.
func readError(err error) error {
	if s, ok := silenceOf(err); ok {
		return apierrors.NewServiceUnavailable(s.why)
	}
	return err
}

// writeError is err, of a write; 503 if the store did not answer and the write was
// not made, and 504, which says that nobody knows, if the store does not say so.
func writeError(err error) error {
	s, ok := silenceOf(err)
	switch {
	case !ok:
		return err
	case s.notDone:
		return apierrors.NewServiceUnavailable("nothing was changed: " + s.why)
	default:
		return apierrors.NewTimeoutError("the change may have been made, or may still be: "+s.why, 0)
	}
}

// sayAway makes every kind that these servers store tell in the API's words when
// the store is away.
func sayAway(servers ...*genericapiserver.Config) {
	for _, c := range servers {
		c.RESTOptionsGetter = awayOptions{c.RESTOptionsGetter}
	}
}

// sayAwayCustom does it for custom resources.
func sayAwayCustom(c *apiextensionsapiserver.ExtraConfig) {
	c.CRDRESTOptionsGetter = awayOptions{c.CRDRESTOptionsGetter}
}

// awayOptions puts awayStorage around the storage of every kind.
type awayOptions struct {
	genericregistry.RESTOptionsGetter
}

func (g awayOptions) GetRESTOptions(kind schema.GroupResource, example runtime.Object) (genericregistry.RESTOptions, error) {
	opts, err := g.RESTOptionsGetter.GetRESTOptions(kind, example)
	if err != nil {
		return opts, err
	}
	decorate := opts.Decorator
	opts.Decorator = func(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, resourcePrefix, keyFunc, newFunc, newListFunc, attrs, trigger, indexers)
		return awayStorage{s}, destroy, err
	}
	return opts, nil
}

// awayStorage is a storage whose errors say in the API's words that the store does
// not answer. Without it they are etcd's, and the API server makes a 500 of them.
type awayStorage struct{ storage.Interface }

func (s awayStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return writeError(s.Interface.Create(ctx, key, obj, out, ttl))
}

func (s awayStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return writeError(s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (s awayStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return writeError(s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

func (s awayStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return readError(s.Interface.Get(ctx, key, opts, out))
}

func (s awayStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return readError(s.Interface.GetList(ctx, key, opts, out))
}

// journalCheck is the name of the check that stands in for upstream's probes of etcd.
const journalCheck = "journal"

// checkStore makes readiness ask away, which knows, in place of upstream's probes,
// which ask the store and wait. Whoever may read /readyz/journal is told why.
func checkStore(c *genericapiserver.Config, away func() error) {
	check := healthz.NamedCheck(journalCheck, func(*http.Request) error { return away() })
	for _, checks := range []*[]healthz.HealthChecker{&c.HealthzChecks, &c.ReadyzChecks} {
		kept := (*checks)[:0:0]
		for _, h := range *checks {
			if h.Name() != "etcd" && h.Name() != "etcd-readiness" {
				kept = append(kept, h)
			}
		}
		*checks = append(kept, check)
	}
}
