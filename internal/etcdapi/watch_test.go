package etcdapi_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatchFromThePast(t *testing.T) {
	c := newClient(t, nil)
	ctx := t.Context()
	for i := range 5 {
		if _, err := c.Put(ctx, "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	w := c.Watch(ctx, "k", clientv3.WithRev(3), clientv3.WithPrevKV())
	got := 0
	for resp := range w {
		if resp.Err() != nil {
			t.Fatal(resp.Err())
		}
		for _, e := range resp.Events {
			if want := int64(3 + got); e.Kv.ModRevision != want || e.PrevKv == nil || e.PrevKv.ModRevision != want-1 {
				t.Fatalf("event %d is %v", got, e)
			}
			got++
		}
		if got == 4 {
			if _, err := c.Put(ctx, "k", "more"); err != nil {
				t.Fatal(err)
			}
		}
		if got == 5 {
			return
		}
	}
	t.Fatal("watch closed")
}
