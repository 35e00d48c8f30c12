package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// fields walks the fields of one message.
type fields struct {
	b   []byte // what is left of the message
	num protowire.Number
	typ protowire.Type
	n   uint64 // the field's value, if it is a varint
	sub []byte // the field's bytes, if it has a length; part of the message, not a copy
	err error  // why the walk ended early
}

// next moves to the next field that is a varint or has a length; these messages
// have no others. Fields of other types are unknown, and skipped.
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

// integer says whether the field has the number num and is a varint.
func (f *fields) integer(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.VarintType
}

// length says whether the field has the number num and has a length.
func (f *fields) length(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

// Fields whose value is zero are not written, as usual in proto3.

func appendInt(b []byte, num protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(n))
}

func appendBool(b []byte, num protowire.Number, on bool) []byte {
	if !on {
		return b
	}
	return append(protowire.AppendTag(b, num, protowire.VarintType), 1)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytes(b []byte, num protowire.Number, p []byte) []byte {
	if len(p) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), p)
}

// begin starts a message inside another, and end closes it. begin keeps one byte
// for the length; if the length takes more, end moves the message up.
func begin(b []byte, num protowire.Number) (_ []byte, start int) {
	b = append(protowire.AppendTag(b, num, protowire.BytesType), 0)
	return b, len(b)
}

func end(b []byte, start int) []byte {
	n := len(b) - start
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		var room [binary.MaxVarintLen64]byte
		b = append(b, room[:more]...)
		copy(b[start+more:], b[start:start+n])
	}
	binary.PutUvarint(b[start-1:], uint64(n))
	return b
}

// AppendKeyValue appends kv to b as etcd's KeyValue, in field 1 of a message.
func AppendKeyValue(b []byte, kv *mvcc.KV) []byte {
	return appendKV(b, 1, kv, kv.Value, kv.Lease)
}

func appendKV(b []byte, num protowire.Number, kv *mvcc.KV, value []byte, lease mvcc.LeaseID) []byte {
	b, start := begin(b, num)
	b = appendString(b, 1, kv.Key)
	b = appendInt(b, 2, int64(kv.Create))
	b = appendInt(b, 3, int64(kv.Mod))
	b = appendInt(b, 4, kv.Version)
	b = appendBytes(b, 5, value)
	b = appendInt(b, 6, int64(lease))
	return end(b, start)
}

func appendKVs(b []byte, num protowire.Number, kvs []*mvcc.KV) []byte {
	for _, kv := range kvs {
		b = appendKV(b, num, kv, kv.Value, kv.Lease)
	}
	return b
}

// The sizes are estimates from above, so that a buffer of that size is enough.
const (
	headSize = 96 // bytes that a header and the small fields of a response take at most
	bareSize = 64 // bytes that a KeyValue takes at most, beside its key and value
)

func kvSize(kv *mvcc.KV) int { return bareSize + len(kv.Key) + len(kv.Value) }

func kvsSize(kvs []*mvcc.KV) int {
	n := 0
	for _, kv := range kvs {
		n += kvSize(kv)
	}
	return n
}
