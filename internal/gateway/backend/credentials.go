package backend

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
)

// Secret identifies the gateway itself to one server, by a client certificate, a bearer
// token, or both. The zero value is anonymous. A Secret always prints as "[redacted]".
type Secret struct {
	certificate *tls.Certificate
	token       string
}

// NewSecret makes a Secret of a certificate and its key, both PEM, and a token. Each may be
// empty; a certificate needs a key.
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

// empty says that the gateway is anonymous.
func (s Secret) empty() bool { return s.certificate == nil && s.token == "" }

// authorize puts the token on a request.
func (s Secret) authorize(h http.Header) {
	if s.token != "" {
		h.Set("Authorization", "Bearer "+s.token)
	}
}

// Credentials return the Secret to present now. Current is called for every request, from
// many goroutines, and must not block: a secret has to be refreshed elsewhere. New
// connections use a new certificate; old connections finish their requests and take no
// others.
type Credentials interface {
	Current() Secret
}

// Held are Credentials whose Secret can be replaced. The zero value is anonymous.
type Held struct{ secret atomic.Pointer[Secret] }

// Hold returns a Held with a secret.
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
