package backend

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
)

// Secret is what the gateway presents to one server as itself: a client
// certificate, a bearer token, both, or nothing, which is anonymous. It prints
// as "[redacted]", however it is printed.
type Secret struct {
	certificate *tls.Certificate
	token       string
}

// NewSecret parses a certificate and its key, PEM, and takes a token. Each may
// be empty; a certificate and a key come together.
func NewSecret(certPEM, keyPEM []byte, token string) (Secret, error) {
	s := Secret{token: strings.TrimSpace(token)}
	if strings.ContainsFunc(s.token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Secret{}, fmt.Errorf("read bearer token: it has a space, a line break or another character that no token has")
	}
	if len(certPEM) == 0 && len(keyPEM) == 0 {
		return s, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return Secret{}, fmt.Errorf("read client certificate and key: %w", err)
	}
	s.certificate = &pair
	return s, nil
}

const redacted = "[redacted]"

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret.
func (Secret) GoString() string { return redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// empty says that the gateway has nothing to show.
func (s Secret) empty() bool { return s.certificate == nil && s.token == "" }

// authorize puts the token on a request.
func (s Secret) authorize(h http.Header) {
	if s.token != "" {
		h.Set("Authorization", "Bearer "+s.token)
	}
}

// Credentials give the Secret to present now. Current is called for every
// request, from many goroutines, and must not block: whoever refreshes a
// secret does so on the side. A new certificate is used for connections made
// from then on; old connections serve their requests to the end and no others.
type Credentials interface {
	Current() Secret
}

// Held are credentials that are set from outside, and may be set again. The
// zero value is anonymous.
type Held struct{ secret atomic.Pointer[Secret] }

// Hold makes Held of a secret.
func Hold(s Secret) *Held {
	h := &Held{}
	h.Set(s)
	return h
}

// Set replaces the secret.
func (h *Held) Set(s Secret) { h.secret.Store(&s) }

// Current implements Credentials.
func (h *Held) Current() Secret {
	if s := h.secret.Load(); s != nil {
		return *s
	}
	return Secret{}
}
