package facade

import (
	"errors"
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
		s.CertFile, s.KeyFile = filepath.Join(s.DataDir, "pki", "serving.crt"), filepath.Join(s.DataDir, "pki", "serving.key")
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

// own makes what is missing of an authority, a certificate and a kubeconfig.
func (s Serving) own(c *Certificate, addr net.Addr, log *slog.Logger) (err error) {
	if err := privatefile.MkdirAll(filepath.Join(s.DataDir, "pki")); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	privatefile.Warn(log, s.DataDir)
	if c.lock, err = privatefile.Lock(filepath.Join(s.DataDir, "facade.lock")); errors.Is(err, privatefile.ErrLocked) {
		return fmt.Errorf("data directory %s is in use by another facade; stop that one, or give this one a directory of its own with --data-dir", s.DataDir)
	} else if err != nil {
		return fmt.Errorf("lock data directory: %w", err)
	}
	names := append([]string{"localhost", "127.0.0.1", "::1"}, s.SANs...)
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		names = append(names, host)
	}
	ca, err := pki.Authority(filepath.Join(s.DataDir, "pki"), "ca", "xbernetes-region-ca")
	if err != nil {
		return err
	}
	if _, err := ca.Issue(filepath.Join(s.DataDir, "pki"), "serving", pki.Leaf{Name: "xbernetes-region", SANs: names, Server: true}); err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(s.DataDir, "kubeconfig")
	return kubeconfig.Write(c.Kubeconfig, kubeconfig.Access{Name: "regions", URL: "https://" + net.JoinHostPort("127.0.0.1", port), CA: ca.CertPEM})
}
