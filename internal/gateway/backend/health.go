package backend

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run checks the health of every endpoint until ctx ends, and then lets go of
// idle connections. Requests are served with or without it; without it an
// endpoint that is down is found out by each of them.
func (b *Backend) Run(ctx context.Context) error {
	defer b.connections.close()
	g, ctx := errgroup.WithContext(ctx)
	for _, ep := range b.endpoints.all {
		g.Go(func() error { b.watchOver(ctx, ep); return nil })
	}
	return g.Wait()
}

// watchOver checks one endpoint again and again.
func (b *Backend) watchOver(ctx context.Context, ep *endpoint) {
	failures := 0
	for {
		state, why, latency := b.check(ctx, ep)
		if ctx.Err() != nil {
			return
		}
		if state == Healthy {
			failures = 0
		} else {
			failures++
		}
		state = b.settle(ep, state, failures)
		if before := ep.checked(state, why, latency, b.opts.now()); before != state {
			b.log.Info("endpoint state changed", "endpoint", ep.base.Host, "from", before, "to", state, "error", why)
		}
		b.observe(Event{Kind: Checked, Endpoint: ep.base.Host, State: state})
		// Never at the pace of requests, however many fail.
		pause(ctx, b.opts.RetryInterval, nil)
		if state == Healthy && failures == 0 {
			pause(ctx, b.opts.CheckInterval-b.opts.RetryInterval, ep.kick)
		}
	}
}

// pause waits for about d, so that gateways and endpoints do not all ask at
// once; less if ctx ends or wake wakes it.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d*3/4 + rand.N(max(d/2, 1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// settle is the state after a check: one failed check does not take a healthy
// endpoint out.
func (b *Backend) settle(ep *endpoint, found State, failures int) State {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.health.State == Healthy && found != Healthy && failures < b.opts.CheckFailures {
		return Healthy
	}
	return found
}

// check asks an endpoint how it is: /readyz, or where a server has none or
// keeps it from the gateway, /healthz, or else /version, for which any answer
// but an error of the server's own will do.
func (b *Backend) check(ctx context.Context, ep *endpoint) (s State, why string, latency time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.CheckTimeout)
	defer cancel()
	for _, path := range []string{"/readyz", "/healthz", "/version"} {
		start := time.Now()
		code, f := b.ask(ctx, ep, path)
		latency = time.Since(start)
		switch {
		case f != nil:
			return Down, f.message, 0
		case code >= 200 && code < 300:
			return Healthy, "", latency
		case code >= 300 && code < 400:
			return Unready, fmt.Sprintf("answers %s with a redirect (%d): register the address that serves the API", path, code), latency
		case code >= 500, code == http.StatusTooManyRequests:
			return Unready, fmt.Sprintf("answers %s with %d %s", path, code, http.StatusText(code)), latency
		case path == "/version" && code == http.StatusUnauthorized && !b.credentials.Current().empty():
			return Healthy, "does not accept the gateway's own credentials (401)", latency
		}
	}
	// It answers, and does not tell the gateway more.
	return Healthy, "", latency
}

// ask gets a path of an endpoint as the gateway, and drops what it says.
func (b *Backend) ask(ctx context.Context, ep *endpoint, path string) (int, *fault) {
	e := errand{}
	req := (&http.Request{Method: http.MethodGet, URL: join(ep.base, &url.URL{Path: path}, false), Header: http.Header{}}).WithContext(ctx)
	b.identifySelf(req.Header)
	req.Header.Set("User-Agent", userAgent)
	resp, sent, err := b.attempt(e.transport(b), req, e)
	if err != nil {
		f := explain(err, ep.base.Host, sent, true, b.opts.now())
		return 0, &f
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return 0, &fault{message: "switches protocols unasked"}
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) //nolint:errcheck // the status has said it
	return resp.StatusCode, nil
}
