// Package ask asks an API server and reads its answers, within bounds of time
// and size. It never decides which convention an answer is held to.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/weight"
)

// Bounds on one answer, and on one watch. OpenAPI v2 of a large cluster has some
// 10 MB.
const (
	mostBytes   = 32 << 20
	mostDecoded = 96 << 20 // as package weight counts it
)

// Media types of requests.
const (
	JSON       = "application/json"
	ApplyPatch = "application/apply-patch+yaml"
	MergePatch = "application/merge-patch+json"
)

// A Client asks one server. It follows no redirect and reads no more of an
// answer than the bounds allow, because the server may be faulty or hostile.
type Client struct {
	http    *http.Client
	base    *url.URL
	timeout time.Duration // for one answer
}

// NewClient makes a client of the server that config reaches.
func NewClient(config *rest.Config, timeout time.Duration) (*Client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "xb-conformance"
	config.Timeout = 0 // each request has its own
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("understand the server's URL: %w", err)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", base.Redacted(), err)
	}
	// A copy: http.DefaultClient must not change.
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &own, base: base, timeout: timeout}, nil
}

// String is the server's URL, without its password.
func (c *Client) String() string { return strings.TrimSuffix(c.base.Redacted(), "/") }

// Timeout is how long one answer is awaited.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Below makes a path relative to the server's own URL, if the path repeats it.
func (c *Client) Below(path string) string {
	if base := strings.TrimSuffix(c.base.Path, "/"); base != "" && strings.HasPrefix(path, base+"/") {
		path = strings.TrimPrefix(path, base)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

// A Request is a GET.
type Request struct {
	Path   string
	Query  url.Values
	Accept string // empty means JSON
	Header http.Header
}

func (r Request) String() string { return line(http.MethodGet, r.Path, r.Query) }

// Errorf returns an error about the answer to this request.
func (r Request) Errorf(format string, args ...any) error { return errorf(r.String(), format, args) }

func line(method, path string, query url.Values) string {
	if len(query) == 0 {
		return method + " " + path
	}
	return method + " " + path + "?" + query.Encode()
}

func errorf(request, format string, args []any) error {
	return fmt.Errorf("%s: "+format, append([]any{request}, args...)...)
}

// A Change is a request that may change something.
type Change struct {
	Method      string
	Path        string
	Query       url.Values
	ContentType string // empty means JSON
	Body        Object
}

// outgoing is a request as it is sent.
type outgoing struct {
	Request
	method      string
	contentType string
	body        []byte // nil: there is none
}

func (o outgoing) String() string { return line(o.method, o.Path, o.Query) }

func (c *Client) send(ctx context.Context, o outgoing) (*http.Response, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + o.Path
	u.RawQuery = o.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, o.method, u.String(), bytes.NewReader(o.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	for name, values := range o.Header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", orJSON(o.Accept))
	if o.body != nil {
		req.Header.Set("Content-Type", orJSON(o.contentType))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // it repeats the URL
		}
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return resp, nil
}

func orJSON(media string) string {
	if media == "" {
		return JSON
	}
	return media
}

// roundTrip sends a request and reads the answer, whatever its status.
func (c *Client) roundTrip(ctx context.Context, o outgoing) (*Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no whole answer within %v", c.timeout))
	defer cancel()
	resp, err := c.send(ctx, o)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s: %w", o, cause)
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes+1))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s: read the answer: %w", o, err)
	}
	if len(body) > mostBytes {
		return nil, fmt.Errorf("%s: the answer has more than %d MiB", o, mostBytes>>20)
	}
	if weight.Of(body) > mostDecoded {
		return nil, fmt.Errorf("%s: %w", o, weight.ErrTooHeavy)
	}
	return &Answer{request: o.String(), Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// Get sends a GET and reads the answer, whatever its status.
func (c *Client) Get(ctx context.Context, r Request) (*Answer, error) {
	return c.roundTrip(ctx, outgoing{Request: r, method: http.MethodGet})
}

// JSON gets a path, wants 200 and JSON, and decodes the answer into what v
// points to.
func (c *Client) JSON(ctx context.Context, path string, v any) (*Answer, error) {
	a, err := c.Get(ctx, Request{Path: path})
	if err != nil {
		return nil, err
	}
	return a, a.JSON(http.StatusOK, v)
}

// Object gets an object, and wants 200.
func (c *Client) Object(ctx context.Context, r Request) (Object, error) {
	a, err := c.Get(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.Object(http.StatusOK)
}

// List gets a list, or a page of it, and the objects in it, and wants 200.
func (c *Client) List(ctx context.Context, r Request) (Object, []Object, error) {
	list, err := c.Object(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	items, err := list.Items()
	if err != nil {
		return nil, nil, r.Errorf("%w", err)
	}
	return list, items, nil
}

// Change sends a request that may change something, and reads the answer,
// whatever its status.
func (c *Client) Change(ctx context.Context, change Change) (*Answer, error) {
	body, err := json.Marshal(change.Body)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	return c.roundTrip(ctx, outgoing{
		Request: Request{Path: change.Path, Query: change.Query},
		method:  change.Method, contentType: change.ContentType, body: body,
	})
}
