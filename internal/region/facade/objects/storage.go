package objects

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/door"
)

// changeTimeout is how long a create or delete waits for regions and other clients at most.
const changeTimeout = 25 * time.Second

// patient ends a context before the request's own does, so that the answer says what is open.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := changeTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*3/4)
	}
	return context.WithTimeout(ctx, wait)
}

// bounds are what all kinds share.
type bounds struct{ lists, watches *door.Shares }

// storage serves the objects of one kind. It implements what the generic server asks for.
type storage struct {
	kind
	regions *client.Regions
	bounds  bounds
}

// as returns the regions, asked as whoever makes the request.
func (s *storage) as(ctx context.Context) *client.Regions {
	return s.regions.As(callerOf(ctx).Token, nil)
}

func (s *storage) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupName, Resource: s.resource}
}

// New implements rest.Storage.
func (s *storage) New() runtime.Object { return s.object() }

// NewList implements rest.Lister.
func (s *storage) NewList() runtime.Object { return s.list() }

// Destroy implements rest.Storage.
func (*storage) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*storage) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (s *storage) GetSingularName() string { return s.singular }

// Get implements rest.Getter. It asks one active region.
func (s *storage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	found, err := s.as(ctx).Get(ctx, s.kind.kind, s.owned(name))
	if err != nil {
		return nil, s.problem(name, err)
	}
	return s.make(found), nil
}

// List implements rest.Lister. One active region is asked, which has the names of all.
func (s *storage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	all, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	selects := selectorOf(options)
	for _, o := range all {
		if made := s.make(o); selects(made) {
			objects = append(objects, made)
		}
	}
	list := s.list()
	if err := meta.SetList(list, objects); err != nil {
		return nil, err
	}
	list.(metav1.ListInterface).SetResourceVersion(versionOfAll(all).String())
	return list, nil
}

// names returns all names of the kind, if not too many lists are being read.
func (s *storage) names(ctx context.Context) ([]client.Owned, error) {
	address := callerOf(ctx).Address
	if !s.bounds.lists.Enter(address) {
		return nil, apierrors.NewTooManyRequests("too many lists are being read, in all or for this caller: try again in a second", 1)
	}
	defer s.bounds.lists.Leave(address)
	all, err := s.as(ctx).List(ctx, s.kind.kind)
	if err != nil {
		return nil, s.problem("", err)
	}
	return all, nil
}

// selectorOf returns what tells which objects are asked for. Objects have no labels.
func selectorOf(options *internalversion.ListOptions) func(object) bool {
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	return func(o object) bool {
		return byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(fields.Set{"metadata.name": o.GetName()})
	}
}

// Create implements rest.Creater.
func (s *storage) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	name := o.(object).GetName()
	want, err := s.wants(o)
	if err != nil {
		return nil, s.invalid(name, err)
	}
	if want.region == "" {
		return nil, s.invalid(name, errNoRegion)
	}
	in, err := s.as(ctx).In(want.region)
	if err != nil {
		return nil, s.invalid(name, err)
	}
	if validate != nil {
		if err := validate(ctx, o); err != nil {
			return nil, err
		}
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	created, err := in.Create(ctx, s.kind.kind, want.name, client.Options{
		Spec: want.spec, Operation: o.(object).GetAnnotations()[annotationOperation], DryRun: len(options.DryRun) > 0,
	})
	if err != nil {
		return nil, s.problem(name, err)
	}
	return s.make(created), nil
}

// Delete implements rest.GracefulDeleter. It asks in the home of the name, or in another
// region if the home does not answer.
func (s *storage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	as := s.as(ctx)
	found, err := as.Get(ctx, s.kind.kind, s.owned(name))
	if err != nil {
		return nil, false, s.problem(name, err)
	}
	there := s.make(found)
	if err := s.hold(options.Preconditions, there); err != nil {
		return nil, false, err
	}
	if validate != nil {
		if err := validate(ctx, there); err != nil {
			return nil, false, err
		}
	}
	in, err := as.Near(ctx, found.Region)
	if err == nil {
		_, err = in.Delete(ctx, s.kind.kind, found.Name, client.Options{DryRun: len(options.DryRun) > 0})
	}
	if err != nil {
		return nil, false, s.problem(name, err)
	}
	return there, true, nil
}

// hold returns an error unless the preconditions of a delete hold.
func (s *storage) hold(p *metav1.Preconditions, there object) error {
	if p != nil && p.UID != nil && *p.UID != there.GetUID() || p != nil && p.ResourceVersion != nil && *p.ResourceVersion != there.GetResourceVersion() {
		return apierrors.NewConflict(s.groupResource(), there.GetName(), errPrecondition)
	}
	return nil
}

// ConvertToTable implements rest.TableConvertor.
func (s *storage) ConvertToTable(_ context.Context, o, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	for _, name := range append(append([]string{"Name"}, s.columns...), "State") {
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if name == "Name" {
			column.Format = "name"
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	if list, ok := o.(metav1.ListInterface); ok {
		table.ResourceVersion = list.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(o, func(o runtime.Object, m metav1.Object, name, _ string) ([]any, error) {
		return append(append([]any{name}, s.cells(o.(object))...), stateOf(m)), nil
	})
	return table, err
}

func stateOf(o metav1.Object) string {
	switch a := o.GetAnnotations(); {
	case a[annotationProblem] != "":
		return "Unreadable"
	case a[annotationState] != "":
		return a[annotationState]
	}
	return "Ready"
}
