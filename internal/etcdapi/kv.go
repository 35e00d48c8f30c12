package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// read returns the state that a read is answered from.
func (s *Server) read(ctx context.Context, serializable bool) (*mvcc.View, error) {
	if serializable || s.cfg.SessionReads {
		return s.replica.View(), nil
	}
	return s.replica.Linearizable(ctx)
}

// propose carries out a request and returns its outcome, in etcd's words.
func (s *Server) propose(ctx context.Context, req *mvcc.Request) (mvcc.Result, error) {
	res, err := s.replica.Propose(ctx, req)
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return res, rpcError(err)
	}
	return res, nil
}

// checkSize refuses what etcd would not let into its log.
func checkSize(m proto.Message) error {
	if proto.Size(m) > maxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

// Range implements etcdserverpb.KVServer.
func (s *service) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	var op mvcc.Op
	if err := rangeOp(&op, r); err != nil {
		return nil, err
	}
	view, err := s.read(ctx, r.Serializable)
	if err != nil {
		return nil, rpcError(err)
	}
	res, err := view.Read(op.Range, op.Read)
	if err != nil {
		return nil, rpcError(err)
	}
	return rangeAnswer(&res, op.Read.Target, s.header(int64(view.Revision()))), nil
}

// streamChunk is about how much of an answer one chunk of RangeStream holds,
// in bytes.
const streamChunk = 256 << 10

// RangeStream implements etcdserverpb.KVServer: the answer to Range in chunks,
// with header, more and count on the last only, all at one revision.
func (s *service) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	var op mvcc.Op
	if err := rangeOp(&op, r); err != nil {
		return err
	}
	if o := &op.Read; o.Target != mvcc.SortByKey && o.Order != mvcc.Unsorted || o.Order == mvcc.Descend {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if o := &op.Read; o.MinMod|o.MaxMod|o.MinCreate|o.MaxCreate != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	view, err := s.read(stream.Context(), r.Serializable)
	if err != nil {
		return rpcError(err)
	}
	res, err := view.Read(op.Range, op.Read)
	if err != nil {
		return rpcError(err)
	}
	for {
		n, size := 0, 0
		for n < len(res.KVs) && size < streamChunk {
			size += len(res.KVs[n].Key) + 64
			if !res.KeysOnly {
				size += len(res.KVs[n].Value)
			}
			n++
		}
		chunk := mvcc.ReadResult{KVs: res.KVs[:n], KeysOnly: res.KeysOnly}
		var header *pb.ResponseHeader
		last := n == len(res.KVs)
		if last {
			chunk.More, chunk.Count = res.More, res.Count
			header = s.header(int64(view.Revision()))
		}
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: rangeAnswer(&chunk, op.Read.Target, header)}); err != nil || last {
			return err
		}
		res.KVs = res.KVs[n:]
	}
}

// single is a transaction of one operation, in one allocation.
type single struct {
	req mvcc.Request
	op  [1]mvcc.Op
}

func newSingle() *single {
	q := &single{}
	q.req.Kind = mvcc.Txn
	q.req.Then = q.op[:]
	return q
}

// Put implements etcdserverpb.KVServer.
func (s *service) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	q := newSingle()
	if err := putOp(&q.op[0], r); err != nil {
		return nil, err
	}
	if err := checkSize(r); err != nil {
		return nil, err
	}
	res, err := s.propose(ctx, &q.req)
	if err != nil {
		return nil, err
	}
	return putAnswer(&res.Ops[0], s.header(int64(res.Revision))), nil
}

// DeleteRange implements etcdserverpb.KVServer.
func (s *service) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	q := newSingle()
	if err := deleteOp(&q.op[0], r); err != nil {
		return nil, err
	}
	res, err := s.propose(ctx, &q.req)
	if err != nil {
		return nil, err
	}
	return deleteAnswer(&res.Ops[0], s.header(int64(res.Revision))), nil
}

// Txn implements etcdserverpb.KVServer.
func (s *service) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	req, err := txnRequest(r)
	if err != nil {
		return nil, err
	}
	res, err := s.txn(ctx, r, req)
	if err != nil {
		return nil, err
	}
	return txnAnswer(req, &res, s.header(int64(res.Revision))), nil
}

func (s *service) txn(ctx context.Context, r *pb.TxnRequest, req *mvcc.Request) (mvcc.Result, error) {
	if !req.ReadOnly() {
		if err := checkSize(r); err != nil {
			return mvcc.Result{}, err
		}
		return s.propose(ctx, req)
	}
	view, err := s.read(ctx, serializable(r))
	if err != nil {
		return mvcc.Result{}, rpcError(err)
	}
	res, _ := view.Answer(req)
	if res.Err != nil {
		return mvcc.Result{}, rpcError(res.Err)
	}
	return res, nil
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

// Compact implements etcdserverpb.KVServer. It answers once nothing below the
// revision can be read; the memory comes back later, asked to or not.
func (s *service) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	res, err := s.propose(ctx, &mvcc.Request{Kind: mvcc.Compact, Revision: mvcc.Revision(r.Revision)})
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header(int64(res.Revision))}, nil
}
