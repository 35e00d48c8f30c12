package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/xbernetes/xbernetes/internal/weight"
)

// An Event is one of a watch.
type Event struct {
	Type   string `json:"type"`
	Object Object `json:"object"`
}

// A Watch is a watch that is open. Its user must close it.
type Watch struct {
	request Request
	body    io.ReadCloser
	decoder *json.Decoder
	stop    context.CancelFunc
}

// A RefusedError is the error of a watch that the server answered otherwise
// than with 200. It wraps a check.Skipped if the caller may not watch.
type RefusedError struct {
	Answer *Answer
	err    error
}

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// Watch opens a watch of a collection. The watch may take as long as its
// timeoutSeconds, and one request more. If the server refuses, the error is a
// *RefusedError.
func (c *Client) Watch(ctx context.Context, path string, seconds int, query url.Values) (*Watch, error) {
	query.Set("watch", "true")
	query.Set("timeoutSeconds", strconv.Itoa(seconds))
	r := Request{Path: path, Query: query}
	limit := time.Duration(seconds)*time.Second + c.timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the watch did not end within %v, and it was asked to after %d s", limit, seconds))
	resp, err := c.send(ctx, outgoing{Request: r, method: http.MethodGet})
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		return nil, refusal(r, resp)
	}
	body := json.NewDecoder(weight.NewReader(io.LimitReader(contextual{resp.Body, ctx}, mostBytes), mostDecoded))
	return &Watch{request: r, body: resp.Body, decoder: body, stop: cancel}, nil
}

// refusal reads the answer to a watch that the server refused.
func refusal(r Request, resp *http.Response) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	a := &Answer{request: r.String(), Status: resp.StatusCode, Header: resp.Header, Body: body}
	return &RefusedError{Answer: a, err: a.Is(http.StatusOK)}
}

// contextual reads, and says why the context ended if it did.
type contextual struct {
	io.Reader
	ctx context.Context
}

func (c contextual) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if cause := context.Cause(c.ctx); err != nil && cause != nil {
		err = cause
	}
	return n, err
}

// Close ends the watch.
func (w *Watch) Close() {
	w.stop()
	w.body.Close()
}

// Errorf returns an error about this watch.
func (w *Watch) Errorf(format string, args ...any) error { return w.request.Errorf(format, args...) }

// Next waits for an event. The error is io.EOF once the watch has ended.
func (w *Watch) Next() (Event, error) {
	var e Event
	if err := w.decoder.Decode(&e); err != nil {
		if errors.Is(err, io.EOF) {
			return e, io.EOF
		}
		return e, w.Errorf("read an event: %w", err)
	}
	switch e.Type {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR":
	default:
		return e, w.Errorf("an event has type %q; want ADDED, MODIFIED, DELETED, BOOKMARK or ERROR", e.Type)
	}
	if e.Object == nil {
		return e, w.Errorf("an event of type %s has no object", e.Type)
	}
	return e, nil
}
