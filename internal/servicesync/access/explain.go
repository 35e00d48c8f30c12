package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain returns a sentence that says what an API's error means and what to do about it;
// who names the API. It returns "" for errors that are part of normal work: a cancelled
// context, or a watch that has expired.
func Explain(err error, who string) string {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		address   *url.Error
		operation *net.OpError
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return ""
	case errors.Is(err, ErrNoServices):
		return fmt.Sprintf("%s has no Services to sync: its API is not that of a Kubernetes cluster; name the kubeconfig of a cluster (an API without Services can be the --store)", who)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%s refuses the credentials: they have expired or were never valid; renew its kubeconfig", who)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s denies a right: %s; grant it (deploy/servicesync has the roles)", who, message(err))
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s does not serve %s: start xb servicesync there, or upgrade it", who, groupOf(err))
	case apierrors.IsBadRequest(err) && strings.Contains(message(err), "strict decoding error"):
		return fmt.Sprintf("%s has other CustomResourceDefinitions than this xb: %s; apply those of this version of xb (deploy/servicesync/crds.yaml)", who, message(err))
	case errors.As(err, &authority), errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Sprintf("%s shows a certificate that its kubeconfig does not trust: %s; correct certificate-authority-data or server there", who, oneLine(err))
	case errors.As(err, &operation) && operation.Op == "remote error":
		return fmt.Sprintf("%s refuses the client certificate: %s; renew its kubeconfig", who, oneLine(operation))
	case errors.As(err, &operation):
		return fmt.Sprintf("%s cannot be reached: %s; it is tried again", who, oneLine(operation))
	case errors.As(err, &address):
		return fmt.Sprintf("%s cannot be reached: %s; it is tried again", who, oneLine(address.Err))
	case apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return fmt.Sprintf("%s is not well: %s; it is tried again", who, oneLine(err))
	default:
		return fmt.Sprintf("%s cannot be read: %s; it is tried again", who, oneLine(err))
	}
}

// message returns the server's own message, without the words that clients add.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if m := status.Status().Message; m != "" {
			return m
		}
	}
	return oneLine(err)
}

// groupOf returns the API group that a server said it does not serve.
func groupOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if d := status.Status().Details; d != nil && d.Group != "" {
			return d.Group
		}
	}
	return "what is asked of it"
}

// oneLine returns the first line of an error, cut to fit into a sentence.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const enough = 240
	if len(line) > enough {
		line = strings.ToValidUTF8(line[:enough], "") + "…"
	}
	return line
}

// ErrNoServices means that an API is not a cluster's; it may be a store's.
var ErrNoServices = errors.New("no Services are served")
