package policy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// outcome is what became of a create that was let in.
type outcome int

const (
	unknown  outcome = iota // it may have created the object, or may yet
	landed                  // it has
	returned                // it has not, and will not
)

func (o outcome) String() string { return [...]string{"unknown", "landed", "returned"}[o] }

// outcomeOf decides by the answer's status, 0 if there was none, and by whether
// the request is known never to have been sent. An answer that only may mean
// that nothing was created leaves the outcome unknown: a server may say 500 of
// what it has written.
func outcomeOf(status int, unsent bool) outcome {
	switch {
	case status >= 200 && status < 300:
		return landed
	case unsent:
		return returned
	case status == http.StatusRequestTimeout, status == 499:
		return unknown
	case status >= 400 && status < 500:
		return returned
	default:
		return unknown
	}
}

// journey is what is seen of a request on its way to a server.
type journey struct{ connected atomic.Bool }

// follow returns a context in which a request's journey is seen: net/http tells
// of a connection before it writes to it.
func follow(ctx context.Context) (context.Context, *journey) {
	j := &journey{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { j.connected.Store(true) },
	}), j
}

// neverSent says that no byte of the request has left: there was no connection
// to be had, or none was asked for.
func (j *journey) neverSent() bool { return !j.connected.Load() }

// statusWriter remembers the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the first status that is final.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write is a 200 if no status was written before.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer underneath.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
