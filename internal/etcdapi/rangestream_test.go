package etcdapi_test

import (
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestRangeStreamWithATargetAlone: a target without an order is not refused, in
// etcd neither, which sorts each chunk for itself and goes on behind the key that
// came last: of 40 keys it sends some twice. Here all are sorted, and sent once.
func TestRangeStreamWithATargetAlone(t *testing.T) { bothWays(t, testRangeStreamWithATargetAlone) }

func testRangeStreamWithATargetAlone(t *testing.T, via way) {
	c := newClient(t, via, nil)
	const keys = 40
	for i := range keys {
		for range 1 + i*7%5 {
			put(t, c, fmt.Sprintf("k%02d", i), "v")
		}
	}
	for _, limit := range []int64{0, 25} {
		got, err := apiOf(c).rangeStream(t.Context(), &pb.RangeRequest{
			Key: []byte("k"), RangeEnd: []byte("l"), SortTarget: pb.RangeRequest_VERSION, Limit: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		kvs := got.(*pb.RangeResponse).Kvs
		seen := map[string]bool{}
		for _, kv := range kvs {
			seen[string(kv.Key)] = true
		}
		want := keys
		if limit > 0 {
			want = int(limit)
		}
		if len(kvs) != want || len(seen) != want {
			t.Errorf("limit %d: %d keys, %d of them different; want %d", limit, len(kvs), len(seen), want)
		}
		byVersion := func(a, b int64) int { return int(a - b) }
		var versions []int64
		for _, kv := range kvs {
			versions = append(versions, kv.Version)
		}
		if !slices.IsSortedFunc(versions, byVersion) {
			t.Errorf("limit %d: versions %v are not in order", limit, versions)
		}
	}
}
