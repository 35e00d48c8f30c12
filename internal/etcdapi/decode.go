package etcdapi

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// The hot requests, read from their messages into the state machine's terms,
// and checked as etcd's api/v3rpc/key.go checks them. Field numbers are those
// of etcd's rpc.proto.

// fields walks the fields of a message.
type fields struct {
	b   []byte
	num protowire.Number
	typ protowire.Type
	n   uint64 // of a varint
	sub []byte // of a field with a length, still part of the message
	err error
}

// next moves to the next field that is a varint or has a length: the only ones
// that these messages have. Others are unknown, and skipped.
func (f *fields) next() bool {
	for len(f.b) > 0 {
		num, typ, n := protowire.ConsumeTag(f.b)
		if n < 0 {
			return f.fail(n)
		}
		f.b = f.b[n:]
		f.num, f.typ = num, typ
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(f.b)
			f.sub = nil
		case protowire.BytesType:
			f.sub, n = protowire.ConsumeBytes(f.b)
			f.n = 0
		default:
			n = protowire.ConsumeFieldValue(num, typ, f.b)
			f.num = 0
		}
		if n < 0 {
			return f.fail(n)
		}
		f.b = f.b[n:]
		if f.num != 0 {
			return true
		}
	}
	return false
}

func (f *fields) fail(n int) bool {
	f.err = protowire.ParseError(n)
	f.b = nil
	return false
}

// integer says whether the field is the varint number num.
func (f *fields) integer(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.VarintType
}

// length says whether the field is number num, and has a length.
func (f *fields) length(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

var (
	errNestedTxn      = status.Error(codes.Unimplemented, "etcdserver: a transaction in a transaction is not supported")
	errUnknownCompare = status.Error(codes.InvalidArgument, "etcdserver: unknown target or result of a compare")
)

// rangeQuestion is a RangeRequest.
type rangeQuestion struct {
	op           mvcc.Op
	serializable bool
	invalid      error
}

func (q *rangeQuestion) parse(b []byte) error {
	var err error
	q.serializable, err = parseRange(&q.op, b)
	q.invalid = checkRange(&q.op)
	return err
}

// parseRange reads a RangeRequest. Enumerations out of their bounds come out
// as values that checkRange refuses.
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

// small is an enumeration's value in a byte; 255 is none of any.
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

// single is a transaction of one operation.
type single struct {
	req     mvcc.Request
	op      [1]mvcc.Op
	bytes   int // of the message
	invalid error
}

func (q *single) begin(b []byte) *mvcc.Op {
	q.req.Kind = mvcc.Txn
	q.req.Then = q.op[:]
	q.bytes = len(b)
	return &q.op[0]
}

// putQuestion is a PutRequest.
type putQuestion struct{ single }

func (q *putQuestion) parse(b []byte) error {
	op := q.begin(b)
	err := parsePut(op, b)
	q.invalid = checkPut(op)
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

// deleteQuestion is a DeleteRangeRequest.
type deleteQuestion struct{ single }

func (q *deleteQuestion) parse(b []byte) error {
	op := q.begin(b)
	err := parseDelete(op, b)
	q.invalid = checkDelete(op)
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
