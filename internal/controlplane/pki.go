package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"time"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	leafLife      = 5 * 365 * 24 * time.Hour
	// leafReserve is how long before its end a certificate is issued anew, at a start.
	leafReserve = 365 * 24 * time.Hour

	frontProxyName = "front-proxy-client"
)

// keyPair is a certificate and its private key, PEM and parsed.
type keyPair struct {
	certPEM, keyPEM []byte
	cert            *x509.Certificate
	key             crypto.Signer
}

// leafSpec says what a certificate is for.
type leafSpec struct {
	name   string   // common name: the user, for a client
	groups []string // organisations: the groups, for a client
	sans   []string // host names and IP addresses, for a server
	server bool
}

// fits reports whether kp can go on to serve as what s describes.
func (s leafSpec) fits(kp, ca keyPair) bool {
	if kp.cert.CheckSignatureFrom(ca.cert) != nil || time.Now().Add(leafReserve).After(kp.cert.NotAfter) {
		return false
	}
	if kp.cert.Subject.CommonName != s.name || !slices.Equal(kp.cert.Subject.Organization, s.groups) {
		return false
	}
	for _, name := range s.sans {
		if kp.cert.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

func newAuthority(name string) (keyPair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil)
}

func newLeaf(ca keyPair, s leafSpec) (keyPair, error) {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.name, Organization: s.groups},
		NotAfter:    time.Now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if s.server {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, name := range s.sans {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return issue(t, &ca)
}

// issue makes a key and a certificate for it, signed by ca or by itself.
func issue(t *x509.Certificate, ca *keyPair) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return keyPair{}, err
	}
	t.NotBefore = time.Now().Add(-time.Hour) // clocks differ
	parent, signer := t, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return keyPair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		cert:    cert,
		key:     key,
	}, nil
}

// write stores the key first: a crash in between leaves no certificate, and
// the pair is made again.
func (kp keyPair) write(certFile, keyFile string) error {
	if err := writeSecret(keyFile, kp.keyPEM); err != nil {
		return err
	}
	return writeSecret(certFile, kp.certPEM)
}

// readKeyPair reads a pair; fs.ErrNotExist means that there is no certificate.
func readKeyPair(certFile, keyFile string) (keyPair, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return keyPair{}, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return keyPair{}, fmt.Errorf("there is a certificate but no key: %s", err) //nolint:errorlint // must not look like a missing pair
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return keyPair{}, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return keyPair{}, fmt.Errorf("a %T cannot sign", pair.PrivateKey)
	}
	return keyPair{certPEM: cert, keyPEM: key, cert: pair.Leaf, key: signer}, nil
}

// newServiceAccountKey makes an RSA key: RS256 is what every federation of
// workload identities can verify.
func newServiceAccountKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// publicPEM returns the public half of a private key made by newServiceAccountKey.
func publicPEM(private []byte) ([]byte, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
