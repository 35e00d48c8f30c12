package bucket

import (
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// Silence explains requests that a store did not answer.
type Silence struct {
	Store string // as in Names
	Kind  string // what the store is: "S3 store"
	Where string // what in the journal's URL says where the store is: "endpoint or region"
	CA    string // the environment variable that names a CA to trust
}

// Explain says in one sentence why no answer came, and what to do.
func (s Silence) Explain(err error) string {
	var (
		dns     *net.DNSError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		other   *strangerError
	)
	switch {
	case errors.As(err, &other):
		return fmt.Sprintf("%s is no %s: %s; check that the endpoint in --journal leads to the store, and that no proxy or sign-in page stands between", s.Store, s.Kind, other.what)
	case errors.Is(err, ErrTimeout):
		return fmt.Sprintf("%s did not answer within the time-out; check the network and the endpoint", s.Store)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s refuses connections; check that the store runs, and the endpoint in --journal", s.Store)
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %q of the store cannot be resolved; check the %s in --journal, and the network", dns.Name, s.Where)
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Sprintf("the certificate of %s is not trusted (%v); give its CA by %s, or correct the endpoint", s.Store, Root(err), s.CA)
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Sprintf("%s speaks http, not https; write http:// in the endpoint", s.Store)
	}
	return fmt.Sprintf("%s cannot be reached: %v; check the network and the endpoint", s.Store, Root(err))
}

// strangerError is an answer that no object store gives: something else is at
// the endpoint, or stands between. It says nothing about objects, and least of
// all that one was stored.
type strangerError struct{ what string }

func (e *strangerError) Error() string { return e.what }

// OnlyStores makes an error of a success that no object store answers with.
type OnlyStores struct {
	http.RoundTripper
	// Lacks says what a success lacks that the store always sends, such as "an
	// ETag"; "" if it lacks nothing.
	Lacks func(*http.Request, *http.Response) string
}

// RoundTrip implements http.RoundTripper.
func (t OnlyStores) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if what := t.stranger(r, resp); what != "" {
		resp.Body.Close()
		return nil, &strangerError{what}
	}
	return resp, nil
}

// stranger says what is wrong with a success, and "" if nothing is. A page with
// 200 is what proxies, captive portals and sign-in pages answer to everything.
func (t OnlyStores) stranger(r *http.Request, resp *http.Response) string {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return ""
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		return "it answers with a web page where objects should be"
	}
	if lacks := t.Lacks(r, resp); lacks != "" {
		return fmt.Sprintf("it answers %d without %s", resp.StatusCode, lacks)
	}
	return ""
}
