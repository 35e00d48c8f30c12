// Package metrics serves a registry of Prometheus to those who may see it: whoever is on
// this machine, and whoever has the token. It measures nothing itself.
package metrics

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the metrics of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Listen listens for metrics at address, HOST:PORT, which flag gives. If the address is
// taken and nobody asked for it, Listen takes a free port of this machine instead, and
// says so.
func Listen(address, flag string, asked bool, log *slog.Logger) (net.Listener, error) {
	lis, err := net.Listen("tcp", address)
	if err != nil && !asked {
		if other, otherErr := net.Listen("tcp", "127.0.0.1:0"); otherErr == nil {
			log.Warn("the default address for metrics is taken; using another", "taken", address, "address", other.Addr().String())
			return other, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen for metrics at %s: %w; choose another address with --%s", address, err, flag)
	}
	log.Info("serving metrics", "address", lis.Addr().String())
	return lis, nil
}

// Handler answers /healthz to anybody, and /metrics to whoever is on this machine or
// brings the token in the file. Without a file, or while it is empty, nobody else gets
// the metrics. The file is read at each request, so that a new token counts at once.
func Handler(registry prometheus.Gatherer, tokenFile string) http.Handler {
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if near := err == nil && from.Addr().Unmap().IsLoopback(); near || hasToken(r, tokenFile) {
			metrics.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "metrics ask for the bearer token of --metrics-token", http.StatusUnauthorized)
	})
	return mux
}

// hasToken says whether a request has the token that is in the file.
func hasToken(r *http.Request, file string) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if file == "" || !ok {
		return false
	}
	content, err := os.ReadFile(file)
	want := bytes.TrimSpace(content)
	if err != nil || len(want) == 0 {
		return false
	}
	a, b := sha256.Sum256(want), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Serve serves handler at lis until ctx ends.
func Serve(ctx context.Context, lis net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
