package etcdapi_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watch may begin at the compacted revision, but what was before it is gone.
func TestWatchFromCompacted(t *testing.T) { bothWays(t, testWatchFromCompacted) }

func testWatchFromCompacted(t *testing.T, via way) {
	c := newClient(t, via, nil)
	for range 3 { // at 2, 3 and 4
		if _, err := c.Put(t.Context(), "a", "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	watch := c.Watch(t.Context(), "a", clientv3.WithRev(3), clientv3.WithPrevKV())
	var events []*clientv3.Event
	for len(events) < 2 {
		resp, ok := <-watch
		if err := resp.Err(); err != nil || !ok {
			t.Fatalf("the watch ended with %v", err)
		}
		events = append(events, resp.Events...)
	}
	if e := events[0]; e.Kv.ModRevision != 3 || e.PrevKv != nil || !e.IsModify() {
		t.Errorf("the first event is %v", e)
	}
	if e := events[1]; e.Kv.ModRevision != 4 || e.PrevKv == nil || e.PrevKv.ModRevision != 3 {
		t.Errorf("the second event is %v", e)
	}
	if resp := <-c.Watch(t.Context(), "a", clientv3.WithRev(2)); resp.CompactRevision != 3 {
		t.Errorf("a watch from below the compacted revision is answered with %+v", resp)
	}
}
