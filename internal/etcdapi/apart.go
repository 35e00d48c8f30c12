package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// UnderWay is a key that exists only at revisions in the middle of a transaction that is
// written apart. A transaction that compares this key with anything is written apart: each
// of its writes gets a revision of its own, in the order of the request. All of them happen
// or none does, in one record of the journal, and only a read of a past revision sees the
// state between two of them. Puts with a lease share the revision of the first write: if
// the lease is missing, all writes must be refused together.
//
// Kubernetes needs this: its watch caches take several events of one revision for one, and
// a watch that begins between them loses the others.
const UnderWay = "/xbernetes/transactions/under-way"

var errApart = status.Error(codes.InvalidArgument, "a transaction that compares "+UnderWay+" must put or delete single keys, and have no failure branch")

// isApart says whether a transaction is to be written apart.
func isApart(r *mvcc.Request) bool {
	for i := range r.Compares {
		if r.Compares[i].Range.Key == UnderWay {
			return true
		}
	}
	return false
}

// split is the requests that carry out a transaction, and for each of them the indexes of
// the transaction's operations that it does.
type split struct {
	requests []*mvcc.Request
	ops      [][]int
}

// apart splits a transaction. The error is grpc's.
func apart(r *mvcc.Request) (split, error) {
	first, rest, err := parted(r)
	if err != nil {
		return split{}, err
	}
	if len(rest) > 0 {
		first, rest = append(first, rest[0]), rest[1:]
	}
	s := split{ops: [][]int{first}}
	for _, i := range rest {
		s.ops = append(s.ops, []int{i})
	}
	for n, indexes := range s.ops {
		req := &mvcc.Request{Kind: mvcc.Txn, Compares: underWay}
		for _, i := range indexes {
			req.Then = append(req.Then, r.Then[i])
		}
		switch {
		case n == 0:
			req.Compares = r.Compares
			if len(rest) > 0 {
				req.Then = append(req.Then, mvcc.Op{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: UnderWay}})
			}
		case n == len(rest):
			req.Then = append(req.Then, mvcc.Op{Kind: mvcc.OpDelete, Range: mvcc.KeyRange{Key: UnderWay}})
		}
		s.requests = append(s.requests, req)
	}
	return s, nil
}

// underWay is a compare that holds only in the middle of a transaction.
var underWay = []mvcc.Compare{{Range: mvcc.KeyRange{Key: UnderWay}, Target: mvcc.TargetCreate, Result: mvcc.Greater}}

// parted returns the operations that must be in the first request, and the others.
func parted(r *mvcc.Request) (first, rest []int, err error) {
	if len(r.Else) > 0 {
		return nil, nil, errApart
	}
	for i := range r.Then {
		op := &r.Then[i]
		switch {
		case op.Kind == mvcc.OpRange || op.Range.End != "" || op.IgnoreValue || op.IgnoreLease || op.Range.Key == UnderWay:
			return nil, nil, errApart
		case op.Lease != 0:
			first = append(first, i)
		default:
			rest = append(rest, i)
		}
	}
	return first, rest, nil
}

// proposeApart carries out a transaction apart, and returns its outcome as if all its writes
// had the last of its revisions. bytes is the length of the client's message.
func (s *Server) proposeApart(ctx context.Context, r *mvcc.Request, bytes int) (mvcc.Result, error) {
	parts, err := apart(r)
	if err != nil {
		return mvcc.Result{}, err
	}
	if len(parts.requests) == 1 {
		return s.propose(ctx, r, bytes)
	}
	if bytes > maxRequestBytes {
		return mvcc.Result{}, rpctypes.ErrGRPCRequestTooLarge
	}
	results, err := s.replica.ProposeTogether(ctx, parts.requests...)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return mvcc.Result{}, rpcError(err)
	}
	whole := mvcc.Result{Succeeded: results[0].Succeeded, Revision: results[len(results)-1].Revision}
	if !whole.Succeeded {
		return whole, nil
	}
	whole.Ops = make([]mvcc.OpResult, len(r.Then))
	for n, res := range results {
		if !res.Succeeded || res.Err != nil {
			return mvcc.Result{}, rpcError(errors.New("a transaction was carried out in part; this cannot be, and is a fault of xbernetes"))
		}
		for k, i := range parts.ops[n] {
			whole.Ops[i] = res.Ops[k]
		}
	}
	return whole, nil
}
