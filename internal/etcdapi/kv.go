package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// kvService describes etcdserverpb.KV to grpc, with our own messages in place
// of the generated ones.
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
			q := new(rangeQuestion)
			if err := stream.RecvMsg(q); err != nil {
				return err
			}
			return srv.(*service).rangeStream(stream, q)
		},
	}},
}

// method describes a call with a question of type Q.
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

// propose carries out a request and returns its outcome, in etcd's words.
// bytes is the length of the client's message.
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
func (s *Server) lookup(ctx context.Context, q *rangeQuestion) (*rangeAnswer, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	view, err := s.read(ctx, q.serializable)
	if err != nil {
		return nil, rpcError(err)
	}
	a := &rangeAnswer{head: s.head(view.Revision()), target: q.op.Read.Target}
	if a.ReadResult, err = view.Read(q.op.Range, q.op.Read); err != nil {
		return nil, rpcError(err)
	}
	return a, nil
}

func (s *service) rangeKV(ctx context.Context, q *rangeQuestion) (any, error) {
	a, err := s.lookup(ctx, q)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// streamChunk is about how much of an answer one chunk of RangeStream holds,
// in bytes.
const streamChunk = 256 << 10

// rangeStream sends the answer to a range in chunks, with header, more and
// count on the last only, all at one revision.
func (s *service) rangeStream(stream grpc.ServerStream, q *rangeQuestion) error {
	o := &q.op.Read
	switch {
	case q.invalid != nil:
		return q.invalid
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
			return stream.SendMsg(&rangeChunk{*whole})
		}
		chunk := &rangeChunk{rangeAnswer{ReadResult: mvcc.ReadResult{KVs: whole.KVs[:n], KeysOnly: whole.KeysOnly}, target: whole.target}}
		if err := stream.SendMsg(chunk); err != nil {
			return err
		}
		whole.KVs = whole.KVs[n:]
	}
}

func (s *service) put(ctx context.Context, q *putQuestion) (any, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	res, err := s.propose(ctx, &q.req, q.bytes)
	if err != nil {
		return nil, err
	}
	return &putAnswer{head: s.head(res.Revision), prev: res.Ops[0].Prev}, nil
}

func (s *service) deleteRange(ctx context.Context, q *deleteQuestion) (any, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	res, err := s.propose(ctx, &q.req, q.bytes)
	if err != nil {
		return nil, err
	}
	return &deleteAnswer{head: s.head(res.Revision), deleted: res.Ops[0].Deleted, prev: res.Ops[0].Prev}, nil
}

func (s *service) txn(ctx context.Context, q *txnQuestion) (any, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	a := &txnAnswer{ops: q.req.Then}
	var err error
	if q.req.ReadOnly() {
		a.res, err = s.readTxn(ctx, q)
	} else {
		a.res, err = s.propose(ctx, &q.req, q.bytes)
	}
	if err != nil {
		return nil, err
	}
	if !a.res.Succeeded {
		a.ops = q.req.Else
	}
	a.head = s.head(a.res.Revision)
	return a, nil
}

// readTxn answers a transaction that cannot change anything.
func (s *service) readTxn(ctx context.Context, q *txnQuestion) (mvcc.Result, error) {
	view, err := s.read(ctx, q.local)
	if err != nil {
		return mvcc.Result{}, rpcError(err)
	}
	res, _ := view.Answer(&q.req)
	if res.Err != nil {
		return mvcc.Result{}, rpcError(res.Err)
	}
	return res, nil
}

// compact answers once nothing below the revision can be read; the memory
// comes back later, whether or not the client asks to wait for that.
func (s *service) compact(ctx context.Context, r *pb.CompactionRequest) (any, error) {
	res, err := s.propose(ctx, &mvcc.Request{Kind: mvcc.Compact, Revision: mvcc.Revision(r.Revision)}, 0)
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header(res.Revision)}, nil
}
