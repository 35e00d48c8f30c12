// Package pipe connects two parties of one process by connections that are used
// like those of a network: a Listener, its Dial, and buffered net.Conns. It never
// leaves the process, and knows nothing of what is sent.
package pipe

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener that only this process reaches, by Dial. All methods
// may be called from many goroutines.
type Listener struct {
	buffer int
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen returns a Listener. Its connections hold up to buffer bytes in each
// direction that were written and not read yet; buffer is above 0.
func Listen(buffer int) *Listener {
	closed := make(chan struct{})
	return &Listener{buffer: buffer, dialed: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Accept returns the server's end of the next connection, or net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Dial returns the client's end of a new connection once somebody has accepted
// it. It returns early if ctx ends or the listener is closed.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	client, server := pair(l.buffer)
	select {
	case l.dialed <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends Accept and Dial. Connections that are open stay open.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener: there is no address.
func (l *Listener) Addr() net.Addr { return addr{} }

// addr is the address of every listener and every end of a connection.
type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "pipe" }
