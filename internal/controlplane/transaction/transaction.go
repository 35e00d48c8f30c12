// Package transaction serves the group transaction.xbernetes.io: it carries out several
// requests on the API server that it is part of, and has the store commit them together
// or not at all. It never decides what a request may do: each passes the handlers and
// the admission that it would pass if it were sent alone.
package transaction

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// attempts is how often a transaction is carried out while other clients change what it
// reads.
const attempts = 10

// Server carries out transactions. Before Bind it serves none.
type Server struct {
	store  stage.Store
	memory *memory
	bound  Bound
	kinds  *kinds
	inside inside
}

// Bound is what a Server needs of the API server that it is part of.
type Bound struct {
	// Definitions are those of the kinds that users defined.
	Definitions crdlisters.CustomResourceDefinitionLister
	// Mapper finds where other kinds are served.
	Mapper meta.ResettableRESTMapper
	// Elsewhere says whether another server serves a group's version.
	Elsewhere func(schema.GroupVersion) bool
	// Quotas tells which quotas there are.
	Quotas corelisters.ResourceQuotaLister
}

// New returns a Server whose transactions are committed to store, which lease belongs to.
func New(store stage.Store, lease clientv3.Lease) *Server {
	return &Server{store: store, memory: &memory{lease: lease}}
}

// Bind makes s serve as a part of server, which has the given configuration and does
// not run yet.
func (s *Server) Bind(server *genericapiserver.GenericAPIServer, config genericapiserver.Config, b Bound) {
	s.bound, s.kinds, s.inside = b, &kinds{definitions: b.Definitions, mapper: b.Mapper}, inside{chainOf(server, config)}
}

// step is an operation, ready to be carried out.
type step struct {
	v1alpha1.Operation
	subject
	call
}

// String names the step in messages.
func (s step) String() string {
	name := s.name
	if s.namespace != "" {
		name = s.namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %q", s.Verb, s.kind.Kind, name)
}

// order is a transaction as it was asked for.
type order struct {
	user       user.Info
	origin     origin
	id         string // audit ID
	key        string // the idempotency key; empty: none
	operations []v1alpha1.Operation
	steps      []step
	namespaces map[string]bool // those that a step is about
	dryRun     bool
}

// create carries out t.
func (s *Server) create(ctx context.Context, t *v1alpha1.Transaction, dryRun bool) (v1alpha1.TransactionStatus, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return v1alpha1.TransactionStatus{}, apierrors.NewInternalError(errors.New("the request has no user"))
	}
	if n := len(t.Spec.Operations); n == 0 || n > v1alpha1.MaxOperations {
		return v1alpha1.TransactionStatus{}, apierrors.NewBadRequest(fmt.Sprintf("the transaction has %d operations; it may have 1 to %d", n, v1alpha1.MaxOperations))
	}
	if n := len(t.Spec.IdempotencyKey); n > v1alpha1.MaxIdempotencyKey {
		return v1alpha1.TransactionStatus{}, apierrors.NewBadRequest(fmt.Sprintf("the idempotency key has %d bytes; it may have %d", n, v1alpha1.MaxIdempotencyKey))
	}
	o := order{user: u, id: audit.GetAuditIDTruncated(ctx), key: t.Spec.IdempotencyKey, operations: t.Spec.Operations, dryRun: dryRun}
	o.origin, _ = ctx.Value(originKey{}).(origin)
	var err error
	if o.steps, err = s.plan(t.Spec.Operations); err != nil {
		return v1alpha1.TransactionStatus{}, err
	}
	o.namespaces = namespacesOf(o.steps)
	return s.carryOut(ctx, o)
}

// carryOut carries out o, again if other clients changed what it read meanwhile.
func (s *Server) carryOut(ctx context.Context, o order) (v1alpha1.TransactionStatus, error) {
	for n := range attempts {
		r := &run{Server: s, order: o, txn: stage.New(s.store)}
		status, err := r.attempt(ctx)
		if !errors.Is(err, errAgain) {
			return status, err
		}
		select {
		case <-time.After(rand.N(time.Duration(n+1) * 5 * time.Millisecond)):
		case <-ctx.Done():
			return v1alpha1.TransactionStatus{}, apierrors.NewTimeoutError("nothing was changed: other clients changed the same objects until the time was over", 0)
		}
	}
	return v1alpha1.TransactionStatus{}, apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("transactions").GroupResource(), "",
		fmt.Errorf("nothing was changed: in each of %d attempts other clients changed the same objects; try again", attempts))
}

// REST is the resource transactions, which can be created only.
type REST struct{ *Server }

var (
	_ rest.Creater              = REST{}
	_ rest.Scoper               = REST{}
	_ rest.SingularNameProvider = REST{}
)

// New implements rest.Storage.
func (REST) New() runtime.Object { return &v1alpha1.Transaction{} }

// Destroy implements rest.Storage.
func (REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (REST) GetSingularName() string { return "transaction" }

// Create implements rest.Creater.
func (r REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	t, ok := obj.(*v1alpha1.Transaction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Transaction: %T", obj))
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	status, err := r.create(ctx, t, len(options.DryRun) > 0)
	if err != nil {
		return nil, err
	}
	out := t.DeepCopy()
	out.ManagedFields, out.Status = nil, status
	return out, nil
}

// transactionsPath is where transactions are posted.
var transactionsPath = "/apis/" + v1alpha1.GroupVersion().String() + "/transactions"

// failed is the answer to a request that could not be made.
func failed(err error) *answer {
	a := &answer{header: http.Header{}, code: http.StatusInternalServerError}
	a.body.WriteString(err.Error())
	return a
}
