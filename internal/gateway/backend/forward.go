package backend

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

const userAgent = "xbernetes-gateway"

// ServeHTTP forwards a request as the user that its context names (request.WithUser).
// The request must have a Call, and must have passed Impersonate unless the mode is
// PassThrough. Its path is relative to the server's base URL. If the gateway refuses the
// request, or the server fails, the answer is a Status that names the server.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, f := b.accept(r)
	if f != nil {
		b.refuse(w, r, *f)
		return
	}
	t.forward(w, r)
}

// trip is one caller's request on its way through the reverse proxy.
type trip struct {
	errand
	backend   *Backend
	user      user.Info        // the user that the server is told
	presented call.Credentials // by the caller
}

// forward sends the request to the server, and copies the answer to the caller.
//
// It uses the standard library's reverse proxy, for upgrades too, and not the
// UpgradeAwareHandler of apimachinery, which wraps it. The UpgradeAwareHandler lets a
// caller's Connection header remove headers that the gateway sets (it uses Director, not
// Rewrite), waits for the answer to an upgrade without a time limit and even after
// cancellation, and copies the answer's headers to the caller unchecked.
func (t *trip) forward(w http.ResponseWriter, r *http.Request) {
	b := t.backend
	pool := b.requestBuffers
	if t.longRunning || t.upgrade != "" {
		pool = b.streamBuffers
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        t.rewrite,
		Transport:      t,
		BufferPool:     pool,
		ErrorLog:       b.proxyLog,
		ModifyResponse: func(resp *http.Response) error { cleanAnswer(resp.Header); return nil },
		ErrorHandler:   b.failed,
	}
	proxy.ServeHTTP(&final{ResponseWriter: w}, r)
}

// rewrite makes the request that the server gets. The reverse proxy has removed the
// hop-by-hop headers.
func (t *trip) rewrite(p *httputil.ProxyRequest) {
	identify(p.Out.Header, t.backend.mode, t.user, t.presented, t.backend.credentials.Current())
	if host, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
		p.Out.Header.Set("X-Forwarded-For", host)
	}
	p.Out.Trailer = nil
	p.Out.URL = &url.URL{Path: p.In.URL.Path, RawPath: p.In.URL.RawPath, RawQuery: p.Out.URL.RawQuery}
}

// RoundTrip sends the request and judges the answer.
func (t *trip) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.backend.judged(r, t.errand)
}

// failed answers a request that the reverse proxy could not forward.
func (b *Backend) failed(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = b.fail("", fault{http.StatusBadGateway, Broken, "could not be asked: " + plainly(err)})
	}
	b.responder.Respond(w, r, err)
}

// Impersonate decides as which user a request is made. If its headers ask to impersonate
// somebody, and by allows the caller to, next gets the request as that user, without those
// headers. If by does not allow it, or is nil, the request is refused. The request's Call
// must have a Server.
func Impersonate(next http.Handler, by authorizer.UnconditionalAuthorizer) http.Handler {
	answers := NewResponder()
	decided := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return asksForUser(name) })
		next.ServeHTTP(w, r)
	})
	filter := impersonation.WithImpersonation(decided, by, answers.codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !Impersonates(r.Header):
			next.ServeHTTP(w, r)
		case by == nil:
			answers.Respond(w, r, NewStatus(call.Of(r).Server.Name, http.StatusForbidden, Refused,
				"is told by the gateway who the caller is, and the gateway lets nobody impersonate others (--as)"))
		default:
			filter.ServeHTTP(w, r.Clone(r.Context())) // a copy, because headers are removed
		}
	})
}

// accept refuses a request that the server could read differently from the gateway, or
// whose caller the server would take for somebody else.
func (b *Backend) accept(r *http.Request) (*trip, *fault) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return nil, &fault{http.StatusMethodNotAllowed, Refused, fmt.Sprintf("gets no %q from the gateway", shorten(r.Method))}
	}
	c := call.Of(r)
	info := c.Info
	err := checkPath(r.URL, info)
	if err == nil {
		err = checkHop(r)
	}
	if err != nil {
		return nil, &fault{http.StatusBadRequest, Refused, "does not get this request: " + err.Error()}
	}
	if b.mode != v1alpha1.PassThrough && Impersonates(r.Header) {
		return nil, &fault{http.StatusForbidden, Refused, "is told by the gateway who the caller is, and nobody has decided whether the caller may impersonate others (--as)"}
	}
	t := &trip{backend: b, presented: c.Credentials}
	t.user, _ = request.UserFrom(r.Context())
	if f := checkCaller(b.mode, t.user, t.presented); f != nil {
		return nil, f
	}
	if err := checkMode(b.mode, b.credentials.Current()); err != nil {
		return nil, &fault{http.StatusServiceUnavailable, BadCredentials, "cannot be told who the caller is: " + err.Error()}
	}
	t.client = clientOf(t.user, r)
	t.longRunning, t.object = LongRunning(info), wantsObject(info)
	t.passThrough = b.mode == v1alpha1.PassThrough
	t.keepEscapes = info.Subresource == "proxy"
	if Upgrades(r) {
		t.upgrade, t.longRunning = r.Header.Get("Upgrade"), true
	}
	return t, nil
}

// clientOf returns a string that identifies the client, so that it can stay with one
// endpoint.
func clientOf(u user.Info, r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if u == nil {
		return host
	}
	return u.GetName() + " " + host
}

func (b *Backend) refuse(w http.ResponseWriter, r *http.Request, f fault) {
	b.responder.Respond(w, r, b.fail("", f))
}

// judged sends a request and returns the answer if judge lets it go on.
func (b *Backend) judged(r *http.Request, e errand) (*http.Response, error) {
	resp, err := b.send(r, e)
	if err != nil {
		return nil, err
	}
	if f := judge(resp, e); f != nil {
		resp.Body.Close()
		return nil, b.fail(resp.Request.URL.Host, *f)
	}
	return resp, nil
}

// final is a ResponseWriter that drops a server's informational answers (1xx), with which
// the reverse proxy would overwrite the gateway's own headers.
type final struct {
	http.ResponseWriter
	staged  http.Header
	written bool
}

func (f *final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Header returns a draft until the final answer is written, and then the real headers, for
// trailers.
func (f *final) Header() http.Header {
	if f.written {
		return f.ResponseWriter.Header()
	}
	if f.staged == nil {
		f.staged = http.Header{}
	}
	return f.staged
}

func (f *final) WriteHeader(code int) {
	if code < 200 {
		return
	}
	f.commit()
	f.ResponseWriter.WriteHeader(code)
}

func (f *final) Write(p []byte) (int, error) {
	f.commit()
	return f.ResponseWriter.Write(p)
}

func (f *final) commit() {
	if f.written {
		return
	}
	f.written = true
	h := f.ResponseWriter.Header()
	for k, v := range f.staged {
		h[k] = v
	}
}

// buffers lends buffers of one size to the reverse proxy.
type buffers struct {
	size int
	pool sync.Pool
}

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.size)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
