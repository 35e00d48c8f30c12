package etcdapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// stream is a raw watch stream.
type stream struct {
	t *testing.T
	pb.Watch_WatchClient
}

func watchStream(t *testing.T, c *clientv3.Client) stream {
	t.Helper()
	s, err := apiOf(c).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream{t, s}
}

func (s stream) create(r *pb.WatchCreateRequest) {
	s.t.Helper()
	send(s.t, s, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (s stream) cancel(id int64) {
	s.t.Helper()
	send(s.t, s, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (s stream) askProgress() {
	s.t.Helper()
	send(s.t, s, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (s stream) next() *pb.WatchResponse {
	s.t.Helper()
	resp, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// say is a response in a few words.
func say(r *pb.WatchResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", r.WatchId)
	for _, flag := range []struct {
		on   bool
		word string
	}{{r.Created, "created"}, {r.Canceled, "canceled"}, {r.Fragment, "fragment"}} {
		if flag.on {
			b.WriteString(" " + flag.word)
		}
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&b, " compacted=%d", r.CompactRevision)
	}
	if r.CancelReason != "" {
		fmt.Fprintf(&b, " %q", r.CancelReason)
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, " %s %s=%s@%d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
		if e.PrevKv != nil {
			fmt.Fprintf(&b, " was %s@%d", e.PrevKv.Value, e.PrevKv.ModRevision)
		}
	}
	if r.Header.Revision != 0 {
		fmt.Fprintf(&b, " (%d)", r.Header.Revision)
	}
	return b.String()
}

func (s stream) expect(want ...string) {
	s.t.Helper()
	for _, w := range want {
		if got := say(s.next()); got != w {
			s.t.Fatalf("stream says %s\nwant %s", got, w)
		}
	}
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	resp, err := c.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

func compact(t *testing.T, c *clientv3.Client, rev int64) {
	t.Helper()
	if _, err := c.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
}

func TestWatchTranscript(t *testing.T) { bothWays(t, testWatchTranscript) }

func testWatchTranscript(t *testing.T, via way) {
	c := newClient(t, via, nil)
	s := watchStream(t, c)
	s.askProgress() // nobody watches: no answer
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	s.expect("#0 created (1)")
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("c"), PrevKv: true, WatchId: 9})
	s.expect("#9 created (1)")
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 9})
	s.expect(`#-1 created canceled "mvcc: duplicate watch ID provided on the WatchStream" (1)`)
	s.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	s.expect(`#-1 created canceled "mvcc: watcher range is empty" (1)`)
	s.create(&pb.WatchCreateRequest{Key: []byte("b"), StartRevision: -1})
	s.expect(`#-1 created canceled "etcdserver: mvcc: required revision has been compacted" (1)`)

	put(t, c, "b", "1")
	s.expect("#9 PUT b=1@2 (2)")
	put(t, c, "b", "2")
	s.expect("#9 PUT b=2@3 was 1@2 (3)")
	if _, err := c.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	s.expect("#9 DELETE b=@4 was 2@3 (4)")
	put(t, c, "z", "unseen")
	s.askProgress()
	s.expect("#-1 (5)")

	s.cancel(3) // no such
	s.cancel(9)
	s.expect("#9 canceled (5)")
	put(t, c, "b", "3")
	put(t, c, "a", "4")
	s.expect("#0 PUT a=4@7 (7)")

	// From the past, with filters, from the smallest key on.
	s.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}, StartRevision: 3, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}})
	s.expect("#1 created (7)", "#1 DELETE b=@4 (4)")
	s.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}, StartRevision: 3, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}})
	s.expect("#2 created (7)", "#2 PUT b=2@3 PUT z=unseen@5 PUT b=3@6 PUT a=4@7 (7)")
	s.cancel(2)
	s.expect("#2 canceled (7)")

	// From the future: no progress is told before it.
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 9, WatchId: 4})
	s.expect("#4 created (7)")
	s.askProgress()
	put(t, c, "a", "5")
	s.expect("#0 PUT a=5@8 (8)")
	s.cancel(0)
	s.expect("#0 canceled (8)")
	put(t, c, "a", "6")
	s.expect("#4 PUT a=6@9 (9)")
	s.askProgress()
	s.expect("#-1 (9)")

	compact(t, c, 6)
	s.create(&pb.WatchCreateRequest{Key: []byte("b"), StartRevision: 5})
	s.expect("#3 created (9)", "#3 canceled compacted=6")
	s.askProgress() // whoever was cancelled holds nobody up
	s.expect("#-1 (9)")
	s.create(&pb.WatchCreateRequest{Key: []byte("b"), StartRevision: 6})
	s.expect("#5 created (9)", "#5 PUT b=3@6 (6)")
}

// TestWatchersMissNothing has writers, and streams full of watchers that start
// now and in the past, and asks for progress all the time.
func TestWatchersMissNothing(t *testing.T) { bothWays(t, testWatchersMissNothing) }

func testWatchersMissNothing(t *testing.T, via way) {
	const keys, writes, streams, each = 40, 600, 2, 120
	c := newClient(t, via, nil)
	ctx := t.Context()
	key := func(i int) string { return fmt.Sprintf("/%02d", i%keys) }
	for i := range 200 {
		put(t, c, key(i), "early")
	}
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range writes / 3 {
				var err error
				if i%7 == 0 {
					_, err = c.Delete(ctx, key(i*w), clientv3.WithRange(key(i*w+3)))
				} else {
					_, err = c.Txn(ctx).Then(clientv3.OpPut(key(i*(w+1)), "a"), clientv3.OpPut(key(i*(w+1)+1), "b")).Commit()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watched := make([]map[int64]*history, streams)
	var watching sync.WaitGroup
	for n := range streams {
		s := watchStream(t, c)
		watched[n] = map[int64]*history{}
		for i := range each {
			h := &history{from: int64(i%5) * 40, key: key(i)}
			if i%3 == 0 {
				h.end = key(i) + "~"
			}
			if i%10 == 0 {
				h.key, h.end = "/", "0"
			}
			watched[n][int64(i)+1] = h
			s.create(&pb.WatchCreateRequest{Key: []byte(h.key), RangeEnd: []byte(h.end), StartRevision: h.from, PrevKv: true, WatchId: int64(i) + 1})
		}
		watching.Go(func() { follow(t, s, watched[n], keys) })
	}
	writers.Wait()
	last := put(t, c, "/end", "of it")
	for _, ends := range watched {
		for _, h := range ends {
			h.until.Store(last)
		}
	}
	watching.Wait()

	// What each was told is what happened in its range from its start on.
	whole := collect(t, apiOf(c), &pb.WatchCreateRequest{Key: []byte("/"), RangeEnd: []byte("0"), StartRevision: 1, PrevKv: true}, last)
	for n := range watched {
		for id, h := range watched[n] {
			var want []string
			for _, e := range whole.Events {
				if e.Kv.ModRevision >= h.from && h.holds(string(e.Kv.Key)) {
					want = append(want, sayEvent(e))
				}
			}
			if diff := cmp.Diff(want, h.events); diff != "" {
				t.Fatalf("stream %d, watcher %d of [%s, %s) from %d: happened (-), told (+):\n%s", n, id, h.key, h.end, h.from, diff)
			}
		}
	}
}

func TestRevisionIsNeverSplitButInFragments(t *testing.T) {
	bothWays(t, testRevisionIsNeverSplitButInFragments)
}

func testRevisionIsNeverSplitButInFragments(t *testing.T, via way) {
	c := newClient(t, via, nil)
	// One revision whose events take more than 2 MiB: values, and the ones before.
	big := strings.Repeat("x", 330<<10)
	for range 2 {
		var ops []clientv3.Op
		for i := range 4 {
			ops = append(ops, clientv3.OpPut(fmt.Sprint("k", i), big))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 3, PrevKv: true})
	s.next()
	if r := s.next(); len(r.Events) != 4 || r.Fragment {
		t.Errorf("got %d of 4 events, fragment=%v", len(r.Events), r.Fragment)
	}
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 3, PrevKv: true, Fragment: true})
	s.next()
	first, second := s.next(), s.next()
	if n, m := len(first.Events), len(second.Events); n+m != 4 || n == 0 || m == 0 || !first.Fragment || second.Fragment {
		t.Errorf("got fragments of %d and %d events, fragment=%v and %v", n, m, first.Fragment, second.Fragment)
	}
}

// TestSlowWatcher: who does not read holds nobody up, takes no memory, is
// given all in the end, or is told that compaction overtook it.
func TestSlowWatcher(t *testing.T) { bothWays(t, testSlowWatcher) }

func testSlowWatcher(t *testing.T, via way) {
	p := startServer(t, via, nil)
	c, other := dial(t, p), dial(t, p)
	value := strings.Repeat("v", 100<<10)
	lazy, slow, quick := watchStream(t, c), watchStream(t, other), watchStream(t, other)
	for _, s := range []stream{lazy, slow, quick} {
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), ProgressNotify: true})
		s.expect("#0 created (1)")
	}
	rev := int64(0)
	for range 300 {
		rev = put(t, c, "k", value)
		if got := quick.next().Events; len(got) != 1 || got[0].Kv.ModRevision != rev {
			t.Fatalf("quick watcher is told of %v at %d", got, rev)
		}
	}
	for seen := int64(1); seen < rev; {
		for _, e := range slow.next().Events {
			if e.Kv.ModRevision != seen+1 {
				t.Fatalf("slow watcher is told of %d after %d", e.Kv.ModRevision, seen)
			}
			seen++
		}
	}
	compact(t, c, rev)
	rev = put(t, c, "k", value)
	for seen := int64(1); ; {
		r := lazy.next()
		if r.Canceled {
			if r.CompactRevision != rev-1 {
				t.Errorf("lazy watcher is cancelled by %s", say(r))
			}
			return
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision != seen+1 {
				t.Fatalf("lazy watcher is told of %d after %d", e.Kv.ModRevision, seen)
			}
			seen++
		}
		if seen == rev {
			t.Fatal("lazy watcher was given everything: it was not slow enough to be overtaken")
		}
	}
}

func TestProgressNotify(t *testing.T) { bothWays(t, testProgressNotify) }

func testProgressNotify(t *testing.T, via way) {
	c := newClient(t, via, func(cfg *etcdapi.Config) { cfg.ProgressInterval = 20 * time.Millisecond })
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), ProgressNotify: true})
	s.expect("#0 created (1)", "#0 (1)")
	rev := put(t, c, "elsewhere", "")
	for {
		r := s.next()
		if r.Header.Revision == rev {
			break
		}
		if r.WatchId != 0 || len(r.Events) != 0 || r.Header.Revision > rev {
			t.Fatalf("idle watcher is told %s", say(r))
		}
	}
}

func TestWatchEndsWithTheServer(t *testing.T) {
	r := startReplica(t, memlog.New(memlog.Options{}).Open())
	lis := bufconn.Listen(32 << 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)}).Serve(ctx, lis)
	}()
	s := watchStream(t, dial(t, to(lis)))
	s.create(&pb.WatchCreateRequest{Key: []byte("k")})
	s.expect("#0 created (1)")
	stop()
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("stream ends with %v, want a retryable error", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

func sayEvent(e *mvccpb.Event) string {
	s := fmt.Sprintf("%d %s %s %d", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.CreateRevision)
	if e.PrevKv != nil {
		s += fmt.Sprintf(" was %d", e.PrevKv.ModRevision)
	}
	return s
}

func TestServeEndsWithTheReplica(t *testing.T) {
	r := replica.New(replica.Config{Store: memlog.New(memlog.Options{}).Open(), Notifier: notify.NewPolling(time.Second, time.Second), Logger: testLogger(t)})
	ctx, stop := context.WithCancel(t.Context())
	ran, served := make(chan error, 1), make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	lis := bufconn.Listen(32 << 10)
	go func() {
		served <- etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)}).Serve(t.Context(), lis)
	}()
	c := dial(t, to(lis))
	put(t, c, "k", "v")
	stop()
	if err := <-ran; err != nil {
		t.Errorf("replica ended with %v", err)
	}
	if err := <-served; !errors.Is(err, replica.ErrStopped) {
		t.Errorf("Serve ended with %v", err)
	}
}

// TestProgressFollowsEvents: a watch that has much to catch up with gets each change, and
// progress that is asked for meanwhile comes after all changes up to its revision.
func TestProgressFollowsEvents(t *testing.T) { bothWays(t, testProgressFollowsEvents) }

func testProgressFollowsEvents(t *testing.T, via way) {
	c := newClient(t, via, nil)
	value := strings.Repeat("v", 100<<10)
	const changes = 40 // four pages
	var last int64
	for range changes {
		last = put(t, c, "k", value)
	}
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: last - changes + 1})
	s.askProgress()
	next := last - changes + 1
	for {
		r := s.next()
		for _, e := range r.Events {
			if e.Kv.ModRevision != next {
				t.Fatalf("the change of revision %d comes where that of %d should", e.Kv.ModRevision, next)
			}
			next++
		}
		if len(r.Events) == 0 && !r.Created {
			if r.Header.Revision != last || next != last+1 {
				t.Fatalf("progress tells revision %d, after the changes up to %d of %d", r.Header.Revision, next-1, last)
			}
			return
		}
	}
}

// TestNoProgressBeforeTheStart: a watch that begins at a later revision is told of no
// progress before that.
func TestNoProgressBeforeTheStart(t *testing.T) { bothWays(t, testNoProgressBeforeTheStart) }

func testNoProgressBeforeTheStart(t *testing.T, via way) {
	c := newClient(t, via, func(cfg *etcdapi.Config) { cfg.ProgressInterval = 5 * time.Millisecond })
	first := put(t, c, "k", "1")
	s := watchStream(t, c)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 1, ProgressNotify: true})
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 2, ProgressNotify: true, StartRevision: first + 2})
	told := 0
	for told < 3 { // the first watch is told, so that the second one could have been
		switch r := s.next(); {
		case r.Created:
		case r.WatchId == 1:
			told++
		default:
			t.Fatalf("a watch from revision %d is told of progress to %d", first+2, r.Header.Revision)
		}
	}
}
