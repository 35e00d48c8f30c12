// Package pki makes and keeps the certificates that a server issues for itself,
// as PEM files in a folder. It never replaces an authority that is there, and
// never signs for anybody else.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	leafLife      = 5 * 365 * 24 * time.Hour
	// leafReserve is how long before its end a certificate is issued anew, at a start.
	leafReserve = 365 * 24 * time.Hour
)

// Pair is a certificate and its private key.
type Pair struct {
	CertFile, KeyFile string // where they are, PEM; both readable by their owner alone
	CertPEM, KeyPEM   []byte // what is in them
	cert              *x509.Certificate
	key               crypto.Signer
}

// Leaf says what a certificate is for.
type Leaf struct {
	Name   string   // common name: the user, for a client
	Groups []string // organisations: the groups, for a client
	SANs   []string // host names and IP addresses, for a server
	Server bool
}

// Authority reads the CA in file.crt and file.key of dir, or makes it under
// that name. One that is there is never replaced: that would cut off every
// client that trusts it.
func Authority(dir, file, name string) (Pair, error) {
	ca, err := read(dir, file)
	if errors.Is(err, fs.ErrNotExist) {
		ca, err = issue(dir, file, &x509.Certificate{
			Subject:               pkix.Name{CommonName: name},
			NotAfter:              time.Now().Add(authorityLife),
			KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
			BasicConstraintsValid: true,
			IsCA:                  true,
		}, nil)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("load CA %s: %w", ca.CertFile, err)
	}
	return ca, nil
}

// Own reads an authority and a serving certificate of it in dir, and makes what is missing
// there, under a name that is that of the server. The certificate covers this machine's own
// names, the address at which the server listens, and sans.
func Own(dir, name string, listening net.Addr, sans []string) (ca, serving Pair, err error) {
	if err := privatefile.MkdirAll(dir); err != nil {
		return ca, serving, fmt.Errorf("make folder for certificates: %w", err)
	}
	names := append([]string{"localhost", "127.0.0.1", "::1"}, sans...)
	if host, _, err := net.SplitHostPort(listening.String()); err == nil {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
			names = append(names, host)
		}
	}
	if ca, err = Authority(dir, "ca", name+"-ca"); err != nil {
		return ca, serving, err
	}
	serving, err = ca.Issue(dir, "serving", Leaf{Name: name, SANs: names, Server: true})
	return ca, serving, err
}

// Issue reads the certificate in file.crt and file.key of dir, and makes it
// anew where it is missing, is not what leaf says, or nears its end. One that
// somebody else issued is not ours to replace, and refused.
func (ca Pair) Issue(dir, file string, leaf Leaf) (Pair, error) {
	p, err := read(dir, file)
	if err == nil && ca.signed(p, leaf) {
		return p, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, fmt.Errorf("load certificate %s (delete it and its key to have it issued again): %w", p.CertFile, err)
	}
	if err == nil && p.cert.Issuer.String() != ca.cert.Subject.String() {
		return Pair{}, fmt.Errorf("certificate %s was issued by %q, and only those of %s are used here; keep it elsewhere, and delete it and its key here to have one issued", p.CertFile, p.cert.Issuer, ca.CertFile)
	}
	if p, err = issue(dir, file, leaf.template(), &ca); err != nil {
		return Pair{}, fmt.Errorf("issue certificate %s: %w", p.CertFile, err)
	}
	return p, nil
}

// signed says whether p can go on to serve as what leaf describes.
func (ca Pair) signed(p Pair, leaf Leaf) bool {
	return p.cert.CheckSignatureFrom(ca.cert) == nil && time.Now().Add(leafReserve).Before(p.cert.NotAfter) &&
		p.cert.Subject.CommonName == leaf.Name && slices.Equal(p.cert.Subject.Organization, leaf.Groups) &&
		!slices.ContainsFunc(leaf.SANs, func(name string) bool { return p.cert.VerifyHostname(name) != nil })
}

func (l Leaf) template() *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.Name, Organization: l.Groups},
		NotAfter:    time.Now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if l.Server {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, name := range l.SANs {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return t
}

// issue makes a key and a certificate for it, signed by ca or by itself, and
// stores both: the key first, so that a crash in between leaves no certificate,
// and the pair is made again.
func issue(dir, file string, t *x509.Certificate, ca *Pair) (Pair, error) {
	p := in(dir, file)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return p, err
	}
	t.NotBefore = time.Now().Add(-time.Hour) // clocks differ
	parent, signer := t, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return p, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return p, err
	}
	p.CertPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.KeyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if err := privatefile.Write(p.KeyFile, p.KeyPEM); err != nil {
		return p, err
	}
	if err := privatefile.Write(p.CertFile, p.CertPEM); err != nil {
		return p, err
	}
	return p.parse()
}

func in(dir, file string) Pair {
	return Pair{CertFile: filepath.Join(dir, file+".crt"), KeyFile: filepath.Join(dir, file+".key")}
}

// read reads a pair; fs.ErrNotExist means that there is no certificate.
func read(dir, file string) (Pair, error) {
	p := in(dir, file)
	var err error
	if p.CertPEM, err = os.ReadFile(p.CertFile); err != nil {
		return p, err
	}
	if p.KeyPEM, err = os.ReadFile(p.KeyFile); err != nil {
		return p, fmt.Errorf("there is a certificate but no key: %v", err) //nolint:errorlint // must not look like a missing pair
	}
	return p.parse()
}

func (p Pair) parse() (Pair, error) {
	pair, err := tls.X509KeyPair(p.CertPEM, p.KeyPEM)
	if err != nil {
		return p, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return p, fmt.Errorf("a %T cannot sign", pair.PrivateKey)
	}
	p.cert, p.key = pair.Leaf, signer
	return p, nil
}
