package wire

import "github.com/xbernetes/xbernetes/internal/mvcc"

// Header is the header of a response; the zero Header is left out. Headers of the
// operations inside a transaction have a revision only. Any other has a Cluster,
// which is not 0.
type Header struct {
	Cluster, Member uint64
	Revision        mvcc.Revision
}

// raftTerm is what every header says: there is no Raft underneath.
const raftTerm = 1

func (h Header) append(b []byte) []byte {
	if h == (Header{}) {
		return b
	}
	b, start := begin(b, 1)
	b = appendInt(b, 1, int64(h.Cluster))
	b = appendInt(b, 2, int64(h.Member))
	b = appendInt(b, 3, int64(h.Revision))
	if h.Cluster != 0 {
		b = appendInt(b, 4, raftTerm)
	}
	return end(b, start)
}

// RangeResponse is etcd's response of that name.
type RangeResponse struct {
	Header Header
	mvcc.ReadResult
	Target mvcc.SortTarget // of the request
}

func (a *RangeResponse) size() int {
	if !a.KeysOnly {
		return headSize + kvsSize(a.KVs)
	}
	n := headSize
	for _, kv := range a.KVs {
		n += bareSize + len(kv.Key)
	}
	return n
}

func (a *RangeResponse) append(b []byte) []byte {
	b = a.Header.append(b)
	if a.KeysOnly {
		for _, kv := range a.KVs {
			// With keys only, etcd leaves out the lease too, unless it had to
			// read the values to sort by them.
			lease := kv.Lease
			if a.Target != mvcc.SortByValue {
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

// RangeStreamResponse is etcd's response of that name: a part of a RangeResponse.
type RangeStreamResponse struct{ RangeResponse }

func (a *RangeStreamResponse) append(b []byte) []byte {
	b, start := begin(b, 1)
	return end(a.RangeResponse.append(b), start)
}

// PutResponse is etcd's response of that name.
type PutResponse struct {
	Header Header
	Prev   []*mvcc.KV // what the key had before, if it was asked for; at most one
}

func (a *PutResponse) size() int { return headSize + kvsSize(a.Prev) }

func (a *PutResponse) append(b []byte) []byte { return appendKVs(a.Header.append(b), 2, a.Prev) }

// DeleteResponse is etcd's DeleteRangeResponse.
type DeleteResponse struct {
	Header  Header
	Deleted int64      // how many keys were deleted
	Prev    []*mvcc.KV // what they had before, if it was asked for
}

func (a *DeleteResponse) size() int { return headSize + kvsSize(a.Prev) }

func (a *DeleteResponse) append(b []byte) []byte {
	b = appendInt(a.Header.append(b), 2, a.Deleted)
	return appendKVs(b, 3, a.Prev)
}

// TxnResponse is etcd's response of that name.
type TxnResponse struct {
	Header Header
	Ops    []mvcc.Op // of the branch that was taken. Invariant: as many as Result.Ops
	Result mvcc.Result
}

func (a *TxnResponse) size() int {
	n := headSize
	for i := range a.Result.Ops {
		op := &a.Result.Ops[i]
		n += headSize + kvsSize(op.Read.KVs) + kvsSize(op.Prev)
	}
	return n
}

// The header of each operation has the revision that the operation saw or made:
// from the transaction's first change on its own revision, and before that the
// revision before.
func (a *TxnResponse) append(b []byte) []byte {
	b = a.Header.append(b)
	b = appendBool(b, 2, a.Result.Succeeded)
	rev := a.Result.Revision
	if changed(a.Result.Ops) {
		rev--
	}
	for i := range a.Result.Ops {
		op := &a.Result.Ops[i]
		if op.Kind == mvcc.OpPut || op.Deleted > 0 {
			rev = a.Result.Revision
		}
		var whole, part int
		b, whole = begin(b, 3)
		switch h := (Header{Revision: rev}); op.Kind {
		case mvcc.OpRange:
			b, part = begin(b, 1)
			b = (&RangeResponse{h, op.Read, a.Ops[i].Read.Target}).append(b)
		case mvcc.OpPut:
			b, part = begin(b, 2)
			b = (&PutResponse{h, op.Prev}).append(b)
		case mvcc.OpDelete:
			b, part = begin(b, 3)
			b = (&DeleteResponse{h, op.Deleted, op.Prev}).append(b)
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

// WatchResponse is etcd's response of that name, where it holds events.
type WatchResponse struct {
	Header   Header
	WatchID  int64
	Fragment bool          // more of the same revision follows
	Changes  []mvcc.Change // an event each
	PrevKV   bool          // events also say what was there before
}

// EventSize returns how many bytes a change takes as an event, or somewhat more.
func EventSize(c *mvcc.Change, prevKV bool) int {
	n := 16 + kvSize(c.KV)
	if prevKV && c.Prev != nil {
		n += kvSize(c.Prev)
	}
	return n
}

func (a *WatchResponse) size() int {
	n := headSize
	for i := range a.Changes {
		n += EventSize(&a.Changes[i], a.PrevKV)
	}
	return n
}

func (a *WatchResponse) append(b []byte) []byte {
	b = a.Header.append(b)
	b = appendInt(b, 2, a.WatchID)
	b = appendBool(b, 7, a.Fragment)
	for i := range a.Changes {
		c := &a.Changes[i]
		var start int
		b, start = begin(b, 11)
		b = appendBool(b, 1, !c.KV.Live()) // PUT is 0, DELETE is 1
		b = appendKV(b, 2, c.KV, c.KV.Value, c.KV.Lease)
		if a.PrevKV && c.Prev != nil {
			b = appendKV(b, 3, c.Prev, c.Prev.Value, c.Prev.Lease)
		}
		b = end(b, start)
	}
	return b
}
