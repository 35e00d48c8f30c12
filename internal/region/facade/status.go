package facade

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
)

// refuse answers with a Status.
func (f *Facade) refuse(w http.ResponseWriter, r *http.Request, code int32, message string) {
	f.answers.Respond(w, r, status(code, message))
}

// status is an error with which the facade answers.
func status(code int32, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: backend.StatusReason(int(code)), Message: shorten(message),
	}}
}

// statusOf is the Status for an error of the library. Of what a region has said, it keeps
// the code and a shortened message.
func statusOf(err error) *apierrors.StatusError {
	var said apierrors.APIStatus
	switch {
	case errors.Is(err, client.ErrAbsent):
		return status(http.StatusNotFound, err.Error())
	case errors.Is(err, client.ErrAway), errors.Is(err, client.ErrNotMember):
		return status(http.StatusServiceUnavailable, err.Error())
	case errors.As(err, &said):
		if code := said.Status().Code; code >= 400 && code < 500 {
			return status(code, err.Error())
		}
		return status(http.StatusBadGateway, err.Error())
	}
	return status(http.StatusInternalServerError, err.Error())
}

// shorten keeps what regions say short enough for a message.
func shorten(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}
