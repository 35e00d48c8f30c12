package wire

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// BenchmarkCodec times this package beside the generated types, each from a
// message to the state machine's types or back. ADR 13 has its figures.
func BenchmarkCodec(b *testing.B) {
	value := []byte(strings.Repeat("v", 1024))
	kvs := make([]*mvcc.KV, 1000)
	for i := range kvs {
		kvs[i] = &mvcc.KV{Key: fmt.Sprintf("/registry/configmaps/default/name-%04d", i), Value: value, Create: 1234567, Mod: 2345678, Version: 12}
	}
	key := []byte(kvs[0].Key)

	get := &pb.RangeRequest{Key: key}
	reads(b, "get/request/ours", get, func() any { return new(RangeRequest) }, func(any) error { return nil })
	reads(b, "get/request/generated", get, func() any { return new(pb.RangeRequest) }, func(v any) error {
		var op mvcc.Op
		return rangeOp(&op, v.(*pb.RangeRequest))
	})
	update := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: 2345678}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value}}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}},
	}
	reads(b, "update/request/ours", update, func() any { return new(TxnRequest) }, func(any) error { return nil })
	reads(b, "update/request/generated", update, func() any { return new(pb.TxnRequest) }, func(v any) error {
		_, err := txnRequest(v.(*pb.TxnRequest))
		return err
	})

	for name, n := range map[string]int{"get": 1, "list1000": 1000} {
		res := mvcc.ReadResult{KVs: kvs[:n], Count: int64(n)}
		writes(b, name+"/response/ours", func() any { return &RangeResponse{Header: head(9), ReadResult: res} })
		writes(b, name+"/response/generated", func() any { return rangeResponse(&res, 0, header(head(9))) })
	}
	req, res := &mvcc.Request{Then: []mvcc.Op{{Kind: mvcc.OpPut}}}, mvcc.Result{Succeeded: true, Revision: 9, Ops: []mvcc.OpResult{{Kind: mvcc.OpPut}}}
	writes(b, "update/response/ours", func() any { return &TxnResponse{Header: head(9), Ops: req.Then, Result: res} })
	writes(b, "update/response/generated", func() any { return txnResponse(req, &res, header(head(9))) })
	changes := []mvcc.Change{{KV: kvs[0], Prev: kvs[1]}}
	writes(b, "watch/response/ours", func() any { return &WatchResponse{Header: head(9), WatchID: 3, Changes: changes, PrevKV: true} })
	writes(b, "watch/response/generated", func() any {
		return &pb.WatchResponse{Header: header(head(9)), WatchId: 3, Events: events(changes, true)}
	})
}

// reads times how a message is read into what into returns, and made into the
// state machine's types by then.
func reads(b *testing.B, name string, m proto.Message, into func() any, then func(any) error) {
	message, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	codec, data := NewCodec(), mem.BufferSlice{mem.SliceBuffer(message)}
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v := into()
			if err := codec.Unmarshal(data, v); err != nil {
				b.Fatal(err)
			}
			if err := then(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// writes times how a response is made and written.
func writes(b *testing.B, name string, response func() any) {
	codec := NewCodec()
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data, err := codec.Marshal(response())
			if err != nil {
				b.Fatal(err)
			}
			data.Free()
		}
	})
}
