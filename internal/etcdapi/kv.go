package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// kvService describes etcdserverpb.KV to grpc, with the messages of package wire in place of
// the generated ones.
var kvService = grpc.ServiceDesc{
	ServiceName: pb.KV_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		method("Range", (*service).rangeKV),
		method("Put", (*service).put),
		method("DeleteRange", (*service).deleteRange),
		method("Txn", (*service).txn),
		method("Compact", (*service).compact),
	},
	Streams: []grpc.StreamDesc{{
		StreamName:    "RangeStream",
		ServerStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			q := new(wire.RangeRequest)
			if err := stream.RecvMsg(q); err != nil {
				return err
			}
			return srv.(*service).rangeStream(stream, q)
		},
	}},
}

// method describes a call whose request has type Q.
func method[Q any](name string, handle func(*service, context.Context, *Q) (any, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			q := new(Q)
			if err := decode(q); err != nil {
				return nil, err
			}
			return handle(srv.(*service), ctx, q)
		},
	}
}

// read returns the state that a read is answered from.
func (s *Server) read(ctx context.Context, serializable bool) (*mvcc.View, error) {
	if serializable || s.cfg.SessionReads {
		return s.replica.View(), nil
	}
	return s.replica.Linearizable(ctx)
}

// propose carries out a request and returns its outcome, with etcd's errors. bytes is the
// length of the client's message.
func (s *Server) propose(ctx context.Context, req *mvcc.Request, bytes int) (mvcc.Result, error) {
	if bytes > maxRequestBytes {
		return mvcc.Result{}, rpctypes.ErrGRPCRequestTooLarge
	}
	res, err := s.replica.Propose(ctx, req)
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return res, rpcError(err)
	}
	return res, nil
}

// lookup answers a range from the state.
func (s *Server) lookup(ctx context.Context, q *wire.RangeRequest) (*wire.RangeResponse, error) {
	if q.Invalid != nil {
		return nil, q.Invalid
	}
	view, err := s.read(ctx, q.Serializable)
	if err != nil {
		return nil, rpcError(err)
	}
	a := &wire.RangeResponse{Header: s.head(view.Revision()), Target: q.Op.Read.Target}
	if a.ReadResult, err = view.Read(q.Op.Range, q.Op.Read); err != nil {
		return nil, rpcError(err)
	}
	return a, nil
}

func (s *service) rangeKV(ctx context.Context, q *wire.RangeRequest) (any, error) {
	a, err := s.lookup(ctx, q)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// streamChunk is about how many bytes of an answer one chunk of RangeStream holds.
const streamChunk = 256 << 10

// rangeStream sends the answer to a range in chunks, all at one revision. Only the last chunk
// has header, more and count.
func (s *service) rangeStream(stream grpc.ServerStream, q *wire.RangeRequest) error {
	o := &q.Op.Read
	switch {
	case q.Invalid != nil:
		return q.Invalid
	case o.Order == mvcc.Descend, o.Order == mvcc.Ascend && o.Target != mvcc.SortByKey:
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	case o.MinMod|o.MaxMod|o.MinCreate|o.MaxCreate != 0:
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	whole, err := s.lookup(stream.Context(), q)
	if err != nil {
		return err
	}
	for {
		n, size := 0, 0
		for n < len(whole.KVs) && size < streamChunk {
			size += 64 + len(whole.KVs[n].Key)
			if !whole.KeysOnly {
				size += len(whole.KVs[n].Value)
			}
			n++
		}
		if n == len(whole.KVs) {
			return stream.SendMsg(&wire.RangeStreamResponse{RangeResponse: *whole})
		}
		chunk := wire.RangeResponse{ReadResult: mvcc.ReadResult{KVs: whole.KVs[:n], KeysOnly: whole.KeysOnly}, Target: whole.Target}
		if err := stream.SendMsg(&wire.RangeStreamResponse{RangeResponse: chunk}); err != nil {
			return err
		}
		whole.KVs = whole.KVs[n:]
	}
}

func (s *service) put(ctx context.Context, q *wire.PutRequest) (any, error) {
	if q.Invalid != nil {
		return nil, q.Invalid
	}
	res, err := s.propose(ctx, &q.Request, q.Size)
	if err != nil {
		return nil, err
	}
	return &wire.PutResponse{Header: s.head(res.Revision), Prev: res.Ops[0].Prev}, nil
}

func (s *service) deleteRange(ctx context.Context, q *wire.DeleteRequest) (any, error) {
	if q.Invalid != nil {
		return nil, q.Invalid
	}
	res, err := s.propose(ctx, &q.Request, q.Size)
	if err != nil {
		return nil, err
	}
	return &wire.DeleteResponse{Header: s.head(res.Revision), Deleted: res.Ops[0].Deleted, Prev: res.Ops[0].Prev}, nil
}

func (s *service) txn(ctx context.Context, q *wire.TxnRequest) (any, error) {
	if q.Invalid != nil {
		return nil, q.Invalid
	}
	var res mvcc.Result
	var err error
	switch {
	case q.Request.ReadOnly():
		res, err = s.readTxn(ctx, q)
	case isApart(&q.Request):
		res, err = s.proposeApart(ctx, &q.Request, q.Size)
	default:
		res, err = s.propose(ctx, &q.Request, q.Size)
	}
	if err != nil {
		return nil, err
	}
	taken := q.Request.Then
	if !res.Succeeded {
		taken = q.Request.Else
	}
	return &wire.TxnResponse{Header: s.head(res.Revision), Ops: taken, Result: res}, nil
}

// readTxn answers a transaction that cannot change anything.
func (s *service) readTxn(ctx context.Context, q *wire.TxnRequest) (mvcc.Result, error) {
	view, err := s.read(ctx, q.Local)
	if err != nil {
		return mvcc.Result{}, rpcError(err)
	}
	res, _ := view.Answer(&q.Request)
	if res.Err != nil {
		return mvcc.Result{}, rpcError(res.Err)
	}
	return res, nil
}

// compact answers once nothing below the revision can be read. The memory is freed later,
// even if the client asks to wait for that.
func (s *service) compact(ctx context.Context, r *pb.CompactionRequest) (any, error) {
	res, err := s.propose(ctx, &mvcc.Request{Kind: mvcc.Compact, Revision: mvcc.Revision(r.Revision)}, 0)
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header(res.Revision)}, nil
}
