package wire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// The same translations as in this package, from and to etcd's generated types:
// slower and plain. Tests compare the package with them, byte by byte, and
// benchmarks measure it beside them.

func keyRange(key, end []byte) mvcc.KeyRange {
	return mvcc.KeyRange{Key: string(key), End: string(end)}
}

// rangeOp turns a range request into op.
func rangeOp(op *mvcc.Op, r *pb.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.SortOrder < pb.RangeRequest_NONE || r.SortOrder > pb.RangeRequest_DESCEND,
		r.SortTarget < pb.RangeRequest_KEY || r.SortTarget > pb.RangeRequest_VALUE:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	op.Kind = mvcc.OpRange
	op.Range = keyRange(r.Key, r.RangeEnd)
	op.Read = mvcc.ReadOptions{
		Revision:  mvcc.Revision(r.Revision),
		Limit:     r.Limit,
		CountOnly: r.CountOnly,
		KeysOnly:  r.KeysOnly,
		Order:     mvcc.SortOrder(r.SortOrder),
		Target:    mvcc.SortTarget(r.SortTarget),
		MinMod:    mvcc.Revision(r.MinModRevision),
		MaxMod:    mvcc.Revision(r.MaxModRevision),
		MinCreate: mvcc.Revision(r.MinCreateRevision),
		MaxCreate: mvcc.Revision(r.MaxCreateRevision),
	}
	return nil
}

// putOp turns a put request into op.
func putOp(op *mvcc.Op, r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	op.Kind = mvcc.OpPut
	op.Range.Key = string(r.Key)
	op.Value = r.Value
	op.Lease = mvcc.LeaseID(r.Lease)
	op.IgnoreValue, op.IgnoreLease, op.PrevKV = r.IgnoreValue, r.IgnoreLease, r.PrevKv
	return nil
}

// deleteOp turns a delete request into op.
func deleteOp(op *mvcc.Op, r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	op.Kind = mvcc.OpDelete
	op.Range = keyRange(r.Key, r.RangeEnd)
	op.PrevKV = r.PrevKv
	return nil
}

// txnRequest turns a transaction into a request of the state machine.
func txnRequest(r *pb.TxnRequest) (*mvcc.Request, error) {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > MaxTxnOps {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	req := &mvcc.Request{Kind: mvcc.Txn}
	if len(r.Compare) > 0 {
		req.Compares = make([]mvcc.Compare, len(r.Compare))
	}
	for i, c := range r.Compare {
		if err := compare(&req.Compares[i], c); err != nil {
			return nil, err
		}
	}
	var err error
	if req.Then, err = branch(r.Success); err != nil {
		return nil, err
	}
	if req.Else, err = branch(r.Failure); err != nil {
		return nil, err
	}
	if changesTwice(req.Then) || changesTwice(req.Else) {
		return nil, rpctypes.ErrGRPCDuplicateKey
	}
	return req, nil
}

func compare(to *mvcc.Compare, c *pb.Compare) error {
	switch {
	case len(c.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case c.Target < pb.Compare_VERSION || c.Target > pb.Compare_LEASE,
		c.Result < pb.Compare_EQUAL || c.Result > pb.Compare_NOT_EQUAL:
		return errUnknownCompare
	}
	to.Range = keyRange(c.Key, c.RangeEnd)
	to.Result = mvcc.CompareResult(c.Result)
	switch c.Target {
	case pb.Compare_VERSION:
		to.Target, to.Int = mvcc.TargetVersion, c.GetVersion()
	case pb.Compare_CREATE:
		to.Target, to.Int = mvcc.TargetCreate, c.GetCreateRevision()
	case pb.Compare_MOD:
		to.Target, to.Int = mvcc.TargetMod, c.GetModRevision()
	case pb.Compare_VALUE:
		to.Target, to.Value = mvcc.TargetValue, c.GetValue()
	case pb.Compare_LEASE:
		to.Target, to.Int = mvcc.TargetLease, c.GetLease()
	}
	return nil
}

func branch(ops []*pb.RequestOp) ([]mvcc.Op, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	to := make([]mvcc.Op, len(ops))
	for i, op := range ops {
		var err error
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = rangeOp(&to[i], r.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = putOp(&to[i], r.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			err = deleteOp(&to[i], r.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			err = errNestedTxn
		default:
			err = rpctypes.ErrGRPCKeyNotFound // etcd's answer to an empty operation
		}
		if err != nil {
			return nil, err
		}
	}
	return to, nil
}

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

// rangeResponse is the answer to a range. With keys only, etcd leaves out the
// lease too, unless it had to read the values to sort by them.
func rangeResponse(res *mvcc.ReadResult, target mvcc.SortTarget, header *pb.ResponseHeader) *pb.RangeResponse {
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

func putResponse(res *mvcc.OpResult, header *pb.ResponseHeader) *pb.PutResponse {
	resp := &pb.PutResponse{Header: header}
	if len(res.Prev) > 0 {
		resp.PrevKv = keyValue(res.Prev[0])
	}
	return resp
}

func deleteResponse(res *mvcc.OpResult, header *pb.ResponseHeader) *pb.DeleteRangeResponse {
	return &pb.DeleteRangeResponse{Header: header, Deleted: res.Deleted, PrevKvs: keyValues(res.Prev)}
}

// txnResponse is the answer to a transaction. The head of each operation says
// which revision it saw or made: the transaction's own from its first change
// on, the one before up to there.
func txnResponse(req *mvcc.Request, res *mvcc.Result, header *pb.ResponseHeader) *pb.TxnResponse {
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
			op.Response = &pb.ResponseOp_ResponseRange{ResponseRange: rangeResponse(&out.Read, ops[i].Read.Target, head)}
		case mvcc.OpPut:
			op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: putResponse(out, head)}
		case mvcc.OpDelete:
			op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleteResponse(out, head)}
		}
		resp.Responses[i] = op
	}
	return resp
}

func events(changes []mvcc.Change, prevKV bool) []*mvccpb.Event {
	to := make([]*mvccpb.Event, len(changes))
	for i := range changes {
		c := &changes[i]
		e := &mvccpb.Event{Kv: keyValue(c.KV)}
		if !c.KV.Live() {
			e.Type = mvccpb.Event_DELETE
		}
		if prevKV {
			e.PrevKv = keyValue(c.Prev)
		}
		to[i] = e
	}
	return to
}
