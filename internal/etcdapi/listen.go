package etcdapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Address says where the etcd API is served, and to whom.
type Address struct {
	// Host is HOST:PORT, with http:// or https:// before it or not, or unix:///PATH.
	Host string
	// CertFile, KeyFile and ClientCAFile are PEM files: the API's certificate, its key,
	// and the CA that must have signed clients' certificates. Give all three or none.
	CertFile, KeyFile, ClientCAFile string
}

// Listener is an address at which the etcd API can be served.
type Listener struct {
	net.Listener
	tls *tls.Config // nil: plain text
}

// Listen opens the address. Without TLS it accepts only a loopback address, or a socket that
// only this user can open; for any other address it returns an error.
func (a Address) Listen() (*Listener, error) {
	cfg, err := a.tls()
	if err != nil {
		return nil, err
	}
	path, unix := strings.CutPrefix(a.Host, "unix://")
	host := a.Host
	if !unix {
		if host, err = a.hostPort(cfg != nil); err != nil {
			return nil, err
		}
	}
	var lis net.Listener
	if unix {
		lis, err = privatefile.Listen(path)
	} else {
		lis, err = net.Listen("tcp", host)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the etcd API at %s: %w; choose another address, or stop what holds it", a.Host, err)
	}
	return &Listener{lis, cfg}, nil
}

// hostPort returns the address without its scheme. It fails if the scheme does not fit, or
// if other machines could reach the API without TLS.
func (a Address) hostPort(encrypted bool) (string, error) {
	addr, https := strings.CutPrefix(a.Host, "https://")
	if https && !encrypted {
		return "", fmt.Errorf("the etcd API at %s: https needs a certificate, a key and a CA for its clients", a.Host)
	}
	if plain, http := strings.CutPrefix(addr, "http://"); http {
		if addr = plain; encrypted {
			return "", fmt.Errorf("the etcd API at %s has a certificate; write https://, or HOST:PORT alone", a.Host)
		}
	}
	if encrypted {
		return addr, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("etcd API address %q is not HOST:PORT or unix:///PATH", a.Host)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("the etcd API at %s would be open to whoever reaches it; give it a certificate, a key and a CA for its clients, or a loopback address", a.Host)
	}
	return addr, nil
}

// tls returns nil if no files are given.
func (a Address) tls() (*tls.Config, error) {
	if a.CertFile == "" && a.KeyFile == "" && a.ClientCAFile == "" {
		return nil, nil
	}
	if a.CertFile == "" || a.KeyFile == "" || a.ClientCAFile == "" {
		return nil, errors.New("the etcd API needs its certificate, its key and the CA of its clients together, or none of them")
	}
	pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the etcd API's certificate: %w", err)
	}
	pem, err := os.ReadFile(a.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the etcd API's clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", a.ClientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

// URL returns the address as clients of etcd write it.
func (l *Listener) URL() string {
	switch {
	case l.Addr().Network() == "unix":
		return "unix://" + l.Addr().String()
	case l.tls != nil:
		return "https://" + l.Addr().String()
	default:
		return "http://" + l.Addr().String()
	}
}

// ServeAt is Serve at an address that Address.Listen has opened.
func (s *Server) ServeAt(ctx context.Context, l *Listener) error {
	if l.tls != nil {
		return s.ServeTLS(ctx, l.Listener, l.tls)
	}
	return s.Serve(ctx, l.Listener)
}
