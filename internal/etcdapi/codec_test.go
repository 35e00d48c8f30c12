package etcdapi

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

// FuzzDecode holds our reading of hot requests against the generated one.
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
	add(3, &pb.TxnRequest{Failure: make([]*pb.RequestOp, maxTxnOps+1)})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		if diff := decodeBoth(kind%4, b); diff != "" {
			t.Errorf("generated (-) and ours (+):\n%s", diff)
		}
	})
}

// decodeBoth returns how the two readings of b differ. What the generated one
// refuses, ours may read or refuse, but not choke on.
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
		q := &rangeQuestion{}
		err = q.parse(input)
		got = reading{mvcc.Request{Then: []mvcc.Op{q.op}}, q.serializable, q.invalid}
		m = &pb.RangeRequest{}
	case 1:
		q := &putQuestion{}
		err = q.parse(input)
		got = reading{Req: q.req, Invalid: q.invalid}
		m = &pb.PutRequest{}
	case 2:
		q := &deleteQuestion{}
		err = q.parse(input)
		got = reading{Req: q.req, Invalid: q.invalid}
		m = &pb.DeleteRangeRequest{}
	default:
		q := &txnQuestion{}
		err = q.parse(input)
		got = reading{q.req, q.local && q.req.ReadOnly(), q.invalid}
		m = &pb.TxnRequest{}
	}
	clear(input) // what was read must not live in it
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

// serializable says whether every read of a transaction of reads may be
// answered from the local state.
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
	for n, want := range map[int]error{maxTxnOps: nil, maxTxnOps + 1: rpctypes.ErrGRPCTooManyOps} {
		r := &pb.TxnRequest{}
		for i := range n {
			r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Append(nil, i)}}})
		}
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var q txnQuestion
		if err := q.parse(b); err != nil || !errors.Is(q.invalid, want) {
			t.Errorf("%d operations: %v, %v; want %v", n, err, q.invalid, want)
		}
	}
}

// results draws what a state machine could answer.
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

// TestEncode holds our writing of hot responses against the generated one,
// byte by byte.
func TestEncode(t *testing.T) {
	s := &Server{clusterID: 77, memberID: math.MaxUint64}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := results{rand.New(rand.NewPCG(seed, 1))}
	for range 2000 {
		rev := mvcc.Revision(2 + r.Int64N(1<<r.IntN(60)))
		op, out := r.op()
		same(t, &rangeAnswer{s.head(rev), out.Read, op.Read.Target}, rangeResponse(&out.Read, op.Read.Target, s.header(rev)))
		same(t, &rangeChunk{rangeAnswer{head{}, out.Read, op.Read.Target}},
			&pb.RangeStreamResponse{RangeResponse: rangeResponse(&out.Read, op.Read.Target, nil)})
		same(t, &putAnswer{s.head(rev), r.kvs(1)}, nil)
		same(t, &deleteAnswer{s.head(rev), out.Deleted, out.Prev}, deleteResponse(&out, s.header(rev)))

		req, res := &mvcc.Request{}, mvcc.Result{Succeeded: true, Revision: rev}
		for range r.IntN(5) {
			op, out := r.op()
			req.Then, res.Ops = append(req.Then, op), append(res.Ops, out)
		}
		same(t, &txnAnswer{s.head(rev), req.Then, res}, txnResponse(req, &res, s.header(rev)))

		var changes []mvcc.Change
		for range r.IntN(5) {
			c := mvcc.Change{KV: r.kv()}
			if r.IntN(2) == 0 {
				c.Prev = r.kv()
			}
			changes = append(changes, c)
		}
		w := &watchAnswer{head: s.head(rev), id: r.Int64() - 1<<62, fragment: r.IntN(2) == 0, prevKV: r.IntN(2) == 0, changes: changes}
		same(t, w, &pb.WatchResponse{Header: s.header(rev), WatchId: w.id, Fragment: w.fragment, Events: events(changes, w.prevKV)})
	}
}

// same fails unless a, through the codec, is want; a put answer knows its own.
func same(t *testing.T, a answer, want proto.Message) {
	t.Helper()
	if p, ok := a.(*putAnswer); ok {
		want = putResponse(&mvcc.OpResult{Prev: p.prev}, p.server.header(p.revision))
	}
	wantBytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := newCodec().Marshal(a)
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
