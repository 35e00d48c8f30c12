package policy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// outcome is the outcome of a create that had a reservation.
type outcome int

const (
	unknown outcome = iota // it may have created the object, or may still do so
	landed                 // it has created the object, or may have
	failed                 // it has not created the object, and never will
)

func (o outcome) String() string { return [...]string{"unknown", "landed", "failed"}[o] }

// outcomeOf decides by the answer's status, 0 if there was none, and by unsent:
// the request is known never to have been sent. If an answer does not prove that
// nothing was created, the outcome is unknown: a server may answer 500 after it has
// written the object.
func outcomeOf(status int, unsent bool) outcome {
	switch {
	case status >= 200 && status < 300:
		return landed
	case unsent:
		return failed
	case status == http.StatusRequestTimeout, status == 499:
		return unknown
	case status >= 400 && status < 500:
		return failed
	default:
		return unknown
	}
}

// connection says whether a request got a connection to a server.
type connection struct{ got atomic.Bool }

// trace returns a context that notes whether its request gets a connection:
// net/http tells of that before it writes to the connection.
func trace(ctx context.Context) (context.Context, *connection) {
	c := &connection{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}), c
}

// neverSent says that no byte of the request was sent, because it never had a
// connection.
func (c *connection) neverSent() bool { return !c.got.Load() }

// statusWriter is a ResponseWriter that remembers the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the first status that is not informational (1xx).
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write means status 200 if no status was written before.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
