package backend

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/weight"
)

const userAgent = "xbernetes-gateway"

// ServeHTTP forwards a request as the user that its context names (request.WithUser).
// The request must have a Call, and must have passed Impersonate unless the mode is
// PassThrough. The path is the one below the server's base URL. If the gateway
// refuses the request, or the server fails, the answer is a Status that names the
// server.
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
	backend *Backend
	user    user.Info        // as whom the request goes
	own     call.Credentials // the caller's
}

// forward sends the request to the server, and copies the answer to the caller.
//
// It uses the standard library's reverse proxy, for upgrades too, and not the
// UpgradeAwareHandler of apimachinery, which wraps it. That one lets a caller's
// Connection header strip what the gateway sets (it uses Director, not Rewrite),
// waits for the answer to an upgrade without end, limit or regard for cancellation,
// and copies the answer's headers to the caller unseen.
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

// rewrite makes the request that the server gets. Hop-by-hop headers are gone.
func (t *trip) rewrite(p *httputil.ProxyRequest) {
	identify(p.Out.Header, t.backend.mode, t.user, t.own, t.backend.credentials.Current())
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

// Impersonate passes a request to next as the user that its headers ask for, if by
// allows the caller that, and refuses it otherwise, as Kubernetes does. If by is nil,
// nobody may impersonate. next gets none of the headers that ask. The request's Call
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
			filter.ServeHTTP(w, r.Clone(r.Context())) // a copy, because headers are taken off
		}
	})
}

// accept refuses a request that the server could read in another way than the
// gateway, or whose caller the server would take for somebody else.
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
	t := &trip{backend: b, own: c.Credentials}
	t.user, _ = request.UserFrom(r.Context())
	if f := checkCaller(b.mode, t.user, t.own); f != nil {
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

// clientOf tells clients apart, to keep each to one endpoint.
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

// judged sends a request and returns the answer if it may go on.
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

// Own speaks to the server as the gateway itself. Of a request's URL only the
// path and the query count: they are relative to the server's base. Redirects
// and what is no object of Kubernetes where one was asked for are errors, as
// is an answer larger than MaxOwnBody, watches apart, or one that would take more
// than MaxOwnDecoded. It asks for JSON alone, whose weight can be told before it is
// decoded, and takes nothing else. Errors are Statuses that name the server.
func (b *Backend) Own() http.RoundTripper { return roundTripper(b.roundTripOwn) }

func (b *Backend) roundTripOwn(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Header.Del("Authorization")
	b.identifySelf(out.Header)
	out.Header.Set("Accept", onlyJSON(out.Header.Get("Accept")))
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", userAgent)
	}
	info, err := call.ReadURL(out) // the context may tell of a caller's request
	if err == nil {
		err = checkPath(out.URL, info)
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, b.fail("", fault{http.StatusBadRequest, Refused, "does not get this request: " + err.Error()})
	}
	e := errand{client: userAgent, longRunning: LongRunning(info), object: wantsObject(info)}
	resp, err := b.judged(out, e)
	if err != nil {
		return nil, err
	}
	failed := func(f fault) error { return b.fail(resp.Request.URL.Host, f) }
	if kind := encodingOf(resp.Header.Get("Content-Type")); kind != "json" && kind != "" {
		resp.Body.Close()
		return nil, failed(fault{http.StatusBadGateway, NotKubernetes, fmt.Sprintf("answered %s with %s, and JSON was asked for", shorten(r.URL.Path), typeOf(resp))})
	}
	if !e.longRunning {
		resp.Body = &limited{ReadCloser: resp.Body, left: b.opts.MaxOwnBody, fail: func() error {
			return failed(fault{http.StatusBadGateway, TooLarge, fmt.Sprintf("answered %s with more than %d MiB", shorten(r.URL.Path), b.opts.MaxOwnBody>>20)})
		}}
	}
	resp.Body = &weighed{resp.Body, weight.NewReader(resp.Body, b.opts.MaxOwnDecoded), func() error {
		return failed(fault{http.StatusBadGateway, TooLarge, fmt.Sprintf("answered %s with what takes more than %d MiB once it is decoded", shorten(r.URL.Path), b.opts.MaxOwnDecoded>>20)})
	}}
	return resp, nil
}

// onlyJSON returns an Accept header without the encodings whose weight cannot be
// told. It keeps types that it does not know: a server refuses those itself.
func onlyJSON(accept string) string {
	var left []string
	for _, t := range strings.Split(accept, ",") {
		if t = strings.TrimSpace(t); t != "" && (encodingOf(t) == "json" || encodingOf(t) == "") {
			left = append(left, t)
		}
	}
	return cmp.Or(strings.Join(left, ","), "application/json")
}

// weighed is a body whose JSON is not heavier than is taken.
type weighed struct {
	io.Closer
	from io.Reader
	fail func() error
}

func (w *weighed) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if errors.Is(err, weight.ErrTooHeavy) {
		err = w.fail()
	}
	return n, err
}

// limited is a body of which no more than left is read.
type limited struct {
	io.ReadCloser
	left int64
	fail func() error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.fail()
	}
	// One byte more than allowed tells a body that ends there from one that goes on.
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return n - 1, l.fail()
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// final is a ResponseWriter that a server's informational answers (1xx) do not
// get through: the reverse proxy writes their headers over the gateway's own.
type final struct {
	http.ResponseWriter
	staged  http.Header
	written bool
}

func (f *final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Header is a draft until the answer proper, and then the real one, for trailers.
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

// buffers lend what bodies are copied with.
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
