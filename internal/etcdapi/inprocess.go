package etcdapi

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// InProcess connects clients in this process to a server, without a port.
type InProcess struct {
	lis *bufconn.Listener
}

// What a connection in process holds, in bytes: in each direction, and in the
// server's reader. An API server opens one connection a resource, so it is not
// much; but large lists go faster with more.
const (
	inProcessBuffer = 32 << 10
	inProcessRead   = 8 << 10
)

// NewInProcess returns an in-process connection point.
func NewInProcess() *InProcess { return &InProcess{lis: bufconn.Listen(inProcessBuffer)} }

// Listener is what the server serves.
func (p *InProcess) Listener() net.Listener { return p.lis }

// Dial connects a client. It ends early when ctx does.
func (p *InProcess) Dial(ctx context.Context) (net.Conn, error) { return p.lis.DialContext(ctx) }
