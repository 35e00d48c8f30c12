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

	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// Run checks the health of every endpoint until ctx ends, and then closes idle connections.
// Without Run requests are served too, but each has to find out itself that an endpoint is
// down.
func (b *Backend) Run(ctx context.Context) error {
	defer b.connections.close()
	g, ctx := errgroup.WithContext(ctx)
	for _, ep := range b.endpoints.All {
		c := &checker{backend: b, endpoint: ep}
		g.Go(func() error { c.run(ctx); return nil })
	}
	return g.Wait()
}

// checker checks the health of one endpoint.
type checker struct {
	backend  *Backend
	endpoint *endpoints.Endpoint
	failures int // checks that failed in a row
}

// run checks the endpoint again and again until ctx ends.
func (c *checker) run(ctx context.Context) {
	b, ep := c.backend, c.endpoint
	for {
		found, why, latency := c.check(ctx)
		if ctx.Err() != nil {
			return
		}
		state := c.judge(found)
		if before := ep.Checked(state, why, latency, b.opts.now()); before != state {
			b.log.Info("endpoint state changed", "endpoint", ep.Base.Host, "from", before, "to", state, "error", why)
		}
		b.observe(Event{Kind: Checked, Endpoint: ep.Base.Host, State: state})
		// However many requests fail and kick, Checks.Retry passes between two checks.
		pause(ctx, b.opts.Checks.Retry, nil)
		if state == endpoints.Healthy && c.failures == 0 {
			pause(ctx, b.opts.Checks.Interval-b.opts.Checks.Retry, ep.Kick)
		}
	}
}

// pause waits for about d, at random, so that gateways do not all ask at once. It ends early
// if ctx ends or wake has a value.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d*3/4 + rand.N(max(d/2, 1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// judge returns the state after a check. A healthy endpoint stays healthy until
// Checks.Failures checks in a row have failed.
func (c *checker) judge(found endpoints.State) endpoints.State {
	if found == endpoints.Healthy {
		c.failures = 0
		return endpoints.Healthy
	}
	c.failures++
	if c.endpoint.State() == endpoints.Healthy && c.failures < c.backend.opts.Checks.Failures {
		return endpoints.Healthy
	}
	return found
}

// check asks the endpoint for /readyz. If the server has no such path or forbids it, check
// asks for /healthz, and then for /version, where any answer but a server error will do.
func (c *checker) check(ctx context.Context) (s endpoints.State, why string, latency time.Duration) {
	b := c.backend
	ctx, cancel := context.WithTimeout(ctx, b.opts.Checks.Timeout)
	defer cancel()
	for _, path := range []string{"/readyz", "/healthz", "/version"} {
		start := time.Now()
		code, f := c.ask(ctx, path)
		latency = time.Since(start)
		switch {
		case f != nil:
			return endpoints.Down, f.message, 0
		case code >= 200 && code < 300:
			return endpoints.Healthy, "", latency
		case code >= 300 && code < 400:
			return endpoints.Unready, fmt.Sprintf("answers %s with a redirect (%d): register the address that serves the API", path, code), latency
		case code >= 500, code == http.StatusTooManyRequests:
			return endpoints.Unready, fmt.Sprintf("answers %s with %d %s", path, code, http.StatusText(code)), latency
		case path == "/version" && code == http.StatusUnauthorized && !b.credentials.Current().empty():
			return endpoints.Healthy, "does not accept the gateway's own credentials (401)", latency
		}
	}
	// The endpoint answers, and that is all that it shows the gateway.
	return endpoints.Healthy, "", latency
}

// ask gets a path as the gateway, and returns the code of the answer.
func (c *checker) ask(ctx context.Context, path string) (int, *fault) {
	b, ep := c.backend, c.endpoint
	e := errand{}
	req := (&http.Request{Method: http.MethodGet, URL: join(ep.Base, &url.URL{Path: path}, false), Header: http.Header{}}).WithContext(ctx)
	b.identifySelf(req.Header)
	req.Header.Set("User-Agent", userAgent)
	resp, sent, err := b.attempt(e.transport(b), req, e)
	if err != nil {
		f := explain(err, ep.Base.Host, sent, true, b.opts.now())
		return 0, &f
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return 0, &fault{message: "switches protocols unasked"}
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) //nolint:errcheck // the status has said it
	return resp.StatusCode, nil
}
