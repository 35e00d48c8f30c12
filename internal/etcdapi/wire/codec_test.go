package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// FuzzDecode compares how this package reads requests with how the generated types
// read them.
func FuzzDecode(f *testing.F) {
	add := func(kind byte, m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, b)
	}
	read := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Limit: 3, Revision: -4, SortOrder: 2, SortTarget: 4, Serializable: true,
		KeysOnly: true, CountOnly: true, MinModRevision: 1, MaxModRevision: 2, MinCreateRevision: 3, MaxCreateRevision: math.MaxInt64}
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("value"), Lease: -7, PrevKv: true}
	del := &pb.DeleteRangeRequest{Key: []byte("x"), RangeEnd: []byte("y"), PrevKv: true}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte("k"), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: 5}},
			{Key: []byte("k"), RangeEnd: []byte("l"), Target: pb.Compare_VALUE, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_Value{Value: []byte("v")}},
			{Key: []byte("k"), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Version{Version: 5}},
		},
		Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: put}},
			{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del}},
		},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read}}},
	}
	add(0, read)
	add(1, put)
	add(1, &pb.PutRequest{Key: []byte("k"), Value: []byte("v"), IgnoreValue: true})
	add(1, &pb.PutRequest{Key: []byte("k"), Lease: 1, IgnoreLease: true})
	add(2, del)
	add(3, txn)
	add(3, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}, {}}})
	add(3, &pb.TxnRequest{Success: append(txn.Success, txn.Success...)})
	add(3, &pb.TxnRequest{Failure: make([]*pb.RequestOp, MaxTxnOps+1)})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		if diff := decodeBoth(kind%4, b); diff != "" {
			t.Errorf("generated (-) and ours (+):\n%s", diff)
		}
	})
}

// decodeBoth returns how the two readings of b differ. Of a message that the
// generated types refuse, it only checks that ours does not panic.
func decodeBoth(kind byte, b []byte) string {
	type reading struct {
		Req     mvcc.Request
		Local   bool
		Invalid error
	}
	var want, got reading
	var m proto.Message
	var err error
	input := bytes.Clone(b)
	switch kind {
	case 0:
		q := &RangeRequest{}
		err = q.parse(input)
		got = reading{mvcc.Request{Then: []mvcc.Op{q.Op}}, q.Serializable, q.Invalid}
		m = &pb.RangeRequest{}
	case 1:
		q := &PutRequest{}
		err = q.parse(input)
		got = reading{Req: q.Request, Invalid: q.Invalid}
		m = &pb.PutRequest{}
	case 2:
		q := &DeleteRequest{}
		err = q.parse(input)
		got = reading{Req: q.Request, Invalid: q.Invalid}
		m = &pb.DeleteRangeRequest{}
	default:
		q := &TxnRequest{}
		err = q.parse(input)
		got = reading{q.Request, q.Local && q.Request.ReadOnly(), q.Invalid}
		m = &pb.TxnRequest{}
	}
	clear(input) // a request that refers to its message would change now
	if proto.Unmarshal(b, m) != nil {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("ours fails: %v", err)
	}
	switch r := m.(type) {
	case *pb.RangeRequest:
		var op mvcc.Op
		want.Invalid = rangeOp(&op, r)
		want.Req, want.Local = mvcc.Request{Then: []mvcc.Op{op}}, r.Serializable
	case *pb.PutRequest:
		want.Req = mvcc.Request{Kind: mvcc.Txn, Then: make([]mvcc.Op, 1)}
		want.Invalid = putOp(&want.Req.Then[0], r)
	case *pb.DeleteRangeRequest:
		want.Req = mvcc.Request{Kind: mvcc.Txn, Then: make([]mvcc.Op, 1)}
		want.Invalid = deleteOp(&want.Req.Then[0], r)
	case *pb.TxnRequest:
		var req *mvcc.Request
		if req, want.Invalid = txnRequest(r); req != nil {
			want.Req, want.Local = *req, req.ReadOnly() && serializable(r)
		}
	}
	if want.Invalid != nil {
		want, got = reading{Invalid: want.Invalid}, reading{Invalid: got.Invalid}
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) }))
}

// serializable says whether a transaction of reads may be answered from the local
// state: whether each of its reads may.
func serializable(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if !op.GetRequestRange().GetSerializable() {
				return false
			}
		}
	}
	return true
}

func TestTooManyOperations(t *testing.T) {
	for n, want := range map[int]error{MaxTxnOps: nil, MaxTxnOps + 1: rpctypes.ErrGRPCTooManyOps} {
		r := &pb.TxnRequest{}
		for i := range n {
			r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Append(nil, i)}}})
		}
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var q TxnRequest
		if err := q.parse(b); err != nil || !errors.Is(q.Invalid, want) {
			t.Errorf("%d operations: %v, %v; want %v", n, err, q.Invalid, want)
		}
	}
}

// results draws random answers of a state machine.
type results struct{ *rand.Rand }

func (r results) kv() *mvcc.KV {
	kv := &mvcc.KV{Key: strings.Repeat("k", 1+r.IntN(200)), Mod: mvcc.Revision(r.Int64())}
	if r.IntN(5) > 0 {
		kv.Value = make([]byte, r.IntN(3*(1<<r.IntN(13))))
		kv.Create, kv.Version, kv.Lease = mvcc.Revision(r.Int64N(1000)), 1+r.Int64N(100), mvcc.LeaseID(r.Uint64()>>r.IntN(64))
	}
	return kv
}

func (r results) kvs(n int) []*mvcc.KV {
	kvs := make([]*mvcc.KV, r.IntN(n+1))
	for i := range kvs {
		kvs[i] = r.kv()
	}
	return kvs
}

func (r results) op() (op mvcc.Op, out mvcc.OpResult) {
	out.Kind = mvcc.OpKind(1 + r.IntN(3))
	switch out.Kind {
	case mvcc.OpRange:
		op.Read.Target = mvcc.SortTarget(r.IntN(5))
		out.Read = mvcc.ReadResult{KVs: r.kvs(5), KeysOnly: r.IntN(2) == 0, More: r.IntN(2) == 0, Count: r.Int64N(300)}
	case mvcc.OpPut:
		out.Prev = r.kvs(1)
	case mvcc.OpDelete:
		out.Prev = r.kvs(3)
		out.Deleted = int64(len(out.Prev))
	}
	return op, out
}

// TestEncode compares how this package writes responses with how the generated
// types write them, byte by byte.
func TestEncode(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := results{rand.New(rand.NewPCG(seed, 1))}
	for range 2000 {
		rev := mvcc.Revision(2 + r.Int64N(1<<r.IntN(60)))
		op, out := r.op()
		same(t, &RangeResponse{head(rev), out.Read, op.Read.Target}, rangeResponse(&out.Read, op.Read.Target, header(head(rev))))
		same(t, &RangeStreamResponse{RangeResponse{Header{}, out.Read, op.Read.Target}},
			&pb.RangeStreamResponse{RangeResponse: rangeResponse(&out.Read, op.Read.Target, nil)})
		same(t, &PutResponse{head(rev), r.kvs(1)}, nil)
		same(t, &DeleteResponse{head(rev), out.Deleted, out.Prev}, deleteResponse(&out, header(head(rev))))

		req, res := &mvcc.Request{}, mvcc.Result{Succeeded: true, Revision: rev}
		for range r.IntN(5) {
			op, out := r.op()
			req.Then, res.Ops = append(req.Then, op), append(res.Ops, out)
		}
		same(t, &TxnResponse{head(rev), req.Then, res}, txnResponse(req, &res, header(head(rev))))

		var changes []mvcc.Change
		for range r.IntN(5) {
			c := mvcc.Change{KV: r.kv()}
			if r.IntN(2) == 0 {
				c.Prev = r.kv()
			}
			changes = append(changes, c)
		}
		w := &WatchResponse{Header: head(rev), WatchID: r.Int64() - 1<<62, Fragment: r.IntN(2) == 0, PrevKV: r.IntN(2) == 0, Changes: changes}
		same(t, w, &pb.WatchResponse{Header: header(head(rev)), WatchId: w.WatchID, Fragment: w.Fragment, Events: events(changes, w.PrevKV)})
	}
}

// head is a header as a server makes it, and header is the same as a generated one.
func head(rev mvcc.Revision) Header {
	return Header{Cluster: 77, Member: math.MaxUint64, Revision: rev}
}

func header(h Header) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.Cluster, MemberId: h.Member, Revision: int64(h.Revision), RaftTerm: 1}
}

// same fails unless the codec writes a as the generated types write want. A
// PutResponse needs no want.
func same(t *testing.T, a response, want proto.Message) {
	t.Helper()
	if p, ok := a.(*PutResponse); ok {
		want = putResponse(&mvcc.OpResult{Prev: p.Prev}, header(p.Header))
	}
	wantBytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewCodec().Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Free()
	gotBytes := got.MaterializeToBuffer(mem.DefaultBufferPool())
	defer gotBytes.Free()
	if !bytes.Equal(gotBytes.ReadOnlyData(), wantBytes) {
		t.Fatalf("%T is written as\n%x\nwant\n%x", a, gotBytes.ReadOnlyData(), wantBytes)
	}
	if a.size() < len(wantBytes) {
		t.Fatalf("%T takes %d bytes, its size says %d", a, len(wantBytes), a.size())
	}
}
