package door

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit bounds the connections that l accepts: most in all, and of one address
// as many as are free. One beyond that is closed at once, before TLS: its client
// sees a connection that was reset. It is told to log, which may be nil, at most
// every ten seconds.
func Limit(l net.Listener, most int, log *slog.Logger) net.Listener {
	return &listener{Listener: l, shares: NewShares(most), log: log, say: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
}

type listener struct {
	net.Listener
	shares *Shares
	log    *slog.Logger
	say    rate.Sometimes
}

// Accept waits for a connection that may stay.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			host = c.RemoteAddr().String()
		}
		if l.shares.Enter(host) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.shares.Leave(host) })}, nil
		}
		_ = c.Close() // nothing was sent on it
		l.say.Do(func() {
			if l.log != nil {
				l.log.Warn("connection refused: too many are open, in all or of this address", "address", host, "open", l.shares.Taken())
			}
		})
	}
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
