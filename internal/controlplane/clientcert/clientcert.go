// Package clientcert remembers the user of a client certificate, so that the requests of a
// connection do not verify the same certificate again and again. It never accepts a certificate
// that Kubernetes' own authenticator has not verified by the present CAs.
package clientcert

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"
)

const (
	// forAtMost bounds how long a certificate counts as verified. It is short, because
	// verifying feeds the metric of certificates that are about to expire.
	forAtMost = time.Minute
	// atMost bounds how many certificates are remembered. Others are verified each time.
	atMost = 4096
)

// CAs are certificates in PEM that may change at any time. The slice returned is never
// written to.
type CAs interface{ CurrentCABundleContent() []byte }

// Authenticator answers for client certificates that were verified, and passes all other
// requests on. Its methods are safe for concurrent use.
//
// A certificate is remembered together with the intermediates that the client sent, for all
// connections: on each of them, or in the session that it resumes, TLS has proved that the
// client has the key. Certificates that were not accepted are not remembered, because strangers
// could fill the memory with them. Neither are those of a front proxy, which speaks for others.
type Authenticator struct {
	next             authenticator.Request
	clients, proxies CAs

	trust atomic.Pointer[trust] // of the CAs that were there last
}

// New returns an Authenticator in front of next, which accepts certificates signed by
// clients as the users that they name, and by proxies as front proxies.
func New(next authenticator.Request, clients, proxies CAs) *Authenticator {
	return &Authenticator{next: next, clients: clients, proxies: proxies}
}

// AuthenticateRequest implements authenticator.Request.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return a.next.AuthenticateRequest(r)
	}
	t, sent := a.current(), digest(r.TLS.PeerCertificates)
	if known, ok := t.verified.Get(sent); ok && time.Now().Before(known.(verified).until) {
		return known.(verified).response(), true, nil
	}
	v, ok := t.verify(r)
	if !ok {
		return a.next.AuthenticateRequest(r)
	}
	t.verified.Add(sent, v)
	return v.response(), true, nil
}

// current returns the trust in the present CAs. If they have changed, it is a new one, which
// remembers no certificate.
func (a *Authenticator) current() *trust {
	clients, proxies := a.clients.CurrentCABundleContent(), a.proxies.CurrentCABundleContent()
	old := a.trust.Load()
	if old != nil && bytes.Equal(old.clientCAs, clients) && bytes.Equal(old.proxyCAs, proxies) {
		return old
	}
	t := &trust{
		clientCAs: clients, clients: options(clients),
		proxyCAs: proxies, proxies: options(proxies),
		verified: lru.New(atMost),
	}
	a.trust.Store(t)
	return t
}

// trust verifies certificates by one set of CAs. It holds the certificates that it has
// verified, so that they cannot outlive it.
type trust struct {
	clientCAs, proxyCAs []byte
	// Invariant: the roots are those of clientCAs and proxyCAs.
	clients, proxies x509.VerifyOptions
	verified         *lru.Cache // of digests to verified
}

func options(cas []byte) x509.VerifyOptions {
	opts := requestx509.DefaultVerifyOptions()
	opts.Roots = x509.NewCertPool() // nil would be the CAs of the system
	opts.Roots.AppendCertsFromPEM(cas)
	return opts
}

// verified is a certificate that was accepted.
type verified struct {
	user  user.DefaultInfo
	until time.Time // by the wall clock, which certificates go by
}

// response returns a new response for each request.
func (v verified) response() *authenticator.Response {
	u := v.user
	u.Groups = append([]string(nil), v.user.Groups...)
	u.Extra = make(map[string][]string, len(v.user.Extra))
	for key, values := range v.user.Extra {
		u.Extra[key] = append([]string(nil), values...)
	}
	return &authenticator.Response{User: &u}
}

// verify returns the user of a request's certificate; false if there is none, or the
// certificate is a proxy's.
func (t *trust) verify(r *http.Request) (verified, bool) {
	certs := r.TLS.PeerCertificates
	proxies := t.proxies
	proxies.Intermediates = x509.NewCertPool()
	for _, c := range certs[1:] {
		proxies.Intermediates.AddCert(c)
	}
	if _, err := certs[0].Verify(proxies); err == nil {
		return verified{}, false
	}
	until := time.Now().Round(0).Add(forAtMost)
	accept := func(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
		resp, ok, err := requestx509.CommonNameUserConversion.User(chain)
		for _, c := range chain {
			if ok && c.NotAfter.Before(until) {
				until = c.NotAfter
			}
		}
		return resp, ok, err
	}
	clients := func() (x509.VerifyOptions, bool) { return t.clients, true }
	resp, ok, err := requestx509.NewDynamic(clients, requestx509.UserConversionFunc(accept)).AuthenticateRequest(r)
	if !ok || err != nil {
		return verified{}, false
	}
	info, ok := resp.User.(*user.DefaultInfo)
	if !ok {
		return verified{}, false
	}
	return verified{user: *info, until: until}, true
}

// digest returns a hash of all certificates that a client sent, in their order.
func digest(certs []*x509.Certificate) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range certs {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(c.Raw)))
		h.Write(n[:])
		h.Write(c.Raw)
	}
	h.Sum(sum[:0])
	return sum
}
