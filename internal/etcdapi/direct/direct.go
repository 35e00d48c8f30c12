// Package direct carries gRPC calls from clients to services in the same process without a
// connection: there is no port and no HTTP/2, and a call with one answer takes no goroutine.
// It never reads the content of a message.
//
// Each message crosses as the bytes into which the codec encodes it, so that neither side
// ever holds memory of the other. Deadlines, cancellation, the values of the caller's
// context, size limits and errors (with grpc's texts) cross too. Metadata, compression and
// credentials do not cross: within a process nobody needs them. As there is no connection,
// closing a client does not end a stream that its caller opened with another context.
package direct

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Config is what Services need. Codec and Ready are required.
type Config struct {
	// Codec turns the messages of both sides into bytes and back. A decoded message
	// keeps no reference to the bytes.
	Codec encoding.CodecV2
	// Ready waits until the services can answer. It is called before each call; its
	// error becomes the answer.
	Ready func(context.Context) error
	// MaxRecvBytes is the size of the longest message that a service takes.
	MaxRecvBytes int
}

// Services holds the services that clients in this process call. It implements
// grpc.ServiceRegistrar; register all services before the first call.
type Services struct {
	cfg     Config
	names   map[string]bool // of services
	methods map[string]method
	streams map[string]streaming
}

type method struct {
	service any
	handle  grpc.MethodHandler
}

type streaming struct {
	service any
	handle  grpc.StreamHandler
}

// New returns Services that has no service yet.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, names: map[string]bool{}, methods: map[string]method{}, streams: map[string]streaming{}}
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Services) RegisterService(desc *grpc.ServiceDesc, service any) {
	s.names[desc.ServiceName] = true
	for _, m := range desc.Methods {
		s.methods["/"+desc.ServiceName+"/"+m.MethodName] = method{service, m.Handler}
	}
	for _, m := range desc.Streams {
		s.streams["/"+desc.ServiceName+"/"+m.StreamName] = streaming{service, m.Handler}
	}
}

// DialOptions make a grpc.ClientConn that calls the services. It never dials its
// target. Interceptors of the client that come before these run as usual.
func (s *Services) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.call), grpc.WithChainStreamInterceptor(s.open)}
}

// call is a grpc.UnaryClientInterceptor, the last of a client: it runs the service's
// handler in place of the connection, in the caller's goroutine.
func (s *Services) call(ctx context.Context, name string, question, answer any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	m, ok := s.methods[name]
	if !ok {
		return s.unknown(name)
	}
	asked, err := s.ask(question, opts)
	if err != nil {
		return err
	}
	defer asked.Free()
	if err := s.ready(ctx); err != nil {
		return err
	}
	answered, err := m.handle(m.service, ctx, func(q any) error { return s.decode(asked, q) }, nil)
	if err != nil {
		return told(err)
	}
	b, err := s.encode(answered)
	if err != nil {
		return err
	}
	defer b.Free()
	return s.decode(b, answer)
}

// ready waits until the services can answer, or ctx ends.
func (s *Services) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return told(err)
	}
	return told(s.cfg.Ready(ctx))
}

// ask returns the bytes of a client's message, unless they are more than the client's
// options or the services allow.
func (s *Services) ask(m any, opts []grpc.CallOption) (mem.BufferSlice, error) {
	b, err := s.encode(m)
	if err != nil {
		return nil, err
	}
	n := b.Len()
	for _, opt := range opts {
		if o, ok := opt.(grpc.MaxSendMsgSizeCallOption); ok && n > o.MaxSendMsgSize {
			err = status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, o.MaxSendMsgSize)
		}
	}
	if err == nil && n > s.cfg.MaxRecvBytes {
		err = status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, s.cfg.MaxRecvBytes)
	}
	if err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}

func (s *Services) encode(m any) (mem.BufferSlice, error) {
	b, err := s.cfg.Codec.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	return b, nil
}

func (s *Services) decode(b mem.BufferSlice, m any) error {
	if err := s.cfg.Codec.Unmarshal(b, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// unknown returns grpc's answer to a call of a method that is not registered.
func (s *Services) unknown(name string) error {
	service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	if s.names[service] {
		return status.Error(codes.Unimplemented, fmt.Sprintf("unknown method %v for service %v", method, service))
	}
	return status.Error(codes.Unimplemented, fmt.Sprintf("unknown service %v", service))
}

// told returns a handler's error as a client of grpc gets it: always a status.
func told(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.FromContextError(err).Err()
}
