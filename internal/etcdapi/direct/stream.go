package direct

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// stream is one call whose messages come one after the other.
type stream struct {
	services *Services
	opts     []grpc.CallOption // of the caller
	// client ends when the caller gives the call up. service ends with client, and when
	// the service's handler has returned.
	client, service context.Context
	up, down        *lane // to the service, and to the client
	err             error // how the handler ended; set before down is closed
}

// open is a grpc.StreamClientInterceptor, the last of a client: it runs the service's
// handler in place of the connection, in a goroutine that ends when the handler
// returns. A handler has to return when its stream's context ends.
func (s *Services) open(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, name string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := s.streams[name]
	if !ok {
		return nil, s.unknown(name)
	}
	if err := ctx.Err(); err != nil {
		return nil, told(err)
	}
	st := &stream{services: s, opts: opts, client: ctx, up: newLane(), down: newLane()}
	service, end := context.WithCancel(ctx)
	st.service = service
	go func() {
		defer st.down.close()
		defer end()
		if st.err = s.ready(service); st.err == nil {
			st.err = told(m.handle(m.service, serviceEnd{st}))
		}
	}()
	return clientEnd{st}, nil
}

// clientEnd is the stream as the caller sees it.
type clientEnd struct{ *stream }

func (c clientEnd) Context() context.Context     { return c.client }
func (c clientEnd) Header() (metadata.MD, error) { return nil, nil }
func (c clientEnd) Trailer() metadata.MD         { return nil }
func (c clientEnd) CloseSend() error             { c.up.close(); return nil }

// SendMsg implements grpc.ClientStream: its error is io.EOF if the call has ended, and
// RecvMsg then says how.
func (c clientEnd) SendMsg(m any) error {
	b, err := c.services.ask(m, c.opts)
	if err != nil {
		return err
	}
	if err := c.up.send(c.service, b); err != nil {
		b.Free()
		return io.EOF
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (c clientEnd) RecvMsg(m any) error {
	b, err := c.down.receive(c.client)
	switch {
	case errors.Is(err, io.EOF) && c.err != nil:
		return c.err
	case errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return told(err)
	}
	defer b.Free()
	return c.services.decode(b, m)
}

// serviceEnd is the stream as the handler sees it.
type serviceEnd struct{ *stream }

var errNoMetadata = status.Error(codes.Unimplemented, "a call within a process carries no metadata")

func (s serviceEnd) Context() context.Context     { return s.service }
func (s serviceEnd) SetHeader(metadata.MD) error  { return errNoMetadata }
func (s serviceEnd) SendHeader(metadata.MD) error { return errNoMetadata }
func (s serviceEnd) SetTrailer(metadata.MD)       {}

// SendMsg implements grpc.ServerStream. It waits while the lane to the client is full.
func (s serviceEnd) SendMsg(m any) error {
	b, err := s.services.encode(m)
	if err != nil {
		return err
	}
	if err := s.down.send(s.service, b); err != nil {
		b.Free()
		return told(err)
	}
	return nil
}

// RecvMsg implements grpc.ServerStream: its error is io.EOF once the client sends no more.
func (s serviceEnd) RecvMsg(m any) error {
	b, err := s.up.receive(s.service)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return told(err)
	}
	defer b.Free()
	return s.services.decode(b, m)
}
