package facade

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/pki"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Serving says with which certificate to serve.
type Serving struct {
	CertFile, KeyFile string // PEM; without them a certificate is made
	DataDir           string // where what is made is kept
	SANs              []string
}

// Certificate is what a facade serves with.
type Certificate struct {
	Provider dynamiccertificates.CertKeyContentProvider
	// Kubeconfig is the file that was written for clients, which has no user; "" if the
	// certificate was given.
	Kubeconfig string

	lock *os.File // of the data directory; nil if that is not used
}

// Open reads the certificate, or makes it in the data directory, which no other facade can use
// then until Close.
func (s Serving) Open(addr net.Addr, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{}
	if s.CertFile == "" {
		if err := s.own(c, addr, log); err != nil {
			c.Close()
			return nil, err
		}
	}
	var err error
	if c.Provider, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.CertFile, s.KeyFile); err != nil {
		c.Close()
		return nil, fmt.Errorf("load serving certificate: %w", err)
	}
	return c, nil
}

// Close lets another facade use the data directory.
func (c *Certificate) Close() {
	if c.lock != nil {
		_ = c.lock.Close() // it was only locked
	}
}

// own makes what is missing of an authority, a certificate and a kubeconfig. It makes the data
// directory's name absolute.
func (s *Serving) own(c *Certificate, addr net.Addr, log *slog.Logger) (err error) {
	if s.DataDir, err = filepath.Abs(s.DataDir); err != nil {
		return err
	}
	if c.lock, err = privatefile.Claim(s.DataDir, "facade"); err != nil {
		return err
	}
	privatefile.Warn(log, s.DataDir)
	ca, serving, err := pki.Own(filepath.Join(s.DataDir, "pki"), "xbernetes-region", addr, s.SANs)
	if err != nil {
		return err
	}
	s.CertFile, s.KeyFile = serving.CertFile, serving.KeyFile
	_, port, _ := net.SplitHostPort(addr.String())
	c.Kubeconfig = filepath.Join(s.DataDir, "kubeconfig")
	return kubeconfig.Write(c.Kubeconfig, kubeconfig.Access{Name: "regions", URL: "https://" + net.JoinHostPort("127.0.0.1", port), CA: ca.CertPEM})
}
