package etcdapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// eventually waits until ok returns true, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestWatchesLeaveNothing: watches and streams that were made and cancelled leave
// neither a goroutine nor a watcher, while client and server go on.
func TestWatchesLeaveNothing(t *testing.T) { bothWays(t, testWatchesLeaveNothing) }

func testWatchesLeaveNothing(t *testing.T, via way) {
	server := etcdapi.New(etcdapi.Config{Replica: startReplica(t, memlog.New(memlog.Options{}).Open()), Logger: testLogger(t)})
	c := dial(t, via(t, server))
	put(t, c, "k", "v")
	before := runtime.NumGoroutine()

	const watches, atOnce = 10_000, 100
	for range watches / atOnce { // all of a round on one stream
		ctx, cancel := context.WithCancel(t.Context())
		var made []clientv3.WatchChan
		for range atOnce {
			made = append(made, c.Watch(ctx, "k", clientv3.WithRev(1), clientv3.WithCreatedNotify()))
		}
		for _, w := range made {
			<-w
		}
		cancel()
		for _, w := range made {
			for range w { // until it is closed
			}
		}
	}
	for range 500 { // each a stream of its own, given up at some point
		ctx, cancel := context.WithCancel(t.Context())
		s, err := apiOf(c).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}})
		cancel()
	}
	eventually(t, "no watch is left", func() bool { w := server.Watches(); return w.Streams == 0 && w.Watchers == 0 && w.Behind == 0 })
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+2 }) // clientv3 and grpc may have one each
}

// TestManyCancelledAtOnce: a client cancels many watches on one stream at a time at
// which it is told much. Neither side waits for the other for ever.
func TestManyCancelledAtOnce(t *testing.T) { bothWays(t, testManyCancelledAtOnce) }

func testManyCancelledAtOnce(t *testing.T, via way) {
	const watches = 1000
	c := newClient(t, via, nil)
	var made []clientv3.WatchChan
	var cancels []context.CancelFunc
	for range watches {
		ctx, cancel := context.WithCancel(t.Context())
		made, cancels = append(made, c.Watch(ctx, "k", clientv3.WithCreatedNotify())), append(cancels, cancel)
	}
	for _, w := range made {
		<-w
	}
	for range 20 {
		put(t, c, "k", "v")
	}
	for _, cancel := range cancels {
		cancel()
	}
	for _, w := range made {
		for range w {
		}
	}
	if r, ok := <-c.Watch(t.Context(), "k", clientv3.WithRev(2)); !ok || len(r.Events) != 20 {
		t.Errorf("a new watch is told %d events, want 20", len(r.Events))
	}
}

// stalled is a journal whose next appends wait until they are let go.
type stalled struct {
	journal.Store
	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (s *stalled) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return s.Store.Append(ctx, slot, rec)
}

// stall makes appends wait, until the returned function is called.
func (s *stalled) stall() (letGo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate = nil
		close(gate)
	}
}

// TestGivenUpInFlight: a caller that gives up a write gets its answer at once, and it
// says neither that the write was done nor that it was not. A call that was given up
// before it began does nothing.
func TestGivenUpInFlight(t *testing.T) { bothWays(t, testGivenUpInFlight) }

func testGivenUpInFlight(t *testing.T, via way) {
	store := &stalled{Store: memlog.New(memlog.Options{}).Open()}
	c := dial(t, via(t, etcdapi.New(etcdapi.Config{Replica: startReplica(t, store), Logger: testLogger(t)})))
	put(t, c, "k", "first")
	letGo := store.stall()

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := c.Put(ctx, "k", "cancelled"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled put: %v, want context.Canceled", err)
	}
	if _, err := apiOf(c).Put(ctx, &pb.PutRequest{Key: []byte("never")}); status.Code(err) != codes.Canceled {
		t.Errorf("a put cancelled before: %v, want the status Canceled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Put(ctx, "k", "late"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a put after its deadline: %v, want context.DeadlineExceeded", err)
	}
	letGo()
	put(t, c, "end", "")
	got, err := c.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		if string(kv.Key) == "never" {
			t.Error("a put that was cancelled before it began was carried out")
		}
	}
}

// TestCallsWaitForTheReplica: until the replica has read its journal, calls wait, as
// long as their callers do. (Over gRPC, clients wait for the connection.)
func TestCallsWaitForTheReplica(t *testing.T) {
	r := replica.New(replica.Config{Store: memlog.New(memlog.Options{}).Open(), Notifier: notify.NewPolling(time.Second, time.Second), Logger: testLogger(t)})
	c := dial(t, directly(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)})))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read of a replica that does not run: %v, want context.DeadlineExceeded", err)
	}
	watch := watchStream(t, c)
	watch.create(&pb.WatchCreateRequest{Key: []byte("k")})
	background(t, r.Run)
	watch.expect("#0 created (1)")
}

// TestNobodySharesMemory: what a client does to the memory of its questions and
// answers changes neither the state nor what others are told.
func TestNobodySharesMemory(t *testing.T) { bothWays(t, testNobodySharesMemory) }

func testNobodySharesMemory(t *testing.T, via way) {
	c := newClient(t, via, nil)
	a, ctx := apiOf(c), t.Context()
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), PrevKv: true})
	s.expect("#0 created (1)")

	value := bytes.Repeat([]byte("v"), 20<<10)
	want := slices.Clone(value)
	question := &pb.PutRequest{Key: []byte("k"), Value: value}
	for range 2 {
		question.Value = slices.Clone(want)
		if _, err := a.Put(ctx, question); err != nil {
			t.Fatal(err)
		}
		scribble(question.Value)
	}
	question.Key[0] = 'x'
	for seen := 0; seen < 2; { // one response may have both events
		for _, event := range s.next().Events {
			seen++
			scribble(event.Kv.Value)
			if event.PrevKv != nil {
				scribble(event.PrevKv.Value)
			}
		}
	}
	for range 2 {
		got, err := a.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		if err != nil || len(got.Kvs) != 1 || !bytes.Equal(got.Kvs[0].Value, want) {
			t.Fatalf("a read finds %d keys, %v; want the value as it was put", len(got.GetKvs()), err)
		}
		scribble(got.Kvs[0].Value)
		scribble(got.Kvs[0].Key)
		read := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
		txn, err := a.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{read}})
		if err != nil {
			t.Fatal(err)
		}
		kv := txn.Responses[0].GetResponseRange().Kvs[0]
		if !bytes.Equal(kv.Value, want) {
			t.Fatal("a transaction reads another value than was put")
		}
		scribble(kv.Value)
	}
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, WatchId: 5})
	s.next()
	if events := s.next().Events; len(events) != 2 || !bytes.Equal(events[0].Kv.Value, want) || !bytes.Equal(events[1].Kv.Value, want) {
		t.Error("a watch of the past tells another value than was put")
	}
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

// TestTooLongToSend: a client sends no more than its limit, in the words that
// Kubernetes looks for.
func TestTooLongToSend(t *testing.T) { bothWays(t, testTooLongToSend) }

func testTooLongToSend(t *testing.T, via way) {
	_, err := newClient(t, via, nil).Put(t.Context(), "k", string(make([]byte, 3<<20)))
	if want := fmt.Sprintf("trying to send message larger than max (%d vs. %d)", 3<<20+8, 2<<20); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != want {
		t.Errorf("a put of 3 MiB: %v, want %s", err, want)
	}
}

// TestCallsEndWithTheReplica: when the replica has stopped, calls and watches of
// clients that have no connection to lose are told so.
func TestCallsEndWithTheReplica(t *testing.T) {
	r := replica.New(replica.Config{Store: memlog.New(memlog.Options{}).Open(), Notifier: notify.NewPolling(time.Second, time.Second), Logger: testLogger(t)})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	c := dial(t, directly(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)})))
	lease, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k")})
	s.expect("#0 created (1)")
	renewals, err := apiOf(c).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("replica ended with %v", err)
	}
	if _, err := s.Recv(); !errors.Is(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("the watch ends with %v", err)
	}
	if _, err := renewals.Recv(); !errors.Is(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("the stream that keeps leases alive ends with %v", err)
	}
	if _, err := c.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); !errors.Is(err, rpctypes.ErrStopped) {
		t.Errorf("a put: %v", err)
	}
}
