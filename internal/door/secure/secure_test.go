package secure_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/xbernetes/xbernetes/internal/door/secure"
	"github.com/xbernetes/xbernetes/internal/pki"
)

// serve runs a server with a certificate of its own until ctx ends.
func serve(t *testing.T, ctx context.Context, h http.Handler) (client *http.Client, url string, ended <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ca, serving, err := pki.Own(t.TempDir(), "test", listener.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := dynamiccertificates.NewStaticCertKeyContent("test", serving.CertPEM, serving.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	done := make(chan error, 1)
	go func() {
		done <- secure.Server{Listener: listener, Cert: cert, Log: slog.New(slog.DiscardHandler)}.Serve(ctx, h)
	}()
	return &http.Client{Transport: transport}, "https://" + listener.Addr().String(), done
}

// TestRequestsUnderWayEnd: a server that is told to end answers the request that it is at.
func TestRequestsUnderWayEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, url, ended := serve(t, ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		<-ctx.Done()
		_, _ = io.WriteString(w, "answered")
	}))
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "answered" {
		t.Errorf("the request under way was answered with %q, %v", body, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
