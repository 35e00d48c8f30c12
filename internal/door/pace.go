package door

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Pacing is how fast a caller has to be. The zero value is useful.
type Pacing struct {
	// Grace is how long the server waits for parts of one request's body in all,
	// besides the time that the bytes take that have come at Rate; 20 s.
	Grace time.Duration
	// Rate is the least speed of a body beyond Grace, in bytes a second; 8 KiB.
	Rate int64
	// Stall is how long a part of an answer may take to be sent; 30 s. Time in
	// which there is nothing to send does not count.
	Stall time.Duration
	// Streams says which requests have bodies that take as long as they like;
	// nil: none.
	Streams func(*http.Request) bool
}

// ErrSlow is the error of reading the body of a caller that is too slow.
var ErrSlow = errors.New("the request's body does not arrive: it was given up")

// Pace ends requests whose callers are slower than they have to be.
func Pace(next http.Handler, p Pacing) http.Handler {
	if p.Grace == 0 {
		p.Grace = 20 * time.Second
	}
	if p.Rate == 0 {
		p.Rate = 8 << 10
	}
	if p.Stall == 0 {
		p.Stall = 30 * time.Second
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{pacing: p, ctl: http.NewResponseController(w)}
		if r.ProtoMajor == 1 {
			// The deadline of the request before, on this connection.
			x.ctl.SetWriteDeadline(time.Time{}) //nolint:errcheck // a test's recorder has none
		}
		defer x.end()
		if r.Body != nil && r.Body != http.NoBody && (p.Streams == nil || !p.Streams(r)) {
			x.bodied = true
			r.Body = &body{ReadCloser: r.Body, x: x}
		}
		next.ServeHTTP(x.wrap(w), r)
	})
}

// exchange is one request and its answer.
type exchange struct {
	pacing Pacing
	ctl    *http.ResponseController
	bodied bool // has a body that is paced

	mu       sync.Mutex
	ended    bool // the handler has returned: ctl must not be used; guarded by mu
	hijacked bool // guarded by mu
	read     bool // the body was read to its end; guarded by mu
}

// watch runs f, and calls late if that takes longer than d.
func (x *exchange) watch(d time.Duration, late func(), f func()) {
	running := true // guarded by x.mu
	timer := time.AfterFunc(d, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if running && !x.ended && !x.hijacked {
			late()
		}
	})
	f()
	timer.Stop()
	x.mu.Lock()
	running = false
	x.mu.Unlock()
}

// end leaves the connection with deadlines for what the server itself still
// does of this request: to send the rest of the answer, and to read what is left
// of the body.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.hijacked {
		return
	}
	x.ctl.SetWriteDeadline(time.Now().Add(x.pacing.Stall)) //nolint:errcheck // a test's recorder has none
	if x.bodied && !x.read {
		x.ctl.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // the same
	}
}

// body is a request's that has to get on. One goroutine reads it at a time.
type body struct {
	io.ReadCloser
	x      *exchange
	waited time.Duration
	bytes  int64
	slow   bool
}

func (b *body) Read(p []byte) (n int, err error) {
	allowed := b.x.pacing.Grace + time.Duration(b.bytes/b.x.pacing.Rate)*time.Second - b.waited
	start := time.Now()
	b.x.watch(allowed, func() {
		b.slow = true
		b.x.ctl.SetReadDeadline(time.Now()) //nolint:errcheck // without deadlines nothing can be done
	}, func() { n, err = b.ReadCloser.Read(p) })
	b.waited += time.Since(start)
	b.bytes += int64(n)
	if err == nil {
		return n, nil
	}
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	b.x.read = errors.Is(err, io.EOF)
	if b.slow {
		err = fmt.Errorf("%w after %d bytes", ErrSlow, b.bytes)
	}
	return n, err
}

// wrap makes a ResponseWriter that can do what w can.
func (x *exchange) wrap(w http.ResponseWriter) http.ResponseWriter {
	paced := &writer{ResponseWriter: w, x: x}
	if _, ok := w.(http.Hijacker); ok {
		return &hijacker{paced}
	}
	return paced
}

// writer sends an answer to a caller who has to take it.
type writer struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap lets a ResponseController at what is below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// late ends a write: it may wait for the caller to take the answer, or, over
// HTTP/1, to send the rest of a body that the handler did not read.
func (w *writer) late() {
	w.x.ctl.SetWriteDeadline(time.Now()) //nolint:errcheck // without deadlines nothing can be done
	if w.x.bodied && !w.x.read {
		w.x.ctl.SetReadDeadline(time.Now()) //nolint:errcheck // the same
	}
}

func (w *writer) Write(p []byte) (n int, err error) {
	w.x.watch(w.x.pacing.Stall, w.late, func() { n, err = w.ResponseWriter.Write(p) })
	return n, err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is Flush for a ResponseController.
func (w *writer) FlushError() (err error) {
	w.x.watch(w.x.pacing.Stall, w.late, func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// CloseNotify implements http.CloseNotifier, without which apiserver takes a
// ResponseWriter for one that cannot be flushed.
func (w *writer) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(http.CloseNotifier); ok { //nolint:staticcheck // see above
		return n.CloseNotify()
	}
	return make(chan bool)
}

// hijacker is a writer whose connection can be taken over.
type hijacker struct{ *writer }

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.x.mu.Lock()
	defer h.x.mu.Unlock()
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.x.hijacked = err == nil
	return c, rw, err
}
