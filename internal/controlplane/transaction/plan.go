package transaction

import (
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// plan finds out what each operation would be as a plain request. Its errors are the
// API's, and name the operation.
func (s *Server) plan(operations []v1alpha1.Operation) ([]step, error) {
	steps := make([]step, len(operations))
	for i, o := range operations {
		about, err := subjectOf(o)
		if err != nil {
			return nil, at(i, step{Operation: o}, apierrors.NewBadRequest(err.Error()).Status())
		}
		steps[i] = step{Operation: o, subject: about}
	}
	defined := definitionsIn(steps)
	for i := range steps {
		st := &steps[i]
		if crd, ok := defined[st.kind.GroupKind()]; ok {
			return nil, at(i, *st, apierrors.NewBadRequest(fmt.Sprintf(
				"the CustomResourceDefinition %s is part of the same transaction: objects of a kind can be changed only once its definition is served", crd)).Status())
		}
		where, err := s.find(st.kind)
		if err != nil {
			return nil, at(i, *st, apierrors.NewBadRequest(err.Error()).Status())
		}
		if st.call, err = callOf(st.Operation, st.subject, where); err != nil {
			return nil, at(i, *st, apierrors.NewBadRequest(err.Error()).Status())
		}
	}
	return steps, nil
}

// find returns where a kind is served.
func (s *Server) find(kind schema.GroupVersionKind) (resource, error) {
	if kind.Group == v1alpha1.GroupName {
		return resource{}, fmt.Errorf("a transaction cannot be part of another")
	}
	if s.bound.Elsewhere(kind.GroupVersion()) {
		return resource{}, fmt.Errorf("%s is served by another API server, whose store is not this one's: its objects cannot be part of a transaction", kind.GroupVersion())
	}
	where, err := s.kinds.find(kind)
	if meta.IsNoMatchError(err) {
		return resource{}, fmt.Errorf("no kind %s is served in %s", kind.Kind, kind.GroupVersion())
	}
	if err != nil {
		return resource{}, fmt.Errorf("find where %s is served: %w", kind, err)
	}
	return where, nil
}

// kinds finds where kinds are served: those that users defined by their definitions,
// which discovery follows some time later, and the others by discovery.
type kinds struct {
	definitions crdlisters.CustomResourceDefinitionLister
	mapper      meta.ResettableRESTMapper

	mu    sync.Mutex
	asked time.Time // when discovery was last asked anew
}

// anew is how often discovery is asked anew for kinds that it did not know: that costs
// the whole of it.
const anew = time.Second

func (k *kinds) find(kind schema.GroupVersionKind) (resource, error) {
	if defined, ok, err := k.defined(kind); ok || err != nil {
		return defined, err
	}
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) && k.again() {
		mapping, err = k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return resource{}, err
	}
	return resource{mapping.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// again makes the next question go to discovery, and says whether it does.
func (k *kinds) again() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.asked) < anew {
		return false
	}
	k.asked = time.Now()
	k.mapper.Reset()
	return true
}

// defined looks a kind up among the definitions.
func (k *kinds) defined(kind schema.GroupVersionKind) (_ resource, ok bool, err error) {
	all, err := k.definitions.List(labels.Everything())
	if err != nil {
		return resource{}, false, err
	}
	for _, d := range all {
		if d.Spec.Group != kind.Group || d.Status.AcceptedNames.Kind != kind.Kind {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Name == kind.Version && v.Served {
				return resource{kind.GroupVersion().WithResource(d.Status.AcceptedNames.Plural), d.Spec.Scope == apiextensionsv1.NamespaceScoped}, true, nil
			}
		}
	}
	return resource{}, false, nil
}

// definitionsIn returns the kinds that the steps define, with the names of their
// definitions.
func definitionsIn(steps []step) map[schema.GroupKind]string {
	defined := map[schema.GroupKind]string{}
	for _, st := range steps {
		if st.kind.GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) || st.Object == nil {
			continue
		}
		var crd struct {
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
			} `json:"spec"`
		}
		if utiljson.Unmarshal(st.Object.Raw, &crd) == nil { // what cannot be read is refused when it is carried out
			defined[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = st.name
		}
	}
	return defined
}

// namespacesOf returns the names of the namespaces that steps are about.
func namespacesOf(steps []step) map[string]bool {
	names := map[string]bool{}
	for _, st := range steps {
		if st.kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
			names[st.name] = true
		}
	}
	return names
}

// at returns the error of the operation with that index: its own Status, which says
// also where it comes from.
func at(index int, st step, status metav1.Status) error {
	field := fmt.Sprintf("spec.operations[%d]", index)
	what := string(st.Verb)
	if st.kind.Kind != "" {
		what = st.String()
	}
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: "TransactionOperation", Field: field, Message: status.Message})
	status.Message = fmt.Sprintf("nothing was changed: %s (%s): %s", field, what, status.Message)
	status.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: status}
}
