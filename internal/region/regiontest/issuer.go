package regiontest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Issuer issues tokens that all servers take that are started with its Flags.
type Issuer struct {
	server *httptest.Server
	key    *rsa.PrivateKey
	config string // an AuthenticationConfiguration
}

// NewIssuer starts an issuer, which ends with the test.
func NewIssuer(t *testing.T) *Issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key, config: filepath.Join(t.TempDir(), "authentication.yaml")}
	i.server = httptest.NewTLSServer(http.HandlerFunc(i.describe))
	t.Cleanup(i.server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	config, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": i.server.URL, "audiences": []string{"regions"}, "certificateAuthority": string(ca)},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": ""}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := privatefile.Write(i.config, config); err != nil {
		t.Fatal(err)
	}
	return i
}

// Flags are those with which a server takes the tokens.
func (i *Issuer) Flags() []string { return []string{"--authentication-config", i.config} }

// Token is a user's, and can be used for an hour.
func (i *Issuer) Token(t *testing.T, user string) string {
	t.Helper()
	now := time.Now()
	body := encode(map[string]any{"alg": "RS256", "kid": "one"}) + "." +
		encode(map[string]any{"iss": i.server.URL, "aud": "regions", "sub": user, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	hash := sha256.Sum256([]byte(body))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return body + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// describe answers what OpenID Connect asks of an issuer.
func (i *Issuer) describe(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/.well-known/openid-configuration" {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]}`,
			i.server.URL, i.server.URL+"/keys")
		return
	}
	fmt.Fprintf(w, `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"one","n":%q,"e":%q}]}`,
		base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()), base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.key.E)).Bytes()))
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
