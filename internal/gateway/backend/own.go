package backend

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/weight"
)

// Own returns a RoundTripper for the gateway's own requests to the server. It uses only
// the path and query of a request's URL, relative to the server's base. It asks for JSON,
// whose weight can be told before it is decoded, and accepts nothing else. It returns an
// error for a redirect, for an answer that is not the object of Kubernetes that was asked
// for, for an answer larger than MaxOwnBody (except of a watch), and for an answer that
// would take more than MaxOwnDecoded. Errors are Statuses that name the server.
func (b *Backend) Own() http.RoundTripper { return roundTripper(b.roundTripOwn) }

func (b *Backend) roundTripOwn(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Header.Del("Authorization")
	b.identifySelf(out.Header)
	out.Header.Set("Accept", onlyJSON(out.Header.Get("Accept")))
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", userAgent)
	}
	info, err := call.ReadURL(out) // not from the context, which may hold a caller's Call
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

// onlyJSON returns an Accept header without the encodings whose weight cannot be told. It
// keeps media types that it does not know; a server refuses those itself.
func onlyJSON(accept string) string {
	var left []string
	for _, t := range strings.Split(accept, ",") {
		if t = strings.TrimSpace(t); t != "" && (encodingOf(t) == "json" || encodingOf(t) == "") {
			left = append(left, t)
		}
	}
	return cmp.Or(strings.Join(left, ","), "application/json")
}

// weighed is a body that fails once its JSON is heavier than is allowed.
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

// limited is a body that fails once more than left bytes are read.
type limited struct {
	io.ReadCloser
	left int64
	fail func() error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.fail()
	}
	// Reading one byte more than allowed shows whether the body ends there or goes on.
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return n - 1, l.fail()
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
