package backend

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/component-base/tracing"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// connections are the pools of connections to one server. No two servers
// share any, nor the sessions of TLS.
type connections struct {
	config tls.Config // without a client certificate
	opts   Options

	// plain is for requests with the caller's own credentials. On a connection with the
	// gateway's certificate, such a request would have the gateway's rights.
	plain pair

	mu      sync.Mutex
	current *tls.Certificate // the certificate of own; guarded by mu
	own     pair             // for requests with the gateway's credentials; guarded by mu
}

// pair is a transport for requests, and one for upgrades, which HTTP/2 does not have.
type pair struct {
	requests, upgrades *http.Transport
	traced             http.RoundTripper // requests, with spans if there is a Tracer
}

func (p pair) close() {
	p.requests.CloseIdleConnections()
	p.upgrades.CloseIdleConnections()
}

func newConnections(spec v1alpha1.RemoteAPIServerSpec, opts Options) (*connections, error) {
	c := &connections{opts: opts, config: tls.Config{MinVersion: tls.VersionTLS12, ServerName: spec.ServerName}}
	if len(spec.CABundle) > 0 {
		c.config.RootCAs = x509.NewCertPool()
		if !c.config.RootCAs.AppendCertsFromPEM(spec.CABundle) {
			return nil, fmt.Errorf("read caBundle: no certificate in PEM is in it")
		}
	}
	c.plain = c.dialers(nil)
	c.own = c.dialers(nil)
	return c, nil
}

func (c *connections) dialers(cert *tls.Certificate) pair {
	p := pair{requests: c.transport(cert, true), upgrades: c.transport(cert, false)}
	p.traced = p.requests
	if c.opts.Tracer != nil {
		p.traced = tracing.WrapperFor(c.opts.Tracer)(p.requests)
	}
	return p
}

func (c *connections) transport(cert *tls.Certificate, http2 bool) *http.Transport {
	config := c.config.Clone()
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	t := &http.Transport{
		DialContext:         c.opts.Dial,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: c.opts.DialTimeout,
		// The gateway passes a compressed answer on as it is.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      http2,
		HTTP2: &http.HTTP2Config{
			// Pings show that a connection is dead even if all its watches are quiet.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
			// This bounds what a slow caller makes the gateway hold for one request.
			MaxReceiveBufferPerStream: 1 << 20,
		},
	}
	if !http2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.MaxIdleConnsPerHost = 4
	}
	return t
}

// asGateway returns the transports that present secret's certificate.
func (c *connections) asGateway(secret Secret) pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sameCertificate(c.current, secret.certificate) {
		c.own.close()
		c.current, c.own = secret.certificate, c.dialers(secret.certificate)
	}
	return c.own
}

func sameCertificate(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Certificate[0], b.Certificate[0])
}

// close closes idle connections. Others end with their requests.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plain.close()
	c.own.close()
}
