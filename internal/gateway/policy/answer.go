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
)

// statusOfError is the error as clients of Kubernetes know it: the same words
// that the core server has for it, where it has some.
func statusOfError(err error, a ask) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		// The core server's own no; but a refusal of the gateway's own user is not
		// the caller's.
		if s := status.Status(); s.Code < 500 && s.Code != http.StatusForbidden && s.Code != http.StatusUnauthorized && s.Code != http.StatusConflict {
			return err
		}
	}
	gr := groupResource(a.Resource)
	var over *exceeded
	switch {
	case errors.As(err, &over):
		what := countPrefix + a.Resource
		return apierrors.NewForbidden(gr, "", fmt.Errorf("exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%d",
			over.Quota, what, what, over.Used, what, over.Hard))
	case errors.Is(err, errNoNamespace):
		missing := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.Namespace)
		missing.ErrStatus.Message += " at the gateway's core server, whose namespaces count for this server too; create it there"
		return missing
	case errors.Is(err, errTerminating):
		forbidden := apierrors.NewForbidden(gr, "", fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
		forbidden.ErrStatus.Details.Causes = append(forbidden.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
			Field:   "metadata.namespace",
		})
		return forbidden
	case errors.Is(err, errBusy), errors.Is(err, errCrowded), errors.Is(err, errShare):
		return apierrors.NewTooManyRequests(fmt.Sprintf("%v in namespace %s: nothing was created at server %s; try again", err, a.Namespace, a.Server.Name), 1)
	default:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot reserve a %s in namespace %s: %v; nothing was created at server %s; try again",
			a.Resource, a.Namespace, err, a.Server.Name))
	}
}

// answers writes errors as Kubernetes does, in whatever encoding is asked for.
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
