package etcdapi

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// The hot responses, written from the state machine's terms. Field numbers are
// those of etcd's rpc.proto and kv.proto; what is zero is left out, as usual.

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

// begin starts a message inside another; end closes it. One byte is kept for
// its length; should it need more, what was written moves up.
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

// kvSize is no less than a KeyValue takes with its tag and length, in bytes.
func kvSize(kv *mvcc.KV) int { return 64 + len(kv.Key) + len(kv.Value) }

func kvsSize(kvs []*mvcc.KV) int {
	n := 0
	for _, kv := range kvs {
		n += kvSize(kv)
	}
	return n
}

// headSize is no less than a header and the small fields of a response take.
const headSize = 96

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

// head is the header of a response. There is no Raft underneath: the term is
// always 1. Inside a transaction a header has its revision only; then, and
// where there is none, server is nil.
type head struct {
	server   *Server
	revision mvcc.Revision
}

func (h head) append(b []byte) []byte {
	if h == (head{}) {
		return b
	}
	b, start := begin(b, 1)
	if h.server != nil {
		b = appendInt(b, 1, int64(h.server.clusterID))
		b = appendInt(b, 2, int64(h.server.memberID))
	}
	b = appendInt(b, 3, int64(h.revision))
	if h.server != nil {
		b = appendInt(b, 4, 1)
	}
	return end(b, start)
}

func (s *Server) head(rev mvcc.Revision) head { return head{server: s, revision: rev} }

// rangeAnswer is a RangeResponse.
type rangeAnswer struct {
	head
	mvcc.ReadResult
	target mvcc.SortTarget
}

func (a *rangeAnswer) size() int {
	if !a.KeysOnly {
		return headSize + kvsSize(a.KVs)
	}
	n := headSize
	for _, kv := range a.KVs {
		n += 64 + len(kv.Key)
	}
	return n
}

func (a *rangeAnswer) append(b []byte) []byte {
	b = a.head.append(b)
	if a.KeysOnly {
		for _, kv := range a.KVs {
			// etcd leaves out the lease too, unless it had to read the values
			// to sort by them.
			lease := kv.Lease
			if a.target != mvcc.SortByValue {
				lease = 0
			}
			b = appendKV(b, 2, kv, nil, lease)
		}
	} else {
		b = appendKVs(b, 2, a.KVs)
	}
	b = appendBool(b, 3, a.More)
	return appendInt(b, 4, a.Count)
}

// rangeChunk is a RangeStreamResponse.
type rangeChunk struct{ rangeAnswer }

func (a *rangeChunk) append(b []byte) []byte {
	b, start := begin(b, 1)
	return end(a.rangeAnswer.append(b), start)
}

// putAnswer is a PutResponse.
type putAnswer struct {
	head
	prev []*mvcc.KV // at most one
}

func (a *putAnswer) size() int { return headSize + kvsSize(a.prev) }

func (a *putAnswer) append(b []byte) []byte { return appendKVs(a.head.append(b), 2, a.prev) }

// deleteAnswer is a DeleteRangeResponse.
type deleteAnswer struct {
	head
	deleted int64
	prev    []*mvcc.KV
}

func (a *deleteAnswer) size() int { return headSize + kvsSize(a.prev) }

func (a *deleteAnswer) append(b []byte) []byte {
	b = appendInt(a.head.append(b), 2, a.deleted)
	return appendKVs(b, 3, a.prev)
}

// txnAnswer is a TxnResponse.
type txnAnswer struct {
	head
	ops []mvcc.Op // of the branch that was taken
	res mvcc.Result
}

func (a *txnAnswer) size() int {
	n := headSize
	for i := range a.res.Ops {
		op := &a.res.Ops[i]
		n += headSize + kvsSize(op.Read.KVs) + kvsSize(op.Prev)
	}
	return n
}

// The head of each operation says which revision it saw or made: the
// transaction's own from its first change on, the one before up to there.
func (a *txnAnswer) append(b []byte) []byte {
	b = a.head.append(b)
	b = appendBool(b, 2, a.res.Succeeded)
	rev := a.res.Revision
	if changed(a.res.Ops) {
		rev--
	}
	for i := range a.res.Ops {
		op := &a.res.Ops[i]
		if op.Kind == mvcc.OpPut || op.Deleted > 0 {
			rev = a.res.Revision
		}
		var whole, part int
		b, whole = begin(b, 3)
		switch h := (head{revision: rev}); op.Kind {
		case mvcc.OpRange:
			b, part = begin(b, 1)
			b = (&rangeAnswer{h, op.Read, a.ops[i].Read.Target}).append(b)
		case mvcc.OpPut:
			b, part = begin(b, 2)
			b = (&putAnswer{h, op.Prev}).append(b)
		case mvcc.OpDelete:
			b, part = begin(b, 3)
			b = (&deleteAnswer{h, op.Deleted, op.Prev}).append(b)
		}
		b = end(end(b, part), whole)
	}
	return b
}

func changed(ops []mvcc.OpResult) bool {
	for i := range ops {
		if ops[i].Kind == mvcc.OpPut || ops[i].Deleted > 0 {
			return true
		}
	}
	return false
}

// watchAnswer is a WatchResponse that holds events.
type watchAnswer struct {
	head
	id       int64
	fragment bool // more of the same revision follows
	changes  []mvcc.Change
	prevKV   bool
}

// eventSize is no less than an Event takes with its tag and length, in bytes.
func eventSize(c *mvcc.Change, prevKV bool) int {
	n := 16 + kvSize(c.KV)
	if prevKV && c.Prev != nil {
		n += kvSize(c.Prev)
	}
	return n
}

func (a *watchAnswer) size() int {
	n := headSize
	for i := range a.changes {
		n += eventSize(&a.changes[i], a.prevKV)
	}
	return n
}

func (a *watchAnswer) append(b []byte) []byte {
	b = a.head.append(b)
	b = appendInt(b, 2, a.id)
	b = appendBool(b, 7, a.fragment)
	for i := range a.changes {
		c := &a.changes[i]
		var start int
		b, start = begin(b, 11)
		b = appendBool(b, 1, !c.KV.Live()) // PUT is 0, DELETE is 1
		b = appendKV(b, 2, c.KV, c.KV.Value, c.KV.Lease)
		if a.prevKV && c.Prev != nil {
			b = appendKV(b, 3, c.Prev, c.Prev.Value, c.Prev.Lease)
		}
		b = end(b, start)
	}
	return b
}
