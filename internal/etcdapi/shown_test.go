package etcdapi_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
)

// TestHeadersNeverGoBack: whichever call a client makes, and on whichever stream
// it listens, the answer is of no older revision than one that any client had
// been shown before the call.
func TestHeadersNeverGoBack(t *testing.T) { bothWays(t, testHeadersNeverGoBack) }

func testHeadersNeverGoBack(t *testing.T, via way) {
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprintf("session=%v", session), func(t *testing.T) {
			neverGoesBack(t, newClient(t, via, func(c *etcdapi.Config) { c.SessionReads = session }))
		})
	}
}

func neverGoesBack(t *testing.T, c *clientv3.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	lease, err := c.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "k", "0"); err != nil {
		t.Fatal(err)
	}
	var shown atomic.Int64
	show := func(rev int64) {
		for old := shown.Load(); rev > old && !shown.CompareAndSwap(old, rev); old = shown.Load() {
		}
	}
	var all sync.WaitGroup
	until := time.Now().Add(2 * time.Second)
	again := func(way string, ask func() (int64, error)) {
		all.Go(func() {
			for time.Now().Before(until) {
				before := shown.Load()
				rev, err := ask()
				if err != nil {
					t.Errorf("%s: %v", way, err)
					return
				}
				if rev < before {
					t.Errorf("%s: revision %d, after %d was shown", way, rev, before)
					return
				}
				show(rev)
			}
		})
	}
	for i := range 2 {
		again(fmt.Sprintf("put %d", i), func() (int64, error) {
			r, err := c.Put(ctx, "k", "v")
			if err != nil {
				return 0, err
			}
			return r.Header.Revision, nil
		})
		all.Go(func() { // a watch that stays
			watching, stop := context.WithDeadline(ctx, until)
			defer stop()
			for r := range c.Watch(watching, "k", clientv3.WithProgressNotify()) {
				show(r.Header.Revision)
			}
		})
	}
	get := func(opts ...clientv3.OpOption) func() (int64, error) {
		return func() (int64, error) {
			r, err := c.Get(ctx, "k", opts...)
			if err != nil {
				return 0, err
			}
			if kv := r.Kvs[0]; kv.ModRevision > r.Header.Revision {
				return 0, fmt.Errorf("%d is newer than the header's %d", kv.ModRevision, r.Header.Revision)
			}
			return r.Header.Revision, nil
		}
	}
	again("read", get())
	again("serializable read", get(clientv3.WithSerializable()))
	again("read at what was shown", func() (int64, error) {
		r, err := c.Get(ctx, "k", clientv3.WithRev(max(1, shown.Load())), clientv3.WithSerializable())
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	})
	again("transaction that reads", func() (int64, error) {
		r, err := c.Txn(ctx).Then(clientv3.OpGet("k")).Commit()
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	})
	again("transaction that fails", func() (int64, error) {
		r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version("k"), "=", 0)).Then(clientv3.OpPut("k", "never")).Commit()
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	})
	again("new watch", func() (int64, error) {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		r, ok := <-c.Watch(watching, "k", clientv3.WithCreatedNotify())
		if !ok {
			return 0, fmt.Errorf("the watch ended")
		}
		return r.Header.Revision, nil
	})
	again("keep alive", func() (int64, error) {
		r, err := c.KeepAliveOnce(ctx, lease.ID)
		if err != nil {
			return 0, err
		}
		return r.Revision, nil
	})
	again("time to live", func() (int64, error) {
		r, err := c.TimeToLive(ctx, lease.ID)
		if err != nil {
			return 0, err
		}
		return r.Revision, nil
	})
	again("leases", func() (int64, error) {
		r, err := c.Leases(ctx)
		if err != nil {
			return 0, err
		}
		return r.Revision, nil
	})
	again("status", func() (int64, error) {
		r, err := c.Status(ctx, "http://in-process")
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	})
	again("hash", func() (int64, error) {
		r, err := c.HashKV(ctx, "http://in-process", 0)
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	})
	all.Wait()
	cancel()
}
