package mvcc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

// This file has the wire form of requests, which is the body of a batch's record. A key that
// equals the last key of the same request takes one byte.
// docs/journal-format.md gives it byte by byte.

// ErrMalformed says that bytes are not a batch, or not a snapshot. A record with such bytes is
// void.
var ErrMalformed = errors.New("malformed")

// The least lengths of wire forms, in bytes.
const (
	minRequest = 2 // a kind and a revision
	minCompare = 5 // target, result, key, end, what to compare with
	minOp      = 4 // kind, flags, key, end
)

// MaxBatchRequests bounds the requests of one batch.
const MaxBatchRequests = 1 << 16

// MaxBatchWeight bounds the weight of the requests of one batch together. A heavier batch is
// malformed, so that few bytes cannot stand for much memory.
const MaxBatchWeight = 4 << 20

// The weight of requests, compares and operations, without their keys, range ends and
// values. It is at least the length of their wire form, and about half the memory that
// they take once they are decoded.
const (
	requestWeight = 64
	compareWeight = 40
	opWeight      = 96
)

// Weight returns what the request adds to the weight of a batch. A key counts each time that
// it is named, even if the wire form has it once.
func (r *Request) Weight() int {
	n := requestWeight
	for i := range r.Compares {
		n += r.Compares[i].weight()
	}
	for _, ops := range [...][]Op{r.Then, r.Else} {
		for i := range ops {
			n += ops[i].weight()
		}
	}
	return n
}

func (c *Compare) weight() int { return compareWeight + rangeWeight(c.Range) + len(c.Value) }

func (op *Op) weight() int { return opWeight + rangeWeight(op.Range) + len(op.Value) }

func rangeWeight(r KeyRange) int { return len(r.Key) + len(r.End) }

// AppendRequests appends the wire form of requests to dst.
func AppendRequests(dst []byte, requests []*Request) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(requests)))
	for _, r := range requests {
		w := requestWriter{Writer: wire.Writer{B: dst}}
		w.request(r)
		dst = w.B
	}
	return dst
}

// ParseRequests decodes the output of AppendRequests. Its result shares no memory with b, and
// takes at most 3 times MaxBatchWeight, whatever b holds. The error wraps ErrMalformed.
func ParseRequests(b []byte) ([]Request, error) {
	r := requestReader{Reader: wire.Reader{B: b}, room: MaxBatchWeight}
	n := r.Uvarint()
	if n > MaxBatchRequests || n > uint64(len(r.B)/minRequest) || !r.weigh(requestWeight*int(n)) {
		return nil, fmt.Errorf("batch of %d requests: %w", n, ErrMalformed)
	}
	requests := make([]Request, n)
	for i := range requests {
		r.lastKey = ""
		r.request(&requests[i])
		if r.Failed {
			return nil, fmt.Errorf("request %d of %d: %w", i+1, n, ErrMalformed)
		}
	}
	if r.Failed || len(r.B) != 0 {
		return nil, fmt.Errorf("batch of %d requests: %w", n, ErrMalformed)
	}
	return requests, nil
}

// requestWriter writes requests.
type requestWriter struct {
	wire.Writer
	lastKey string // that was written in this request
}

// key writes 0 if k is the key last written, otherwise the length + 1 and the key.
func (w *requestWriter) key(s string) {
	if s == w.lastKey && s != "" {
		w.Byte(0)
		return
	}
	w.Uvarint(uint64(len(s)) + 1)
	w.B = append(w.B, s...)
	w.lastKey = s
}

func (w *requestWriter) keyRange(r KeyRange) { w.key(r.Key); w.Text(r.End) }

func (w *requestWriter) request(r *Request) {
	w.Byte(byte(r.Kind))
	switch r.Kind {
	case Txn:
		w.Uvarint(uint64(len(r.Compares)))
		for i := range r.Compares {
			w.compare(&r.Compares[i])
		}
		w.ops(r.Then)
		w.ops(r.Else)
	case Compact:
		w.Varint(int64(r.Revision))
	default:
		w.Varint(int64(r.Lease))
		w.Varint(r.TTL)
		w.Uvarint(uint64(r.Since))
	}
}

func (w *requestWriter) compare(c *Compare) {
	w.Byte(byte(c.Target))
	w.Byte(byte(c.Result))
	w.keyRange(c.Range)
	if c.Target == TargetValue {
		w.Bytes(c.Value)
	} else {
		w.Varint(c.Int)
	}
}

// The flags of an operation.
const (
	flagPrevKV = 1 << iota
	flagIgnoreValue
	flagIgnoreLease
	flagCountOnly
	flagKeysOnly
	flagOptions // a range has options beside these
)

func bitIf(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

func (w *requestWriter) ops(ops []Op) {
	w.Uvarint(uint64(len(ops)))
	for i := range ops {
		op := &ops[i]
		o := &op.Read
		options := o.Revision|o.MinMod|o.MaxMod|o.MinCreate|o.MaxCreate != 0 || o.Limit != 0 || o.Order != 0 || o.Target != 0
		w.Byte(byte(op.Kind))
		w.Byte(bitIf(op.PrevKV, flagPrevKV) | bitIf(op.IgnoreValue, flagIgnoreValue) | bitIf(op.IgnoreLease, flagIgnoreLease) |
			bitIf(o.CountOnly, flagCountOnly) | bitIf(o.KeysOnly, flagKeysOnly) | bitIf(options, flagOptions))
		w.keyRange(op.Range)
		if op.Kind == OpPut {
			w.Bytes(op.Value)
			w.Varint(int64(op.Lease))
		}
		if options {
			for _, n := range [...]int64{int64(o.Revision), o.Limit, int64(o.MinMod), int64(o.MaxMod), int64(o.MinCreate), int64(o.MaxCreate)} {
				w.Varint(n)
			}
			w.Byte(byte(o.Order))
			w.Byte(byte(o.Target))
		}
	}
}

// requestReader reads requests.
type requestReader struct {
	wire.Reader
	lastKey string // that was read in this request
	room    int    // what more requests may weigh. Invariant: at least 0
}

// weigh takes n from the weight that is left; it fails if too little is left.
func (r *requestReader) weigh(n int) bool {
	if n > r.room {
		r.Fail()
		return false
	}
	r.room -= n
	return true
}

func (r *requestReader) key() string {
	n := r.Uvarint()
	if n > 0 {
		r.lastKey = string(r.Take(n - 1))
	}
	return r.lastKey
}

func (r *requestReader) keyRange() KeyRange {
	k := r.key()
	return KeyRange{Key: k, End: r.Text()}
}

// weighed reads the length of a list whose items have at least size bytes each. It weighs the
// items before memory is allocated for them.
func (r *requestReader) weighed(size, weight int) int {
	n := r.Count(size, r.room/weight)
	if !r.weigh(n * weight) {
		return 0
	}
	return n
}

func (r *requestReader) request(q *Request) {
	q.Kind = RequestKind(r.Enum(byte(Txn), byte(LeaseExpire)))
	switch q.Kind {
	case Txn:
		if n := r.weighed(minCompare, compareWeight); n > 0 {
			q.Compares = make([]Compare, n)
		}
		for i := range q.Compares {
			if r.compare(&q.Compares[i]); r.Failed {
				return
			}
		}
		q.Then = r.ops()
		q.Else = r.ops()
	case Compact:
		q.Revision = Revision(r.Varint())
	default:
		q.Lease = LeaseID(r.Varint())
		q.TTL = r.Varint()
		q.Since = journal.Slot(r.Uvarint())
	}
}

func (r *requestReader) compare(c *Compare) {
	c.Target = CompareTarget(r.Enum(0, byte(TargetLease)))
	c.Result = CompareResult(r.Enum(0, byte(NotEqual)))
	c.Range = r.keyRange()
	if c.Target == TargetValue {
		c.Value = r.Bytes()
	} else {
		c.Int = r.Varint()
	}
	r.weigh(c.weight() - compareWeight)
}

func (r *requestReader) ops() []Op {
	n := r.weighed(minOp, opWeight)
	if n == 0 {
		return nil
	}
	ops := make([]Op, n)
	for i := range ops {
		r.op(&ops[i])
		if r.Failed {
			return nil
		}
	}
	return ops
}

func (r *requestReader) op(op *Op) {
	op.Kind = OpKind(r.Enum(byte(OpRange), byte(OpDelete)))
	f := r.Enum(0, 2*flagOptions-1)
	op.PrevKV, op.IgnoreValue, op.IgnoreLease = f&flagPrevKV != 0, f&flagIgnoreValue != 0, f&flagIgnoreLease != 0
	op.Read.CountOnly, op.Read.KeysOnly = f&flagCountOnly != 0, f&flagKeysOnly != 0
	op.Range = r.keyRange()
	if op.Kind == OpPut {
		op.Value = r.Bytes()
		op.Lease = LeaseID(r.Varint())
	}
	if f&flagOptions != 0 {
		o := &op.Read
		o.Revision, o.Limit = Revision(r.Varint()), r.Varint()
		o.MinMod, o.MaxMod = Revision(r.Varint()), Revision(r.Varint())
		o.MinCreate, o.MaxCreate = Revision(r.Varint()), Revision(r.Varint())
		o.Order = SortOrder(r.Enum(0, byte(Descend)))
		o.Target = SortTarget(r.Enum(0, byte(SortByValue)))
	}
	r.weigh(op.weight() - opWeight)
}
