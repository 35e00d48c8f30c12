package devstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// DelayProxy passes TCP connections on to a target, and delays what goes
// through so that a round trip takes Latency longer. Opening a connection is
// not delayed.
type DelayProxy struct {
	target  string
	latency time.Duration
	port    *port
	ready   chan struct{}
}

// DelayConfig says what to pass on. Target is required.
type DelayConfig struct {
	// Target is the host:port to connect to.
	Target string
	// Listen is host:port. Empty: a free port on loopback. Another address
	// than loopback is refused unless AllowRemote is set.
	Listen      string
	AllowRemote bool
	// Latency is what a round trip takes longer, half of it each way. It is
	// rounded up to milliseconds.
	Latency time.Duration
}

// OpenDelay checks cfg and takes the address. Run must follow.
func OpenDelay(cfg DelayConfig) (*DelayProxy, error) {
	if cfg.Target == "" || cfg.Latency < 0 {
		return nil, errors.New("open delay proxy: it needs a target, and a latency that is not negative")
	}
	port, err := takePort(cfg.Listen, cfg.AllowRemote)
	if err != nil {
		return nil, fmt.Errorf("open delay proxy: %w", err)
	}
	return &DelayProxy{target: cfg.Target, latency: cfg.Latency, port: port, ready: make(chan struct{})}, nil
}

// Addr is the host:port that the proxy listens on.
func (p *DelayProxy) Addr() string { return p.port.addr }

// Endpoint is the base URL of a store behind the proxy.
func (p *DelayProxy) Endpoint() string { return "http://" + p.port.addr }

// Ready is closed once the proxy takes connections.
func (p *DelayProxy) Ready() <-chan struct{} { return p.ready }

// Run passes connections on until ctx ends. It may be called once.
func (p *DelayProxy) Run(ctx context.Context) error {
	defer p.port.release()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "delay", p.port.addr, p.target)
	total := (p.latency + time.Millisecond - 1).Milliseconds()
	for stream, delay := range map[string]int64{"upstream": total / 2, "downstream": total - total/2} {
		toxic, err := json.Marshal(map[string]any{
			"type": "latency", "stream": stream, "attributes": map[string]int64{"latency": delay},
		})
		if err != nil {
			return fmt.Errorf("encode delay: %w", err)
		}
		if _, err := proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
			return fmt.Errorf("delay %s: %w", stream, err)
		}
	}
	p.port.release()
	if err := retake(ctx, proxy.Start); err != nil {
		return fmt.Errorf("run delay proxy on %s: %w", p.port.addr, err)
	}
	close(p.ready)
	<-ctx.Done()
	proxy.Stop()
	return nil
}

// retake listens on a port that was held until now. Meanwhile the system may
// have lent it to an outgoing connection; those are short.
func retake(ctx context.Context, listen func() error) error {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for range 100 {
		if err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return listen()
}
