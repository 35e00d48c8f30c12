package transaction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/xbernetes/xbernetes/internal/controlplane/transaction/upcoming"
)

// Admission makes the admission plugins see what a transaction has staged. Outside of
// transactions it changes nothing.
type Admission struct {
	// Quota is the configuration of the plugin ResourceQuota; nil: none.
	Quota *resourcequotaapi.Configuration
	// Unlimited are the resources whose objects count for no quota.
	Unlimited map[schema.GroupResource]struct{}
	// Upcoming shows namespaces to webhooks and policies.
	Upcoming *upcoming.Namespaces
}

var _ admission.Decorator = Admission{}

// Decorate implements admission.Decorator.
func (d Admission) Decorate(plugin admission.Interface, name string) admission.Interface {
	p := staged{plugin}
	switch name {
	case lifecycle.PluginName:
		return stagedNamespaces{p}
	case resourcequota.PluginName:
		return stagedQuota{p, d}
	}
	if upcoming.Selects(name) {
		return stagedSelection{p, d.Upcoming}
	}
	return p
}

// staged is a plugin that is told of a dry run. The requests of a transaction that is
// one are none to the API server, because each must see what the ones before it did.
type staged struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (p staged) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m, ok := p.Interface.(admission.MutationInterface); ok {
		return m.Admit(ctx, told(ctx, a), o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p staged) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if v, ok := p.Interface.(admission.ValidationInterface); ok {
		return v.Validate(ctx, told(ctx, a), o)
	}
	return nil
}

func told(ctx context.Context, a admission.Attributes) admission.Attributes {
	if partOf(ctx).dryRun {
		return dry{a}
	}
	return a
}

type dry struct{ admission.Attributes }

func (dry) IsDryRun() bool { return true }

// stagedNamespaces is the plugin that refuses objects in namespaces that are not there,
// or are about to go. It asks its cache, which knows nothing of what is staged.
type stagedNamespaces struct{ staged }

// Admit implements admission.MutationInterface.
func (p stagedNamespaces) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	r, name := partOf(ctx).run, a.GetNamespace()
	if r == nil || a.GetOperation() != admission.Create || !r.namespaces[name] || isNamespace(a) {
		return p.staged.Admit(ctx, a, o)
	}
	namespace, err := r.namespace(ctx, name)
	if err != nil {
		return err
	}
	if namespace.Status.Phase == corev1.NamespaceTerminating || namespace.DeletionTimestamp != nil {
		return admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	}
	return nil
}

func isNamespace(a admission.Attributes) bool {
	return a.GetKind().GroupKind() == schema.GroupKind{Kind: "Namespace"}
}

// stagedSelection is a plugin that looks at the namespaces of objects. It asks its cache and
// the store, which know nothing of what is staged. So it is shown the namespace, if the
// transaction is about that, for as long as it judges an operation.
type stagedSelection struct {
	staged
	upcoming *upcoming.Namespaces
}

// Admit implements admission.MutationInterface.
func (p stagedSelection) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	hide, err := p.show(ctx, a)
	if err != nil {
		return err
	}
	defer hide()
	return p.staged.Admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (p stagedSelection) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	hide, err := p.show(ctx, a)
	if err != nil {
		return err
	}
	defer hide()
	return p.staged.Validate(ctx, a, o)
}

// show shows the namespace of an operation's object, until hide is called.
func (p stagedSelection) show(ctx context.Context, a admission.Attributes) (hide func(), err error) {
	r := partOf(ctx).run
	if r == nil || !r.namespaces[a.GetNamespace()] {
		return func() {}, nil
	}
	namespace, err := r.namespace(ctx, a.GetNamespace())
	if apierrors.IsNotFound(err) { // it is not created yet: the plugin will not find it either
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	return p.upcoming.Show(namespace), nil
}

// stagedQuota is the plugin that reserves quota. For a transaction it stages what is
// reserved, so that it is committed with the objects, or never.
type stagedQuota struct {
	staged
	Admission Admission
}

// Validate implements admission.ValidationInterface.
func (p stagedQuota) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	part := partOf(ctx)
	if part.run == nil {
		return p.staged.Validate(ctx, a, o)
	}
	if part.own || a.GetNamespace() == "" || isNamespace(a) {
		return nil
	}
	known, err := part.run.quotasIn(a.GetNamespace())
	if err != nil {
		return err
	}
	if len(known) == 0 && (p.Admission.Quota == nil || len(p.Admission.Quota.LimitedResources) == 0) {
		return nil
	}
	over := make(chan struct{})
	defer close(over)
	return resourcequota.NewQuotaEvaluator(quotas{ctx, part.run, known}, p.Admission.Unlimited, generic.NewRegistry(nil),
		nil, p.Admission.Quota, 1, over).Evaluate(a)
}

// quotas are the quotas as a transaction sees them.
type quotas struct {
	ctx   context.Context
	run   *run
	known map[string]bool // the names of those that there may be
}

var _ resourcequota.QuotaAccessor = quotas{}

// GetQuotas implements resourcequota.QuotaAccessor.
func (q quotas) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	var all []corev1.ResourceQuota
	for name := range q.known {
		var one corev1.ResourceQuota
		err := q.run.own(q.ctx, http.MethodGet, resourceQuotas, namespace, name, "", nil, &one)
		if apierrors.IsNotFound(err) {
			continue // deleted meanwhile, or by the transaction
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// UpdateQuotaStatus implements resourcequota.QuotaAccessor.
func (q quotas) UpdateQuotaStatus(changed *corev1.ResourceQuota) error {
	changed = changed.DeepCopy()
	changed.APIVersion, changed.Kind = "v1", "ResourceQuota"
	body, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	return q.run.own(q.ctx, http.MethodPut, resourceQuotas, changed.Namespace, changed.Name, "status", body, &corev1.ResourceQuota{})
}

var (
	namespaces     = resource{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, false}
	resourceQuotas = resource{schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, true}
)

// own sends a request of the API server's own as part of the transaction, and reads the
// answer into out.
func (r *run) own(ctx context.Context, method string, where resource, namespace, name, subresource string, body []byte, out any) error {
	self := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	c := call{method: method, path: pathOf(where, namespace, name, subresource), contentType: runtime.ContentTypeJSON, body: body}
	a := r.inside.send(ctx, self, part{origin: r.origin, run: r, own: true}, 0, c)
	if !a.ok() {
		return &apierrors.StatusError{ErrStatus: statusOf(a)}
	}
	return utiljson.Unmarshal(a.body.Bytes(), out)
}

// namespace returns a namespace as the transaction sees it.
func (r *run) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := new(corev1.Namespace)
	return namespace, r.own(ctx, http.MethodGet, namespaces, "", name, "", nil, namespace)
}

// quotasIn returns the names of the quotas that may be in a namespace.
func (r *run) quotasIn(namespace string) (map[string]bool, error) {
	names := map[string]bool{}
	for _, st := range r.steps { // the cache does not know yet what is staged
		if st.kind.GroupKind() == (schema.GroupKind{Kind: "ResourceQuota"}) && st.namespace == namespace && st.name != "" {
			names[st.name] = true
		}
	}
	listed, err := r.bound.Quotas.ResourceQuotas(namespace).List(labels.Everything())
	for _, q := range listed {
		names[q.Name] = true
	}
	return names, err
}
