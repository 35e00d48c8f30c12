package gatewaycmd

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// spans is a collector that keeps the names of spans.
type spans struct {
	collector.UnimplementedTraceServiceServer
	names chan string
}

func (s spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, span := range ss.Spans {
				s.names <- span.Name
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestGatewaySendsTraces(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, got := grpc.NewServer(), spans{names: make(chan string, 100)}
	collector.RegisterTraceServiceServer(server, got)
	defer server.Stop()

	dir := t.TempDir()
	servers := filepath.Join(dir, "servers.yaml")
	if err := os.WriteFile(servers, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	logs := &usage.Log{}
	cmd := New(logs)
	logs.Register(cmd)
	out, in := io.Pipe()
	cmd.SetOut(in)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--servers", servers, "--data-dir", dir, "--listen", "127.0.0.1:0", "--tracing-endpoint", at.Addr().String(), "--tracing-share", "1"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out) // until the pipe is closed
	go server.Serve(at)         // ends with Stop; only now, as the command sets klog's logger, which gRPC writes to
	url, _, _ := strings.Cut(strings.TrimPrefix(string(line[:n]), "Serving at "), ".\n")
	url, _, _ = strings.Cut(url, ". In")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	var resp *http.Response
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if resp, err = client.Get(url + "/apis"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	in.Close()
	select {
	case name := <-got.names:
		t.Logf("span %q", name)
	case <-time.After(10 * time.Second):
		t.Error("no span arrived")
	}
}

func TestGatewayTracesStayHere(t *testing.T) {
	for _, endpoint := range []string{"collector.example.com:4317", "10.0.0.1:4317", "localhost"} {
		if _, err := (traffic.Traces{Endpoint: endpoint}).Provider(t.Context()); err == nil || !strings.Contains(err.Error(), "in clear") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
