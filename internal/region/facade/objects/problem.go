package objects

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

var (
	errNoRegion     = errors.New("spec.region must name the region that is to be its home")
	errPrecondition = errors.New("it is not the one that the preconditions ask for")
)

// invalid is the error for an object that cannot be.
func (s *storage) invalid(name string, err error) error {
	status := s.status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, name, err)
	// kubectl shows the causes of this reason, and not the message.
	status.ErrStatus.Details.Kind = string(s.kind.kind)
	status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: status.ErrStatus.Message}}
	return status
}

// problem is an error of the library as kubectl expects it, with the library's own words.
func (s *storage) problem(name string, err error) error {
	if errors.Is(err, client.ErrInvalid) {
		return s.invalid(name, err)
	}
	for _, known := range []struct {
		is     error
		code   int32
		reason metav1.StatusReason
	}{
		{client.ErrOpen, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		{client.ErrRemoved, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		{client.ErrTaken, http.StatusConflict, metav1.StatusReasonAlreadyExists},
		{client.ErrAbsent, http.StatusNotFound, metav1.StatusReasonNotFound},
		{client.ErrInUse, http.StatusConflict, metav1.StatusReasonConflict},
		{client.ErrContended, http.StatusConflict, metav1.StatusReasonConflict},
		{client.ErrExpired, http.StatusGone, metav1.StatusReasonGone},
		{client.ErrAway, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
		{client.ErrNotMember, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	} {
		if errors.Is(err, known.is) {
			return s.status(known.code, known.reason, name, err)
		}
	}
	var said apierrors.APIStatus // a region's own
	if errors.As(err, &said) {
		switch code := said.Status().Code; code {
		case http.StatusUnauthorized:
			return s.status(code, metav1.StatusReasonUnauthorized, name, err)
		case http.StatusForbidden:
			return s.status(code, metav1.StatusReasonForbidden, name, err)
		}
		return s.status(http.StatusBadGateway, metav1.StatusReasonUnknown, name, err)
	}
	return s.status(http.StatusInternalServerError, metav1.StatusReasonInternalError, name, err)
}

// status keeps of an error as much as a message should hold: regions have a say in it.
func (s *storage) status(code int32, reason metav1.StatusReason, name string, err error) *apierrors.StatusError {
	const most = 1024
	message := err.Error()
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Group: v1alpha1.GroupName, Kind: s.resource, Name: name},
	}}
}
