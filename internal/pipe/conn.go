package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection: two lanes, of which each end reads one and
// writes the other.
type conn struct{ in, out *lane }

// pair returns the two ends of a new connection.
func pair(buffer int) (net.Conn, net.Conn) {
	a, b := newLane(buffer), newLane(buffer)
	return &conn{in: a, out: b}, &conn{in: b, out: a}
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close lets the other end read what was written, and then io.EOF; the other end
// can write no more.
func (c *conn) Close() error {
	c.in.readEnd.close(c.in)
	c.out.writeEnd.close(c.out)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return addr{} }
func (c *conn) RemoteAddr() net.Addr { return addr{} }

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.readEnd.setDeadline(c.in, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.writeEnd.setDeadline(c.out, t) }

// lane carries bytes one way: a ring that one end fills and the other empties.
type lane struct {
	mu sync.Mutex // guards all that follows

	// ring[start:start+n], taken modulo len(ring), is written and not read yet.
	// Invariant: 0 <= start < len(ring), 0 <= n <= len(ring); start is 0 if n is.
	ring     []byte
	start, n int

	// readEnd waits for n > 0, writeEnd for n < len(ring).
	readEnd, writeEnd end
}

// end is what one of the two ends has of a lane; the lane's mutex guards it.
type end struct {
	wake   sync.Cond // whoever waits at this end
	closed bool      // this end was closed
	late   bool      // the deadline has passed
	timer  *time.Timer
}

func newLane(buffer int) *lane {
	l := &lane{ring: make([]byte, buffer)}
	l.readEnd.wake.L, l.writeEnd.wake.L = &l.mu, &l.mu
	return l
}

// read waits until there is something to read, and copies as much as fits in p.
func (l *lane) read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.n == 0 || l.readEnd.closed || l.readEnd.late {
		if err := l.readEnd.err(); err != nil || len(p) == 0 {
			return 0, err
		}
		if l.writeEnd.closed {
			return 0, io.EOF
		}
		l.readEnd.wake.Wait()
	}
	return l.take(p), nil
}

// write waits until all of p is in the lane, and returns how much of it is.
func (l *lane) write(p []byte) (written int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.writeEnd.err(); err != nil {
			return written, err
		}
		if l.readEnd.closed {
			return written, io.ErrClosedPipe
		}
		n := l.put(p[written:])
		if written += n; written == len(p) {
			return written, nil
		}
		if n == 0 {
			l.writeEnd.wake.Wait()
		}
	}
}

// take moves bytes from the ring to p, and wakes a writer that found it full.
func (l *lane) take(p []byte) int {
	full := l.n == len(l.ring)
	taken := copy(p, l.ring[l.start:min(l.start+l.n, len(l.ring))])
	if rest := l.n - taken; rest > 0 && l.start+taken == len(l.ring) {
		taken += copy(p[taken:], l.ring[:rest])
	}
	l.start, l.n = (l.start+taken)%len(l.ring), l.n-taken
	if l.n == 0 {
		l.start = 0 // the same few pages of memory for small messages
	}
	if full && taken > 0 {
		l.writeEnd.wake.Signal()
	}
	return taken
}

// put moves bytes from p to the ring, as many as there is room for, and wakes a
// reader that found it empty.
func (l *lane) put(p []byte) int {
	empty := l.n == 0
	put := 0
	for put < len(p) && l.n < len(l.ring) {
		from := (l.start + l.n) % len(l.ring)
		to := len(l.ring)
		if from < l.start {
			to = l.start
		}
		n := copy(l.ring[from:to], p[put:])
		put, l.n = put+n, l.n+n
	}
	if empty && put > 0 {
		l.readEnd.wake.Signal()
	}
	return put
}

// err says why nothing can be done at this end; nil if something can.
func (e *end) err() error {
	switch {
	case e.closed:
		return io.ErrClosedPipe
	case e.late:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// close closes this end of l, and wakes whoever waits at either.
func (e *end) close(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	l.readEnd.wake.Broadcast()
	l.writeEnd.wake.Broadcast()
}

// setDeadline makes calls at this end of l fail from t on; the zero time is never.
func (e *end) setDeadline(l *lane, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.closed {
		return io.ErrClosedPipe
	}
	if e.timer != nil {
		e.timer.Stop() // should it run already, it sees that it is not e.timer any more
		e.timer = nil
	}
	e.late = false
	if t.IsZero() {
		return nil
	}
	wait := time.Until(t)
	if wait <= 0 {
		e.late = true
		e.wake.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.timer == timer {
			e.late = true
			e.wake.Broadcast()
		}
	})
	e.timer = timer
	return nil
}
