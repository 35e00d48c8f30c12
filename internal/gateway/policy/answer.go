package policy

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/core"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// statusOfError is the error of a refused create as Kubernetes' clients know it: in
// the words of Kubernetes itself, if it has any for that.
func statusOfError(err error, a quota.Request) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		// The core server's own refusal is passed on, but for those that concern the
		// gateway's user and not the caller.
		if s := status.Status(); s.Code < 500 && s.Code != http.StatusForbidden && s.Code != http.StatusUnauthorized && s.Code != http.StatusConflict {
			return err
		}
	}
	gr := schema.ParseGroupResource(a.Resource)
	var over *quota.Exceeded
	switch {
	case errors.As(err, &over):
		what := core.CountPrefix + a.Resource
		return apierrors.NewForbidden(gr, "", fmt.Errorf("exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%d",
			over.Quota, what, what, over.Used, what, over.Hard))
	case errors.Is(err, namespaces.ErrMissing):
		missing := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.Namespace)
		missing.ErrStatus.Message += " at the gateway's core server, whose namespaces count for this server too; create it there"
		return missing
	case errors.Is(err, namespaces.ErrTerminating):
		forbidden := apierrors.NewForbidden(gr, "", fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
		forbidden.ErrStatus.Details.Causes = append(forbidden.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
			Field:   "metadata.namespace",
		})
		return forbidden
	case errors.Is(err, quota.ErrBusy), errors.Is(err, ledger.ErrCrowded), errors.Is(err, ledger.ErrShare):
		return apierrors.NewTooManyRequests(fmt.Sprintf("%v in namespace %s: nothing was created at server %s; try again", err, a.Namespace, a.Server), 1)
	default:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot reserve a %s in namespace %s: %v; nothing was created at server %s; try again",
			a.Resource, a.Namespace, err, a.Server))
	}
}

// answers writes errors as Kubernetes does, in the encoding that the caller accepts.
type answers struct{ codecs serializer.CodecFactory }

func newAnswers() *answers {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &answers{serializer.NewCodecFactory(scheme)}
}

func (a *answers) write(err error, w http.ResponseWriter, r *http.Request) {
	gv := schema.GroupVersion{Version: "v1"}
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, a.codecs, gv, w, r)
}
