package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// What the state machine answers, in etcd's terms. Values are shared with the
// state, which never changes them.

func keyValue(kv *mvcc.KV) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key:            []byte(kv.Key),
		Value:          kv.Value,
		CreateRevision: int64(kv.Create),
		ModRevision:    int64(kv.Mod),
		Version:        kv.Version,
		Lease:          int64(kv.Lease),
	}
}

func keyValues(kvs []*mvcc.KV) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	to := make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		to[i] = keyValue(kv)
	}
	return to
}

// rangeAnswer is the answer to a range. With keys only, etcd leaves out the
// lease too, unless it had to read the values to sort by them.
func rangeAnswer(res *mvcc.ReadResult, target mvcc.SortTarget, header *pb.ResponseHeader) *pb.RangeResponse {
	resp := &pb.RangeResponse{Header: header, Kvs: keyValues(res.KVs), More: res.More, Count: res.Count}
	if res.KeysOnly {
		for _, kv := range resp.Kvs {
			kv.Value = nil
			if target != mvcc.SortByValue {
				kv.Lease = 0
			}
		}
	}
	return resp
}

func putAnswer(res *mvcc.OpResult, header *pb.ResponseHeader) *pb.PutResponse {
	resp := &pb.PutResponse{Header: header}
	if len(res.Prev) > 0 {
		resp.PrevKv = keyValue(res.Prev[0])
	}
	return resp
}

func deleteAnswer(res *mvcc.OpResult, header *pb.ResponseHeader) *pb.DeleteRangeResponse {
	return &pb.DeleteRangeResponse{Header: header, Deleted: res.Deleted, PrevKvs: keyValues(res.Prev)}
}

// txnAnswer is the answer to a transaction. The head of each operation says
// which revision it saw or made: the transaction's own from its first change
// on, the one before up to there.
func txnAnswer(req *mvcc.Request, res *mvcc.Result, header *pb.ResponseHeader) *pb.TxnResponse {
	ops := req.Then
	if !res.Succeeded {
		ops = req.Else
	}
	resp := &pb.TxnResponse{Header: header, Succeeded: res.Succeeded, Responses: make([]*pb.ResponseOp, len(res.Ops))}
	rev := int64(res.Revision)
	if changed(res.Ops) {
		rev--
	}
	for i := range res.Ops {
		out := &res.Ops[i]
		if out.Kind == mvcc.OpPut || out.Deleted > 0 {
			rev = int64(res.Revision)
		}
		head := &pb.ResponseHeader{Revision: rev}
		op := &pb.ResponseOp{}
		switch out.Kind {
		case mvcc.OpRange:
			op.Response = &pb.ResponseOp_ResponseRange{ResponseRange: rangeAnswer(&out.Read, ops[i].Read.Target, head)}
		case mvcc.OpPut:
			op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: putAnswer(out, head)}
		case mvcc.OpDelete:
			op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleteAnswer(out, head)}
		}
		resp.Responses[i] = op
	}
	return resp
}

func changed(ops []mvcc.OpResult) bool {
	for i := range ops {
		if ops[i].Kind == mvcc.OpPut || ops[i].Deleted > 0 {
			return true
		}
	}
	return false
}
