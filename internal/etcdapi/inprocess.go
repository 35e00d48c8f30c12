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

// inProcessBuffer is what a connection holds in each direction, in bytes. An
// API server opens one connection a resource, so it is small.
const inProcessBuffer = 32 << 10

// NewInProcess returns an in-process connection point.
func NewInProcess() *InProcess { return &InProcess{lis: bufconn.Listen(inProcessBuffer)} }

// Listener is what the server serves.
func (p *InProcess) Listener() net.Listener { return p.lis }

// Dial connects a client. It ends early when ctx does.
func (p *InProcess) Dial(ctx context.Context) (net.Conn, error) { return p.lis.DialContext(ctx) }
