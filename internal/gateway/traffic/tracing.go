package traffic

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"k8s.io/component-base/tracing"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// Traces says where traces go, and of how many requests.
type Traces struct {
	Endpoint string  // HOST:PORT of an OpenTelemetry collector on this machine
	Share    float64 // of the requests that do not arrive traced; 0 to 1
}

// Provider makes what traces are sent with, as Kubernetes' own components do.
func (t Traces) Provider(ctx context.Context) (tracing.TracerProvider, error) {
	host, _, err := net.SplitHostPort(t.Endpoint)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("--tracing-endpoint is %q; want HOST:PORT of a collector on this machine, since traces are sent in clear", t.Endpoint)
	}
	if t.Share < 0 || t.Share > 1 {
		return nil, fmt.Errorf("--tracing-share is %v; want 0 to 1", t.Share)
	}
	perMillion := int32(t.Share * 1e6)
	traces, err := tracing.NewProvider(ctx, &tracingv1.TracingConfiguration{Endpoint: &t.Endpoint, SamplingRatePerMillion: &perMillion},
		nil, []resource.Option{resource.WithAttributes(attribute.String("service.name", "xb-gateway"))})
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", t.Endpoint, err)
	}
	return traces, nil
}

// SendRest sends the traces that were not sent yet. ctx may have ended.
func SendRest(ctx context.Context, traces tracing.TracerProvider, log *slog.Logger) {
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := traces.Shutdown(rest); err != nil {
		log.Warn("last traces were not sent", "error", err)
	}
}
