package etcdapi_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// The API server compares the cache of each kind with the store at the revision
// that the cache has reached. The cache of an idle kind learns of revisions by
// progress alone, and the API server compacts every five minutes what was there
// five minutes before: the last revision told must never be compacted.
func TestProgressOutrunsCompaction(t *testing.T) { bothWays(t, testProgressOutrunsCompaction) }

func testProgressOutrunsCompaction(t *testing.T, via way) {
	const (
		compactEvery = 5 * time.Minute // storagebackend.DefaultCompactInterval
		renewEvery   = 40 * time.Second
		hours        = 24
	)
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, serveIdly(t, via))
		idle := watchStream(t, c)
		idle.create(&pb.WatchCreateRequest{Key: []byte("/registry/idle/"), ProgressNotify: true})
		var told atomic.Int64
		told.Store(idle.next().Header.Revision)
		go func() {
			for r, err := idle.Recv(); err == nil; r, err = idle.Recv() {
				told.Store(r.Header.Revision)
			}
		}()
		var before, newest int64 // revisions: at the last compaction, and now
		checks := 0
		for began := time.Now(); time.Since(began) < hours*time.Hour; checks++ {
			time.Sleep(renewEvery)
			newest = put(t, c, "/registry/leases/renewed", "")
			if time.Since(began)%compactEvery < renewEvery {
				if before > 0 {
					compact(t, c, before)
				}
				before = newest
			}
			synctest.Wait()
			if _, err := c.Get(t.Context(), "/registry/idle/", clientv3.WithPrefix(), clientv3.WithRev(told.Load())); err != nil {
				t.Fatalf("after %v a cache that was told of revision %d of %d cannot be checked: %v", time.Since(began), told.Load(), newest, err)
			}
		}
		t.Logf("checked %d times in %d hours", checks, hours)
	})
}

// serveIdly serves a new journal as xb does, and polls it as rarely.
func serveIdly(t *testing.T, via way) []grpc.DialOption {
	t.Helper()
	notifier := notify.NewPolling(100*time.Millisecond, time.Second)
	r := replica.New(replica.Config{Store: memlog.New(memlog.Options{}).Open(), Notifier: notifier, Logger: testLogger(t)})
	background(t, r.Run)
	return via(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)}))
}
