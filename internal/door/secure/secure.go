// Package secure serves HTTPS as every front of API servers does: behind the bounds of
// internal/door, with a certificate that is read again when it changes, and with an end that
// waits a little for requests under way. It reads no request.
package secure

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/xbernetes/xbernetes/internal/door"
)

// shutdownTimeout is how long requests may go on once the server is told to end.
const shutdownTimeout = 5 * time.Second

// Server says where and how to serve. Listener, Cert and Log are required.
type Server struct {
	// Listener is where to serve; Serve closes it.
	Listener net.Listener
	// Cert is the serving certificate.
	Cert dynamiccertificates.CertKeyContentProvider
	// ClientCA is the authority of callers' client certificates; nil: callers are asked for
	// none.
	ClientCA dynamiccertificates.CAContentProvider
	// MaxConnections is how many connections all callers together may have open; one
	// address may have as many as are free. 0 stands for 10,000, and a negative number for
	// no limit.
	MaxConnections int
	// Log is told of connections that are refused.
	Log *slog.Logger
}

// Serve answers requests with h until ctx ends, and returns nil once those under way have
// ended or had their time. A listener that fails before is a panic of the API server's library.
func (s Server) Serve(ctx context.Context, h http.Handler) error {
	info := &genericserver.SecureServingInfo{
		Listener: door.Limit(s.Listener, cmp.Or(s.MaxConnections, 10_000), s.Log),
		Cert:     s.Cert, ClientCA: s.ClientCA, HTTP2MaxStreamsPerConnection: 1000,
	}
	stopped, done, err := info.Serve(h, shutdownTimeout, ctx.Done())
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	<-done
	<-stopped
	return nil
}
