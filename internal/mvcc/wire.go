package mvcc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// The wire form of requests: what the body of a batch record holds. Integers
// are varints (zigzag where they have a sign), strings are length-prefixed.
// A key that equals the last one written in the same request is one byte.
// docs/journal-format.md gives it byte by byte.

// ErrMalformed: bytes that are no batch, or no snapshot. A record that holds
// them is void.
var ErrMalformed = errors.New("malformed")

// The shortest of each thing, in bytes.
const (
	minRequest = 2 // a kind and a revision
	minCompare = 5 // target, result, key, end, what to compare with
	minOp      = 4 // kind, flags, key, end
	minLease   = 3
	minWriter  = 3 + BatchWindow/64
)

// MaxBatchRequests bounds the requests of one batch.
const MaxBatchRequests = 1 << 16

// MaxBatchWeight bounds the weight of the requests of one batch together. It is
// what keeps a few bytes from standing for much memory: a batch that weighs more
// is malformed.
const MaxBatchWeight = 4 << 20

// What requests weigh beside their keys, range ends and values. A thing's weight
// is at least the length of its wire form, and about half the memory that it
// takes once it is decoded.
const (
	requestWeight = 64
	compareWeight = 40
	opWeight      = 96
)

// Weight is what the request adds to the weight of a batch. A key counts each
// time that it is named, also where the wire form has it once.
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

func (c *Compare) weight() int { return compareWeight + c.Range.weight() + len(c.Value) }

func (op *Op) weight() int { return opWeight + op.Range.weight() + len(op.Value) }

func (r KeyRange) weight() int { return len(r.Key) + len(r.End) }

// AppendRequests appends the wire form of requests to dst.
func AppendRequests(dst []byte, requests []*Request) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(requests)))
	for _, r := range requests {
		w := wireWriter{b: dst}
		w.request(r)
		dst = w.b
	}
	return dst
}

// ParseRequests decodes what AppendRequests wrote. What it returns shares no
// memory with b, and takes at most 3 times MaxBatchWeight, whatever b holds. The
// error wraps ErrMalformed.
func ParseRequests(b []byte) ([]Request, error) {
	r := wireReader{b: b, room: MaxBatchWeight}
	n := r.uvarint()
	if n > MaxBatchRequests || n > uint64(len(r.b)/minRequest) || !r.weigh(requestWeight*int(n)) {
		return nil, fmt.Errorf("batch of %d requests: %w", n, ErrMalformed)
	}
	requests := make([]Request, n)
	for i := range requests {
		r.lastKey = ""
		r.request(&requests[i])
		if r.failed {
			return nil, fmt.Errorf("request %d of %d: %w", i+1, n, ErrMalformed)
		}
	}
	if r.failed || len(r.b) != 0 {
		return nil, fmt.Errorf("batch of %d requests: %w", n, ErrMalformed)
	}
	return requests, nil
}

type wireWriter struct {
	b       []byte
	lastKey string
}

func (w *wireWriter) uvarint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *wireWriter) varint(n int64)   { w.b = binary.AppendVarint(w.b, n) }
func (w *wireWriter) byte(c byte)      { w.b = append(w.b, c) }
func (w *wireWriter) string(s string)  { w.uvarint(uint64(len(s))); w.b = append(w.b, s...) }
func (w *wireWriter) bytes(p []byte)   { w.uvarint(uint64(len(p))); w.b = append(w.b, p...) }

// key writes 0 for the key last written, otherwise its length + 1 and itself.
func (w *wireWriter) key(s string) {
	if s == w.lastKey && s != "" {
		w.byte(0)
		return
	}
	w.uvarint(uint64(len(s)) + 1)
	w.b = append(w.b, s...)
	w.lastKey = s
}

func (w *wireWriter) keyRange(r KeyRange) { w.key(r.Key); w.string(r.End) }

func (w *wireWriter) request(r *Request) {
	w.byte(byte(r.Kind))
	switch r.Kind {
	case Txn:
		w.uvarint(uint64(len(r.Compares)))
		for i := range r.Compares {
			w.compare(&r.Compares[i])
		}
		w.ops(r.Then)
		w.ops(r.Else)
	case Compact:
		w.varint(int64(r.Revision))
	default:
		w.varint(int64(r.Lease))
		w.varint(r.TTL)
		w.uvarint(uint64(r.Since))
	}
}

func (w *wireWriter) compare(c *Compare) {
	w.byte(byte(c.Target))
	w.byte(byte(c.Result))
	w.keyRange(c.Range)
	if c.Target == TargetValue {
		w.bytes(c.Value)
	} else {
		w.varint(c.Int)
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

func (w *wireWriter) ops(ops []Op) {
	w.uvarint(uint64(len(ops)))
	for i := range ops {
		op := &ops[i]
		o := &op.Read
		options := o.Revision|o.MinMod|o.MaxMod|o.MinCreate|o.MaxCreate != 0 || o.Limit != 0 || o.Order != 0 || o.Target != 0
		w.byte(byte(op.Kind))
		w.byte(bitIf(op.PrevKV, flagPrevKV) | bitIf(op.IgnoreValue, flagIgnoreValue) | bitIf(op.IgnoreLease, flagIgnoreLease) |
			bitIf(o.CountOnly, flagCountOnly) | bitIf(o.KeysOnly, flagKeysOnly) | bitIf(options, flagOptions))
		w.keyRange(op.Range)
		if op.Kind == OpPut {
			w.bytes(op.Value)
			w.varint(int64(op.Lease))
		}
		if options {
			for _, n := range [...]int64{int64(o.Revision), o.Limit, int64(o.MinMod), int64(o.MaxMod), int64(o.MinCreate), int64(o.MaxCreate)} {
				w.varint(n)
			}
			w.byte(byte(o.Order))
			w.byte(byte(o.Target))
		}
	}
}

// wireReader decodes; after a failure every read gives zeros.
type wireReader struct {
	b       []byte
	lastKey string
	room    int // for requests: what more of them may weigh
	failed  bool
}

// weigh takes n from the room there is; it fails if that is not enough.
func (r *wireReader) weigh(n int) bool {
	if n > r.room {
		r.fail()
		return false
	}
	r.room -= n
	return true
}

func (r *wireReader) fail() {
	r.failed = true
	r.b = nil
}

func (r *wireReader) uvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *wireReader) varint() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *wireReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// take returns the next n bytes, still part of the input.
func (r *wireReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *wireReader) string() string { return string(r.take(r.uvarint())) }

func (r *wireReader) bytes() []byte { return append([]byte(nil), r.take(r.uvarint())...) }

func (r *wireReader) key() string {
	n := r.uvarint()
	if n > 0 {
		r.lastKey = string(r.take(n - 1))
	}
	return r.lastKey
}

func (r *wireReader) keyRange() KeyRange {
	k := r.key()
	return KeyRange{Key: k, End: r.string()}
}

// count reads a length of things of at least size bytes each, at most of them.
func (r *wireReader) count(size, most int) int {
	n := r.uvarint()
	if n > uint64(min(len(r.b)/size, most)) {
		r.fail()
		return 0
	}
	return int(n)
}

// weighed reads a length of things of at least size bytes each, and weighs them
// before room is made for them.
func (r *wireReader) weighed(size, weight int) int {
	n := r.count(size, r.room/weight)
	if !r.weigh(n * weight) {
		return 0
	}
	return n
}

// enum reads a byte that must be within [lo, hi].
func (r *wireReader) enum(lo, hi byte) byte {
	c := r.byte()
	if c < lo || c > hi {
		r.fail()
	}
	return c
}

func (r *wireReader) request(q *Request) {
	q.Kind = RequestKind(r.enum(byte(Txn), byte(LeaseExpire)))
	switch q.Kind {
	case Txn:
		if n := r.weighed(minCompare, compareWeight); n > 0 {
			q.Compares = make([]Compare, n)
		}
		for i := range q.Compares {
			if r.compare(&q.Compares[i]); r.failed {
				return
			}
		}
		q.Then = r.ops()
		q.Else = r.ops()
	case Compact:
		q.Revision = Revision(r.varint())
	default:
		q.Lease = LeaseID(r.varint())
		q.TTL = r.varint()
		q.Since = journal.Slot(r.uvarint())
	}
}

func (r *wireReader) compare(c *Compare) {
	c.Target = CompareTarget(r.enum(0, byte(TargetLease)))
	c.Result = CompareResult(r.enum(0, byte(NotEqual)))
	c.Range = r.keyRange()
	if c.Target == TargetValue {
		c.Value = r.bytes()
	} else {
		c.Int = r.varint()
	}
	r.weigh(c.weight() - compareWeight)
}

func (r *wireReader) ops() []Op {
	n := r.weighed(minOp, opWeight)
	if n == 0 {
		return nil
	}
	ops := make([]Op, n)
	for i := range ops {
		r.op(&ops[i])
		if r.failed {
			return nil
		}
	}
	return ops
}

func (r *wireReader) op(op *Op) {
	op.Kind = OpKind(r.enum(byte(OpRange), byte(OpDelete)))
	f := r.enum(0, 2*flagOptions-1)
	op.PrevKV, op.IgnoreValue, op.IgnoreLease = f&flagPrevKV != 0, f&flagIgnoreValue != 0, f&flagIgnoreLease != 0
	op.Read.CountOnly, op.Read.KeysOnly = f&flagCountOnly != 0, f&flagKeysOnly != 0
	op.Range = r.keyRange()
	if op.Kind == OpPut {
		op.Value = r.bytes()
		op.Lease = LeaseID(r.varint())
	}
	if f&flagOptions != 0 {
		o := &op.Read
		o.Revision, o.Limit = Revision(r.varint()), r.varint()
		o.MinMod, o.MaxMod = Revision(r.varint()), Revision(r.varint())
		o.MinCreate, o.MaxCreate = Revision(r.varint()), Revision(r.varint())
		o.Order = SortOrder(r.enum(0, byte(Descend)))
		o.Target = SortTarget(r.enum(0, byte(SortByValue)))
	}
	r.weigh(op.weight() - opWeight)
}
