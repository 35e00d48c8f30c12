// Package away makes the API server answer with the API's own errors if its store does not
// answer. It never asks the store.
package away

import (
	"context"
	"errors"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
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

// If a store knows why it does not answer, its error says so in the message, and
// has an ErrorInfo of this domain. If the reason is notDone, the request was not
// carried out, and never will be.
const (
	domain  = "etcdapi.xbernetes.io"
	notDone = "NOT_DONE"
)

// silence is the information in an etcd client's error about a store that did not answer.
type silence struct {
	why     string
	notDone bool // the request was not carried out; if false, nobody knows
}

// silenceOf reads an error; false if the store did answer.
func silenceOf(err error) (silence, bool) {
	// The client turns errors that it knows into a type of its own, without details.
	if named := (rpctypes.EtcdError{}); errors.As(err, &named) {
		return silence{why: "the store did not answer in time (" + named.Error() + ")"}, named.Code() == codes.Unavailable
	}
	s, ok := grpcstatus.FromError(err)
	if err == nil || !ok {
		return silence{}, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == domain {
			return silence{why: s.Message(), notDone: info.Reason == notDone}, true
		}
	}
	return silence{}, false
}

// ReadError returns the error of a read: 503 with the reason, if the store did not answer.
func ReadError(err error) error {
	if s, ok := silenceOf(err); ok {
		return apierrors.NewServiceUnavailable(s.why)
	}
	return err
}

// WriteError returns the error of a write. If the store did not answer, it is 503 if the write
// was not made, and 504 if the outcome is unknown.
func WriteError(err error) error {
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

// Options returns g with storage whose errors say that the store does not answer.
func Options(g genericregistry.RESTOptionsGetter) genericregistry.RESTOptionsGetter {
	return options{g}
}

// options wraps the storage of every kind.
type options struct {
	genericregistry.RESTOptionsGetter
}

func (g options) GetRESTOptions(kind schema.GroupResource, example runtime.Object) (genericregistry.RESTOptions, error) {
	opts, err := g.RESTOptionsGetter.GetRESTOptions(kind, example)
	if err != nil {
		return opts, err
	}
	decorate := opts.Decorator
	opts.Decorator = func(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, resourcePrefix, keyFunc, newFunc, newListFunc, attrs, trigger, indexers)
		return wrapped{s}, destroy, err
	}
	return opts, nil
}

// wrapped is a storage that returns the API's errors if the store does not answer. For etcd's
// own errors the API server would answer 500.
type wrapped struct{ storage.Interface }

func (s wrapped) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return WriteError(s.Interface.Create(ctx, key, obj, out, ttl))
}

func (s wrapped) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return WriteError(s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (s wrapped) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return WriteError(s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

func (s wrapped) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return ReadError(s.Interface.Get(ctx, key, opts, out))
}

func (s wrapped) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return ReadError(s.Interface.GetList(ctx, key, opts, out))
}

// journalCheck is the name of the check that replaces upstream's probes of etcd.
const journalCheck = "journal"

// Check makes health and readiness call away, which has the answer, in place of upstream's
// probes, which ask the store and wait. /readyz/journal says why the store does not answer.
func Check(c *genericapiserver.Config, away func() error) {
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
