package etcdapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startReplica runs a replica on store until the test ends.
func startReplica(t testing.TB, store journal.Store) *replica.Replica {
	t.Helper()
	notifier := notify.NewPolling(2*time.Millisecond, 20*time.Millisecond)
	r := replica.New(replica.Config{Store: store, Notifier: notifier, Logger: testLogger(t)})
	background(t, notifier.Run)
	background(t, r.Run)
	return r
}

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// background runs f until the test ends, and waits for it then.
func background(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("background run ended with %v", err)
		}
	})
}

// startServer serves the etcd API over a replica on a new memory journal, and
// returns the way to it.
func startServer(t testing.TB, change func(*etcdapi.Config)) *etcdapi.InProcess {
	t.Helper()
	cfg := etcdapi.Config{Replica: startReplica(t, memlog.New(memlog.Options{}).Open()), Logger: testLogger(t)}
	if change != nil {
		change(&cfg)
	}
	p := etcdapi.NewInProcess()
	server := etcdapi.New(cfg)
	background(t, func(ctx context.Context) error { return server.Serve(ctx, p.Listener()) })
	return p
}

// dial returns etcd's own client of the server at p.
func dial(t testing.TB, p *etcdapi.InProcess) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"http://in-process"},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newClient(t testing.TB, change func(*etcdapi.Config)) *clientv3.Client {
	t.Helper()
	return dial(t, startServer(t, change))
}

func TestStatus(t *testing.T) {
	c := newClient(t, nil)
	resp, err := c.Status(t.Context(), "http://in-process")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Version != etcdapi.Version || resp.Header.Revision != 1 || resp.Leader == 0 || resp.Leader != resp.Header.MemberId {
		t.Errorf("status is %v", resp)
	}
}
