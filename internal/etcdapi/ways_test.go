package etcdapi_test

import (
	"context"
	"net"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

// way is how a client in this process reaches a server. It returns what to give to the
// client, any number of times.
type way func(testing.TB, *etcdapi.Server) []grpc.DialOption

// bothWays runs a test over gRPC, and without it.
func bothWays(t *testing.T, test func(t *testing.T, via way)) {
	t.Run("grpc", func(t *testing.T) { test(t, overGRPC) })
	t.Run("direct", func(t *testing.T) { test(t, directly) })
}

func overGRPC(t testing.TB, server *etcdapi.Server) []grpc.DialOption {
	t.Helper()
	lis := bufconn.Listen(32 << 10)
	background(t, func(ctx context.Context) error { return server.Serve(ctx, lis) })
	return to(lis)
}

// to are the options of a client that connects to lis.
func to(lis *bufconn.Listener) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })}
}

func directly(_ testing.TB, server *etcdapi.Server) []grpc.DialOption { return server.InProcess() }

// startServer makes a server of the etcd API over a replica on a new memory journal,
// and returns the way to it.
func startServer(t testing.TB, via way, change func(*etcdapi.Config)) []grpc.DialOption {
	t.Helper()
	cfg := etcdapi.Config{Replica: startReplica(t, memlog.New(memlog.Options{}).Open()), Logger: testLogger(t)}
	if change != nil {
		change(&cfg)
	}
	return via(t, etcdapi.New(cfg))
}

// dial returns etcd's own client of a server.
func dial(t testing.TB, options []grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://in-process"}, Logger: zap.NewNop(), DialOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newClient(t testing.TB, via way, change func(*etcdapi.Config)) *clientv3.Client {
	t.Helper()
	return dial(t, startServer(t, via, change))
}
