package etcdapi_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
)

// together is a transaction that is written apart.
func together(t *testing.T, c *clientv3.Client, compares []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	t.Helper()
	compares = append(compares, clientv3.Compare(clientv3.CreateRevision(etcdapi.UnderWay), "=", 0))
	return c.Txn(t.Context()).If(compares...).Then(ops...).Commit()
}

// revisionOf reads the revision of a key as of a revision; 0 if it is not there.
func revisionOf(t *testing.T, c *clientv3.Client, key string, at int64) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), key, clientv3.WithRev(at))
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].ModRevision
}

// TestApart: each write has a revision of its own, in the order of the request; the key
// that says so is there in between only.
func TestApart(t *testing.T) { bothWays(t, testApart) }

func testApart(t *testing.T, via way) {
	c := newClient(t, via, nil)
	if _, err := c.Put(t.Context(), "gone", "1"); err != nil {
		t.Fatal(err)
	}
	resp, err := together(t, c, nil, clientv3.OpPut("b", "1"), clientv3.OpDelete("gone", clientv3.WithPrevKV()), clientv3.OpPut("a", "1"), clientv3.OpPut("c", "1"))
	if err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	last := resp.Header.Revision
	for i, key := range []string{"b", "", "a", "c"} {
		if at := last - 3 + int64(i); key != "" && revisionOf(t, c, key, 0) != at {
			t.Errorf("%s is at %d, want %d", key, revisionOf(t, c, key, 0), at)
		}
	}
	if got := resp.Responses[1].GetResponseDeleteRange(); got == nil || got.Deleted != 1 || len(got.PrevKvs) != 1 {
		t.Errorf("the answer to the deletion is %v", got)
	}
	if revisionOf(t, c, "gone", 0) != 0 || revisionOf(t, c, "gone", last-3) == 0 {
		t.Error("the deletion has not the second of the revisions")
	}
	for at := last - 4; at <= last; at++ {
		there := revisionOf(t, c, etcdapi.UnderWay, at) != 0
		if middle := at > last-4 && at < last; there != middle {
			t.Errorf("at revision %d of %d the key that says so is there: %v", at, last, there)
		}
	}
}

// TestApartOrNot: if a condition does not hold, or a lease is missing, nothing is written.
func TestApartOrNot(t *testing.T) { bothWays(t, testApartOrNot) }

func testApartOrNot(t *testing.T, via way) {
	c := newClient(t, via, nil)
	before, err := c.Put(t.Context(), "there", "1")
	if err != nil {
		t.Fatal(err)
	}
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("there"), "=", 0)}
	if resp, err := together(t, c, absent, clientv3.OpPut("a", "1"), clientv3.OpPut("b", "1")); err != nil || resp.Succeeded {
		t.Errorf("a condition that does not hold: %v, %v", resp, err)
	}
	if _, err := together(t, c, nil, clientv3.OpPut("a", "1"), clientv3.OpPut("b", "1", clientv3.WithLease(7))); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("a lease that is missing: %v", err)
	}
	for _, op := range []clientv3.Op{clientv3.OpGet("a"), clientv3.OpDelete("a", clientv3.WithPrefix()), clientv3.OpPut("a", "", clientv3.WithIgnoreLease()), clientv3.OpPut(etcdapi.UnderWay, "1")} {
		_, err := together(t, c, nil, clientv3.OpPut("b", "1"), op)
		want(t, "what cannot be written apart", err, codes.InvalidArgument)
	}
	resp, err := c.Get(t.Context(), "there")
	if err != nil || resp.Header.Revision != before.Header.Revision {
		t.Errorf("the store is at revision %d, %v; want %d, for nothing was written", resp.Header.Revision, err, before.Header.Revision)
	}
}

// TestApartWithLeases: what has a lease is written with the first write.
func TestApartWithLeases(t *testing.T) { bothWays(t, testApartWithLeases) }

func testApartWithLeases(t *testing.T, via way) {
	c := newClient(t, via, nil)
	lease, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := together(t, c, nil, clientv3.OpPut("a", "1"), clientv3.OpPut("b", "1"), clientv3.OpPut("leased", "1", clientv3.WithLease(lease.ID)))
	if err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	if a, leased := revisionOf(t, c, "a", 0), revisionOf(t, c, "leased", 0); a != leased || a != resp.Header.Revision-1 {
		t.Errorf("a is at %d and leased at %d, want %d", a, leased, resp.Header.Revision-1)
	}
}

// TestApartIsAlone: nobody writes between the writes of one transaction, and no read sees
// some of them.
func TestApartIsAlone(t *testing.T) { bothWays(t, testApartIsAlone) }

func testApartIsAlone(t *testing.T, via way) {
	c := newClient(t, via, nil)
	var group sync.WaitGroup
	for writer := range 4 {
		group.Go(func() {
			for n := range 50 {
				resp, err := together(t, c, nil, clientv3.OpPut("x", fmt.Sprint(writer, n)), clientv3.OpPut("y", fmt.Sprint(writer, n)))
				if err != nil || !resp.Succeeded {
					t.Error(resp, err)
					return
				}
				if _, err := c.Put(t.Context(), "y", "alone"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Go(func() {
		for range 200 {
			resp, err := c.Txn(t.Context()).Then(clientv3.OpGet("x"), clientv3.OpGet("y"), clientv3.OpGet(etcdapi.UnderWay)).Commit()
			if err != nil {
				t.Error(err)
				return
			}
			if len(resp.Responses[2].GetResponseRange().Kvs) > 0 {
				t.Error("a read saw the middle of a transaction")
			}
		}
	})
	group.Wait()
	events := c.Watch(t.Context(), "x", clientv3.WithRange("z"), clientv3.WithRev(1))
	var x *clientv3.Event
	for seen := 0; seen < 4*50*3; {
		resp := <-events
		if resp.Err() != nil {
			t.Fatal(resp.Err())
		}
		for _, e := range resp.Events {
			seen++
			if x != nil && (string(e.Kv.Key) != "y" || e.Kv.ModRevision != x.Kv.ModRevision+1 || string(e.Kv.Value) != string(x.Kv.Value)) {
				t.Fatalf("after %s came %s", x.Kv, e.Kv)
			}
			x = nil
			if string(e.Kv.Key) == "x" {
				x = e
			}
		}
	}
}
