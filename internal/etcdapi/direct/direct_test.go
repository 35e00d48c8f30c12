package direct_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	text "google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xbernetes/xbernetes/internal/etcdapi/direct"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a service for tests: it does what the text of a question says.
var echo = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		q := new(text.StringValue)
		if err := decode(q); err != nil {
			return nil, err
		}
		return answer(ctx, q.Value)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			q := new(text.StringValue)
			if err := s.RecvMsg(q); errors.Is(err, io.EOF) {
				return s.SendMsg(text.String("bye"))
			} else if err != nil {
				return err
			}
			a, err := answer(s.Context(), q.Value)
			if err != nil {
				return err
			}
			if err := s.SendMsg(a); err != nil {
				return err
			}
		}
	}}},
}

func answer(ctx context.Context, q string) (*text.StringValue, error) {
	switch q {
	case "status":
		return nil, status.Error(codes.OutOfRange, "as it is")
	case "wrapped":
		return nil, fmt.Errorf("look: %w", status.Error(codes.Aborted, "inside"))
	case "plain":
		return nil, errors.New("no status")
	case "wait":
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return text.String(strings.ToUpper(q)), nil
	}
}

// clients are the two ways to the service.
func clients(t *testing.T) map[string]*grpc.ClientConn {
	const limit = 1 << 10
	lis, server := bufconn.Listen(1<<16), grpc.NewServer(grpc.MaxRecvMsgSize(limit))
	server.RegisterService(&echo, nil)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	services := direct.New(direct.Config{
		Codec: encoding.GetCodecV2(proto.Name), MaxRecvBytes: limit,
		Ready: func(context.Context) error { return nil },
	})
	services.RegisterService(&echo, nil)
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })
	conns := map[string]*grpc.ClientConn{}
	for name, opts := range map[string][]grpc.DialOption{"grpc": {dial}, "direct": services.DialOptions()} {
		c, err := grpc.NewClient("passthrough:///x", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		// A connection that is not up yet has other words for a deadline.
		if err := c.Invoke(t.Context(), "/test.Echo/Say", text.String(""), new(text.StringValue), grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		conns[name] = c
	}
	return conns
}

// same runs do both ways, and fails unless it tells the same of both.
func same(t *testing.T, what string, do func(*grpc.ClientConn) []string) {
	t.Helper()
	conns := clients(t)
	want, got := do(conns["grpc"]), do(conns["direct"])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: over grpc (-) and direct (+):\n%s", what, diff)
	}
	t.Logf("%s: %q", what, got)
}

func said(a *text.StringValue, err error) string {
	if err != nil {
		return fmt.Sprint(err)
	}
	return a.Value
}

// TestCalls: a call is answered, refused, and given up as over a connection.
func TestCalls(t *testing.T) {
	for _, q := range []string{"hello", "", "status", "wrapped", "plain", strings.Repeat("x", 2<<10)} {
		same(t, "say "+q[:min(len(q), 9)], func(c *grpc.ClientConn) []string {
			a := new(text.StringValue)
			err := c.Invoke(t.Context(), "/test.Echo/Say", text.String(q), a)
			return []string{said(a, err)}
		})
	}
	for _, name := range []string{"/test.Echo/Sing", "/test.Bird/Sing"} {
		same(t, name, func(c *grpc.ClientConn) []string {
			return []string{said(nil, c.Invoke(t.Context(), name, text.String(""), new(text.StringValue)))}
		})
	}
	same(t, "more than the client sends", func(c *grpc.ClientConn) []string {
		return []string{said(nil, c.Invoke(t.Context(), "/test.Echo/Say", text.String("hello"), new(text.StringValue), grpc.MaxCallSendMsgSize(3)))}
	})
	same(t, "a deadline", func(c *grpc.ClientConn) []string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		during := c.Invoke(ctx, "/test.Echo/Say", text.String("wait"), new(text.StringValue))
		after := c.Invoke(ctx, "/test.Echo/Say", text.String("hello"), new(text.StringValue))
		return []string{status.Code(during).String(), said(nil, after)} // over a connection the words differ by who notices first
	})
}

// TestStreams: messages come in order, and the end of either side is told as over a
// connection.
func TestStreams(t *testing.T) {
	open := func(t *testing.T, ctx context.Context, c *grpc.ClientConn) grpc.ClientStream {
		s, err := c.NewStream(ctx, &echo.Streams[0], "/test.Echo/Talk")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hear := func(s grpc.ClientStream) string {
		a := new(text.StringValue)
		return said(a, s.RecvMsg(a))
	}
	for _, last := range []string{"hello", "status", "plain"} {
		same(t, "talk until "+last, func(c *grpc.ClientConn) (heard []string) {
			s := open(t, t.Context(), c)
			for _, q := range []string{"a", "", last} {
				heard = append(heard, said(text.String("sent"), s.SendMsg(text.String(q))), hear(s))
			}
			return append(heard, said(text.String("sent"), s.CloseSend()), hear(s), hear(s))
		})
	}
	same(t, "give it up", func(c *grpc.ClientConn) []string {
		ctx, cancel := context.WithCancel(t.Context())
		s := open(t, ctx, c)
		_ = s.SendMsg(text.String("wait"))
		time.AfterFunc(10*time.Millisecond, cancel)
		heard := hear(s)
		return []string{heard, said(text.String("sent"), s.SendMsg(text.String("more")))}
	})
}

// TestSendersWait: whoever sends more than a stream has room for waits until the other
// side has received, or the call ends; nothing is lost, and all comes in order.
func TestSendersWait(t *testing.T) {
	const messages, long = 5000, 1000 // five times the room
	sent := make(chan int, 1)
	s := direct.New(direct.Config{Codec: encoding.GetCodecV2(proto.Name), MaxRecvBytes: 1 << 20, Ready: func(context.Context) error { return nil }})
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Flood", Streams: []grpc.StreamDesc{{StreamName: "Pour", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for i := range messages {
			if err := s.SendMsg(text.String(fmt.Sprintf("%*d", long, i))); err != nil {
				sent <- i
				return err
			}
		}
		sent <- messages
		return nil
	}}}}, nil)
	c, err := grpc.NewClient("passthrough:///x", append(s.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pour := func(ctx context.Context) grpc.ClientStream {
		stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/test.Flood/Pour")
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	lazy, giveUp := context.WithCancel(t.Context())
	pour(lazy)
	time.AfterFunc(50*time.Millisecond, giveUp)
	if n := <-sent; n < 100 || n > 2000 {
		t.Errorf("a client that reads nothing is sent %d messages of %d bytes, want about 1000", n, long)
	}
	quick := pour(t.Context())
	for i := range messages {
		a := new(text.StringValue)
		if err := quick.RecvMsg(a); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%*d", long, i); a.Value != want {
			t.Fatalf("message %d is %q", i, a.Value)
		}
	}
	if err := quick.RecvMsg(new(text.StringValue)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
	<-sent
}

// TestReadiness: a call is not begun before the services are ready, and its answer is
// the reason if they never are.
func TestReadiness(t *testing.T) {
	never := status.Error(codes.Unavailable, "never")
	s := direct.New(direct.Config{Codec: encoding.GetCodecV2(proto.Name), MaxRecvBytes: 1 << 10, Ready: func(context.Context) error { return never }})
	s.RegisterService(&echo, nil)
	c, err := grpc.NewClient("passthrough:///x", append(s.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Invoke(t.Context(), "/test.Echo/Say", text.String("hello"), new(text.StringValue)); !errors.Is(err, never) {
		t.Errorf("a call: %v", err)
	}
	stream, err := c.NewStream(t.Context(), &echo.Streams[0], "/test.Echo/Talk")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(text.StringValue)); !errors.Is(err, never) {
		t.Errorf("a stream: %v", err)
	}
}
