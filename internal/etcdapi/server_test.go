package etcdapi_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

func TestStatus(t *testing.T) { bothWays(t, testStatus) }

func testStatus(t *testing.T, via way) {
	c := newClient(t, via, nil)
	resp, err := c.Status(t.Context(), "http://in-process")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Version != etcdapi.Version || resp.Header.Revision != 1 || resp.Leader == 0 || resp.Leader != resp.Header.MemberId {
		t.Errorf("status is %v", resp)
	}
}

// want fails unless err is etcd's error of that code.
func want(t *testing.T, what string, err error, code codes.Code) {
	t.Helper()
	if got := status.Code(err); got != code {
		t.Errorf("%s: %v (%v), want %v", what, err, got, code)
	}
}

func TestWhatIsNotServed(t *testing.T) { bothWays(t, testWhatIsNotServed) }

func testWhatIsNotServed(t *testing.T, via way) {
	c := newClient(t, via, nil)
	conn, ctx := c.ActiveConnection(), t.Context()
	_, err := pb.NewAuthClient(conn).AuthStatus(ctx, &pb.AuthStatusRequest{})
	want(t, "auth status", err, codes.Unimplemented)
	_, err = pb.NewClusterClient(conn).MemberAdd(ctx, &pb.MemberAddRequest{})
	want(t, "member add", err, codes.Unimplemented)
	snapshot, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
	if err == nil {
		_, err = snapshot.Recv()
	}
	want(t, "snapshot", err, codes.Unimplemented)
	nested := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}}
	_, err = apiOf(c).Txn(ctx, nested)
	want(t, "nested transaction", err, codes.Unimplemented)
}

func TestRequestTooLarge(t *testing.T) { bothWays(t, testRequestTooLarge) }

func testRequestTooLarge(t *testing.T, via way) {
	a := apiOf(newClient(t, via, nil))
	value := make([]byte, 3<<19)
	_, err := a.Put(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: value[:len(value)-100]})
	want(t, "put below the limit", err, codes.OK)
	_, err = a.Put(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: value})
	if !errors.Is(err, rpctypes.ErrGRPCRequestTooLarge) {
		t.Errorf("put above the limit: %v", err)
	}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: value}}}
	_, err = a.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{put}})
	if !errors.Is(err, rpctypes.ErrGRPCRequestTooLarge) {
		t.Errorf("transaction above the limit: %v", err)
	}
}

func TestLeases(t *testing.T) { bothWays(t, testLeases) }

func testLeases(t *testing.T, via way) {
	c := newClient(t, via, nil)
	ctx := t.Context()
	short, err := c.Grant(ctx, 1)
	if err != nil || short.ID <= 0 || short.TTL != 2 {
		t.Fatalf("lease of 1 s: %v, %v; want one of 2 s", short, err)
	}
	long, err := c.Grant(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := c.Put(ctx, key, "", clientv3.WithLease(long.ID)); err != nil {
			t.Fatal(err)
		}
	}
	alive, err := c.KeepAliveOnce(ctx, long.ID)
	if err != nil || alive.TTL != 100 {
		t.Errorf("keep alive: %v, %v", alive, err)
	}
	if _, err := c.KeepAliveOnce(ctx, 12345); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("keep alive of no lease: %v", err)
	}
	left, err := c.TimeToLive(ctx, long.ID, clientv3.WithAttachedKeys())
	if err != nil || left.GrantedTTL != 100 || left.TTL < 50 || len(left.Keys) != 2 {
		t.Errorf("time to live: %v, %v", left, err)
	}
	leases, err := c.Leases(ctx)
	if err != nil || len(leases.Leases) != 2 {
		t.Errorf("leases: %v, %v", leases, err)
	}
	if _, err := c.Revoke(ctx, long.ID); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(ctx, "", clientv3.WithPrefix())
	if err != nil || got.Count != 0 {
		t.Errorf("after the revoke: %v, %v", got, err)
	}
}

// TestLinearizableReads: a server that has not heard of a write at another one looks at
// the journal before it answers a read, unless the client asks for less.
func TestLinearizableReads(t *testing.T) { bothWays(t, testLinearizableReads) }

func testLinearizableReads(t *testing.T, via way) {
	store := memlog.New(memlog.Options{})
	serve := func() *clientv3.Client {
		r := replica.New(replica.Config{Store: store.Open(), Notifier: notify.NewPolling(time.Hour, time.Hour), Logger: testLogger(t)})
		background(t, r.Run)
		p := via(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)}))
		return dial(t, p)
	}
	writer, reader := serve(), serve()
	if _, err := reader.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	put(t, writer, "k", "v")
	if got, err := reader.Get(t.Context(), "k", clientv3.WithSerializable()); err != nil || got.Count != 0 {
		t.Errorf("a serializable read finds %v, %v; want it to ask nobody, and find nothing", got, err)
	}
	if got, err := reader.Get(t.Context(), "k"); err != nil || got.Count != 1 {
		t.Errorf("a linearizable read finds %v, %v; want the key", got, err)
	}
}

// TestSessionReads: a server that reads from its session shows what it
// acknowledged itself, and never looks at the journal for a read.
func TestSessionReads(t *testing.T) { bothWays(t, testSessionReads) }

func testSessionReads(t *testing.T, via way) {
	store := memlog.New(memlog.Options{})
	broken := &outage{Store: store.Open()}
	r := startReplica(t, broken)
	p := via(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t), SessionReads: true}))
	c := dial(t, p)
	rev := put(t, c, "k", "v")
	broken.down.Store(true)
	got, err := c.Get(t.Context(), "k")
	if err != nil || got.Count != 1 || got.Header.Revision != rev {
		t.Errorf("read in the outage: %v, %v", got, err)
	}
	txn, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("k"), "=", rev)).Then(clientv3.OpGet("k")).Commit()
	if err != nil || !txn.Succeeded {
		t.Errorf("transaction of reads in the outage: %v, %v", txn, err)
	}
	broken.down.Store(false)
}

// outage is a store that can go away.
type outage struct {
	journal.Store
	down atomic.Bool
}

var errOutage = errors.New("the store is away")

func (o *outage) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if o.down.Load() {
		return errOutage
	}
	return o.Store.Append(ctx, slot, rec)
}

func (o *outage) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if o.down.Load() {
		return nil, errOutage
	}
	return o.Store.Read(ctx, from, limit)
}

func TestMemberAndHash(t *testing.T) { bothWays(t, testMemberAndHash) }

func testMemberAndHash(t *testing.T, via way) {
	c := newClient(t, via, func(cfg *etcdapi.Config) { cfg.ClientURLs = []string{"http://127.0.0.1:2379"} })
	members, err := c.MemberList(t.Context())
	if err != nil || len(members.Members) != 1 || members.Members[0].ClientURLs[0] != "http://127.0.0.1:2379" {
		t.Errorf("members: %v, %v", members, err)
	}
	put(t, c, "k", "1")
	hash := func(rev int64) uint32 {
		resp, err := c.HashKV(t.Context(), "http://in-process", rev)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Hash
	}
	before := hash(0)
	put(t, c, "k", "2")
	if after := hash(0); after == before || hash(2) != before || hash(3) != after {
		t.Errorf("hashes: %d at 2, %d now; then %d at 2", before, after, hash(2))
	}
}
