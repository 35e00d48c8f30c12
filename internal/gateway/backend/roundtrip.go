package backend

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// errand says how to send a request, a caller's or the gateway's own.
type errand struct {
	client      string // the same for all requests of a client, which stays with one endpoint
	longRunning bool   // the answer has no time limit
	object      bool   // the answer must be an object of Kubernetes
	keepEscapes bool   // escapes in the path are sent as they came
	upgrade     string // the protocol that the caller asks for; "": none
	passThrough bool   // the request carries the caller's credentials, and none of the gateway's
}

func (e errand) transport(b *Backend) http.RoundTripper {
	conns := &b.connections.plain
	if !e.passThrough {
		own := b.connections.asGateway(b.credentials.Current())
		conns = &own
	}
	if e.upgrade != "" {
		return conns.upgrades
	}
	return conns.traced
}

// send sends a request, whose URL is relative to the server's base, to an endpoint. If that
// fails, it tries another endpoint, but only if sending twice is safe: for a read that was
// not answered, and for a write that never had a connection. The error is a fault's Status.
func (b *Backend) send(req *http.Request, e errand) (*http.Response, error) {
	body := req.Body
	read := isRead(req.Method) && e.upgrade == "" && body == nil
	if body != nil {
		defer body.Close()
	}
	order := b.endpoints.Order(e.client, b.opts.now())
	if len(order) == 0 {
		return nil, b.fail("", fault{http.StatusServiceUnavailable, NoEndpoint, "has no endpoint that answers: " + b.endpoints.LastError()})
	}
	if len(order) == 1 {
		order = append(order, order[0]) // a second try, because an idle connection may have been closed
	}
	rt := e.transport(b)
	for i, ep := range order {
		last := i == len(order)-1 || i == b.opts.MaxTries-1
		elsewhere := !last && order[i+1] != ep
		out := req.Clone(req.Context())
		out.URL = join(ep.Base, req.URL, e.keepEscapes)
		out.Host = ""
		if body != nil {
			out.Body = io.NopCloser(body) // a transport closes the body even if it sends nothing
		}
		resp, sent, err := b.attempt(rt, out, e)
		if err == nil && !unwell(resp.StatusCode) {
			b.endpoints.Succeeded(ep)
			return resp, nil
		}
		if err == nil {
			b.note(ep, fault{resp.StatusCode, "", "answered " + resp.Status})
			if !elsewhere || !read || resp.StatusCode == http.StatusGatewayTimeout {
				return resp, nil
			}
			resp.Body.Close()
			b.observe(Event{Kind: Retried, Endpoint: ep.Base.Host})
			continue
		}
		f := explain(err, ep.Base.Host, sent, read, b.opts.now())
		if f.reason == Canceled || req.Context().Err() != nil {
			return nil, b.fail(ep.Base.Host, f)
		}
		b.note(ep, f)
		if again := elsewhere && !sent || !last && read && f.reason == Broken; !again {
			return nil, b.fail(ep.Base.Host, f)
		}
		b.observe(Event{Kind: Retried, Endpoint: ep.Base.Host, Reason: f.reason})
	}
	panic("unreachable: the last try returns")
}

// unwell says whether an answer's code means that the server itself is in trouble.
func unwell(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

func isRead(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// note counts a failure against an endpoint, and has it checked.
func (b *Backend) note(ep *endpoints.Endpoint, f fault) {
	if b.endpoints.Failed(ep, f.message, b.opts.now()) {
		b.log.Warn("endpoint ejected", "endpoint", ep.Base.Host, "error", f.message)
		b.observe(Event{Kind: Ejected, Endpoint: ep.Base.Host, Reason: f.reason})
	}
	select {
	case ep.Kick <- struct{}{}:
	default:
	}
}

// fail tells observers of a fault that ends a request, and returns its Status.
func (b *Backend) fail(endpoint string, f fault) error {
	b.observe(Event{Kind: Failed, Endpoint: endpoint, Reason: f.reason})
	return f.status(b.name)
}

// attempt sends a request once. Unless the request is long-running, its answer must
// begin in time and must not stall. sent says that the request had a connection.
func (b *Backend) attempt(rt http.RoundTripper, req *http.Request, e errand) (resp *http.Response, sent bool, err error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	var got atomic.Bool // atomic, because a transport may still dial after it has given up
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	var timer *time.Timer
	if !e.longRunning || e.upgrade != "" {
		timer = time.AfterFunc(b.opts.ResponseTimeout, func() { cancel(errNoAnswer) })
	}
	resp, err = rt.RoundTrip(req.WithContext(ctx))
	if timer != nil {
		timer.Stop()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
		cancel(nil)
		return nil, got.Load(), err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The connection is the caller's now, and ends with the request's context.
		context.AfterFunc(req.Context(), func() { cancel(nil) })
		return resp, true, nil
	}
	idle := b.opts.IdleTimeout
	if e.longRunning {
		idle = 0
	}
	resp.Body = newBody(resp.Body, idle, ctx, cancel)
	return resp, true, nil
}

// body is an answer's body that must not stall for longer than idle while it is
// read. The time between two reads, in which a slow caller is written to, does not
// count. If idle is 0, there is no limit.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration
	timer  *time.Timer
}

func newBody(from io.ReadCloser, idle time.Duration, ctx context.Context, cancel context.CancelCauseFunc) *body {
	b := &body{ReadCloser: from, ctx: ctx, cancel: cancel, idle: idle}
	if idle > 0 {
		b.timer = time.AfterFunc(idle, func() { cancel(errStalled) })
		b.timer.Stop()
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	if b.timer != nil {
		b.timer.Reset(b.idle)
		defer b.timer.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
