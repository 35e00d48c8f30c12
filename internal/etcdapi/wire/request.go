package wire

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// Requests are checked here as etcd's api/v3rpc/key.go checks them.

var (
	errNestedTxn      = status.Error(codes.Unimplemented, "etcdserver: a transaction in a transaction is not supported")
	errUnknownCompare = status.Error(codes.InvalidArgument, "etcdserver: unknown target or result of a compare")
)

// RangeRequest is etcd's request of that name.
type RangeRequest struct {
	Op           mvcc.Op
	Serializable bool  // may be answered from the local state
	Invalid      error // what etcd says if it refuses to answer; nil otherwise
}

func (q *RangeRequest) parse(b []byte) error {
	var err error
	q.Serializable, err = parseRange(&q.Op, b)
	q.Invalid = checkRange(&q.Op)
	return err
}

// parseRange reads a RangeRequest into op. An enumeration's value that etcd does
// not know becomes one that checkRange refuses.
func parseRange(op *mvcc.Op, b []byte) (serializable bool, err error) {
	op.Kind = mvcc.OpRange
	o := &op.Read
	f := fields{b: b}
	for f.next() {
		switch {
		case f.length(1):
			op.Range.Key = string(f.sub)
		case f.length(2):
			op.Range.End = string(f.sub)
		case f.integer(3):
			o.Limit = int64(f.n)
		case f.integer(4):
			o.Revision = mvcc.Revision(f.n)
		case f.integer(5):
			o.Order = mvcc.SortOrder(small(f.n))
		case f.integer(6):
			o.Target = mvcc.SortTarget(small(f.n))
		case f.integer(7):
			serializable = f.n != 0
		case f.integer(8):
			o.KeysOnly = f.n != 0
		case f.integer(9):
			o.CountOnly = f.n != 0
		case f.integer(10):
			o.MinMod = mvcc.Revision(f.n)
		case f.integer(11):
			o.MaxMod = mvcc.Revision(f.n)
		case f.integer(12):
			o.MinCreate = mvcc.Revision(f.n)
		case f.integer(13):
			o.MaxCreate = mvcc.Revision(f.n)
		}
	}
	return serializable, f.err
}

// small returns an enumeration's value as a byte. No enumeration has the value
// 255, which stands for all that do not fit.
func small(n uint64) uint8 {
	if n = uint64(uint32(n)); n > 255 {
		return 255
	}
	return uint8(n)
}

func checkRange(op *mvcc.Op) error {
	switch {
	case op.Range.Key == "":
		return rpctypes.ErrGRPCEmptyKey
	case op.Read.Order > mvcc.Descend || op.Read.Target > mvcc.SortByValue:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// single is a request of one operation, which becomes a transaction of it.
type single struct {
	Request mvcc.Request // Invariant: Then is op
	Size    int          // bytes of the message
	Invalid error        // what etcd says if it refuses to do it; nil otherwise

	op [1]mvcc.Op
}

func (q *single) begin(b []byte) *mvcc.Op {
	q.Request.Kind = mvcc.Txn
	q.Request.Then = q.op[:]
	q.Size = len(b)
	return &q.op[0]
}

// PutRequest is etcd's request of that name.
type PutRequest struct{ single }

func (q *PutRequest) parse(b []byte) error {
	op := q.begin(b)
	err := parsePut(op, b)
	q.Invalid = checkPut(op)
	return err
}

func parsePut(op *mvcc.Op, b []byte) error {
	op.Kind = mvcc.OpPut
	var value []byte
	f := fields{b: b}
	for f.next() {
		switch {
		case f.length(1):
			op.Range.Key = string(f.sub)
		case f.length(2):
			value = f.sub
		case f.integer(3):
			op.Lease = mvcc.LeaseID(f.n)
		case f.integer(4):
			op.PrevKV = f.n != 0
		case f.integer(5):
			op.IgnoreValue = f.n != 0
		case f.integer(6):
			op.IgnoreLease = f.n != 0
		}
	}
	if value != nil {
		op.Value = bytes.Clone(value)
	}
	return f.err
}

func checkPut(op *mvcc.Op) error {
	switch {
	case op.Range.Key == "":
		return rpctypes.ErrGRPCEmptyKey
	case op.IgnoreValue && len(op.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case op.IgnoreLease && op.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

// DeleteRequest is etcd's DeleteRangeRequest.
type DeleteRequest struct{ single }

func (q *DeleteRequest) parse(b []byte) error {
	op := q.begin(b)
	err := parseDelete(op, b)
	q.Invalid = checkDelete(op)
	return err
}

func parseDelete(op *mvcc.Op, b []byte) error {
	op.Kind = mvcc.OpDelete
	f := fields{b: b}
	for f.next() {
		switch {
		case f.length(1):
			op.Range.Key = string(f.sub)
		case f.length(2):
			op.Range.End = string(f.sub)
		case f.integer(3):
			op.PrevKV = f.n != 0
		}
	}
	return f.err
}

func checkDelete(op *mvcc.Op) error {
	if op.Range.Key == "" {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}
