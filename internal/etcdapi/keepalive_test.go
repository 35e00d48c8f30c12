package etcdapi_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// distant is a journal that takes a while to answer.
type distant struct {
	journal.Store
	away time.Duration
}

func (d distant) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	time.Sleep(d.away)
	return d.Store.Append(ctx, slot, rec)
}

func (d distant) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	time.Sleep(d.away)
	return d.Store.Read(ctx, from, limit)
}

// TestManyLeasesFarAway: one client keeps many leases alive, at a journal that is
// 80 ms away, on the one stream that a client has for all of them.
func TestManyLeasesFarAway(t *testing.T) { bothWays(t, testManyLeasesFarAway) }

func testManyLeasesFarAway(t *testing.T, via way) {
	synctest.Test(t, func(t *testing.T) {
		const leases, ttl = 60, 5
		r := replica.New(replica.Config{
			Store:    distant{memlog.New(memlog.Options{Depth: 8}).Open(), 80 * time.Millisecond},
			Notifier: notify.NewPolling(100*time.Millisecond, time.Second), Logger: testLogger(t),
		})
		background(t, r.Run)
		p := via(t, etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)}))
		c := dial(t, p)

		ids := make([]clientv3.LeaseID, leases)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				g, err := c.Grant(t.Context(), ttl)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = g.ID
			})
		}
		all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		lost := make(chan clientv3.LeaseID, leases)
		for _, id := range ids {
			alive, err := c.KeepAlive(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for range alive { // until it is lost, or ctx ends
				}
				if ctx.Err() == nil {
					lost <- id
				}
			})
		}
		time.Sleep(time.Minute)
		held, err := c.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(held.Leases) != leases || len(lost) > 0 {
			t.Errorf("after a minute %d of %d leases are there, and the client was told that it had lost %d", len(held.Leases), leases, len(lost))
		}
		cancel()
		all.Wait()
	})
}
