package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Causes with which the gateway itself ends a request.
var (
	errNoAnswer = errors.New("no answer in time")
	errStalled  = errors.New("the answer stopped half-way")
)

// explain says in a person's words what an error of the transport means. sent says that the
// request had a connection, so that the server may have seen it. read says that the request
// only reads.
func explain(err error, endpoint string, sent, read bool, now time.Time) fault {
	if f, ok := explainTLS(err, endpoint, now); ok {
		return f
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, errNoAnswer):
		return fault{http.StatusGatewayTimeout, NoAnswer, fmt.Sprintf("took the request at %s and did not answer in time%s", endpoint, unknownOutcome(read))}
	case errors.Is(err, errStalled):
		return fault{http.StatusGatewayTimeout, Stalled, fmt.Sprintf("began to answer at %s and stopped half-way%s", endpoint, unknownOutcome(read))}
	case errors.Is(err, context.Canceled):
		return fault{499, Canceled, "was not waited for: the caller went away"}
	case errors.Is(err, context.DeadlineExceeded) && sent:
		return fault{http.StatusGatewayTimeout, NoAnswer, "did not answer before the request's deadline" + unknownOutcome(read)}
	case errors.As(err, &dns):
		return fault{http.StatusServiceUnavailable, Unreachable, fmt.Sprintf("cannot be reached: %s; correct the host in its URL", shorten(dns.Error()))}
	case !sent:
		return fault{http.StatusServiceUnavailable, Unreachable, fmt.Sprintf("cannot be reached at %s: %s", endpoint, plainly(err))}
	}
	return fault{http.StatusBadGateway, Broken, fmt.Sprintf("broke the connection at %s before it answered: %s%s", endpoint, plainly(err), unknownOutcome(read))}
}

// unknownOutcome returns the words to add if a write may have happened.
func unknownOutcome(read bool) string {
	if read {
		return ""
	}
	return "; whether it did what was asked is unknown: look before you repeat it"
}

func explainTLS(err error, endpoint string, now time.Time) (fault, bool) {
	bad := func(format string, args ...any) (fault, bool) {
		return fault{http.StatusBadGateway, BadCertificate, fmt.Sprintf("at %s ", endpoint) + fmt.Sprintf(format, args...)}, true
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var remote *net.OpError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if now.Before(invalid.Cert.NotBefore) {
			return bad("has a certificate that is valid only from %s: correct a clock", invalid.Cert.NotBefore.UTC().Format(time.RFC3339))
		}
		return bad("has a certificate that expired on %s: renew it", invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &host):
		return bad("has a certificate for another name (%s): correct the URL, or set serverName", plainly(err))
	case errors.As(err, &unknown):
		return bad("has a certificate from an authority that the gateway does not trust: put the authority's certificate into caBundle")
	case errors.As(err, &verify), errors.As(err, &invalid):
		return bad("has a certificate that the gateway does not accept: %s", plainly(err))
	case errors.As(err, &remote) && remote.Op == "remote error": // crypto/tls's word for an alert
		return bad("refused the TLS connection (%s): it may not accept the gateway's client certificate; see identity.credentials", remote.Err)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fault{http.StatusBadGateway, NotKubernetes, fmt.Sprintf("does not speak TLS at %s: correct the URL", endpoint)}, true
	}
	return fault{}, false
}

// plainly returns the text of an error's innermost cause, shortened.
func plainly(err error) string {
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it did not take a connection in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	}
	return shorten(strings.ToValidUTF8(err.Error(), "?"))
}
