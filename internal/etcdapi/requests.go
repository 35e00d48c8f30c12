package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// What clients ask, checked as etcd's api/v3rpc/key.go checks it, in the state
// machine's terms. Values are not copied: a decoded message owns its bytes.

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
		Revision:  mvcc.Revision(max(r.Revision, 0)),
		Limit:     max(r.Limit, 0),
		CountOnly: r.CountOnly,
		KeysOnly:  r.KeysOnly,
		Order:     mvcc.SortOrder(r.SortOrder),
		Target:    mvcc.SortTarget(r.SortTarget),
		MinMod:    mvcc.Revision(r.MinModRevision),
		MaxMod:    mvcc.Revision(r.MaxModRevision),
		MinCreate: mvcc.Revision(r.MinCreateRevision),
		MaxCreate: mvcc.Revision(r.MaxCreateRevision),
	}
	if op.Read.Target != mvcc.SortByKey && op.Read.Order == mvcc.Unsorted {
		op.Read.Order = mvcc.Ascend
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

var (
	errNestedTxn      = status.Error(codes.Unimplemented, "etcdserver: a transaction in a transaction is not supported")
	errUnknownCompare = status.Error(codes.InvalidArgument, "etcdserver: unknown target or result of a compare")
)

// txnRequest turns a transaction into a request of the state machine.
func txnRequest(r *pb.TxnRequest) (*mvcc.Request, error) {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxTxnOps {
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
	to.Result = compareResults[c.Result]
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

var compareResults = [...]mvcc.CompareResult{
	pb.Compare_EQUAL:     mvcc.Equal,
	pb.Compare_GREATER:   mvcc.Greater,
	pb.Compare_LESS:      mvcc.Less,
	pb.Compare_NOT_EQUAL: mvcc.NotEqual,
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

// changesTwice says whether one key could be changed by two of the
// operations; two deletes may overlap. etcd refuses that in either branch,
// whichever is taken.
func changesTwice(ops []mvcc.Op) bool {
	if len(ops) < 2 {
		return false
	}
	puts := make(map[string]struct{}, len(ops))
	for i := range ops {
		if ops[i].Kind != mvcc.OpPut {
			continue
		}
		key := ops[i].Range.Key
		if _, ok := puts[key]; ok {
			return true
		}
		puts[key] = struct{}{}
	}
	if len(puts) == 0 {
		return false
	}
	for i := range ops {
		if ops[i].Kind != mvcc.OpDelete {
			continue
		}
		for key := range puts {
			if ops[i].Range.Contains(key) {
				return true
			}
		}
	}
	return false
}
