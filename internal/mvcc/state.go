package mvcc

import (
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/keys"
)

// State is the result of applying slots 1..n. Only one goroutine at a time may use it; View
// returns frozen copies for others.
type State struct {
	slot    journal.Slot // the last applied
	rev     Revision     // of the last change; 1 before the first
	keys    keys.Tree    // Invariant: the newest version of each key is of rev or below
	bytes   int64        // of the live keys and their values
	history history
	leases  leases
	writers writers
}

// New returns the state before slot 1, at revision 1.
func New() *State {
	return &State{
		rev:     1,
		keys:    keys.NewTree(),
		history: newHistory(),
		leases:  leases{},
		writers: writers{},
	}
}

// View returns a frozen copy of the state, in O(1).
func (s *State) View() *View {
	h := &s.history
	return &View{slot: s.slot, rev: s.rev, compact: h.compacted, root: s.keys.Freeze(), log: h.log[:len(h.log):len(h.log)], pruned: h.pruned}
}

// Slot returns the last slot applied.
func (s *State) Slot() journal.Slot { return s.slot }

// Revision returns the revision of the last change.
func (s *State) Revision() Revision { return s.rev }

// Skip applies slot, which must be the next one, with a record that changes nothing: a control
// record, or a void record.
func (s *State) Skip(slot journal.Slot) {
	if slot != s.slot+1 {
		panic("mvcc: slots must be applied in order, without gaps")
	}
	s.slot = slot
	s.writers.forget(slot)
}

// Apply applies slot, which must be the next one, with its batch. It returns one result for
// each request, in order; nil if the batch changes nothing because it was applied before, is
// too old, or has no number. If answers is not set, operations that only read are left out,
// and results may lack Ops; the state is the same.
func (s *State) Apply(slot journal.Slot, b *Batch, answers bool) []Result {
	s.Skip(slot)
	if !s.writers.admit(slot, b) {
		return nil
	}
	results := make([]Result, len(b.Requests))
	var room []OpResult // for all results, in one piece
	if answers {
		n := 0
		for i := range b.Requests {
			n += max(len(b.Requests[i].Then), len(b.Requests[i].Else))
		}
		room = make([]OpResult, n)
	}
	for i := range b.Requests {
		r, res := &b.Requests[i], &results[i]
		if answers {
			n := max(len(r.Then), len(r.Else))
			res.Ops, room = room[:0:n], room[n:]
		}
		s.apply(r, res, answers)
		res.Revision = s.rev
	}
	return results
}

// apply carries out one request.
func (s *State) apply(r *Request, res *Result, answers bool) {
	switch r.Kind {
	case Txn:
		s.applyTxn(r, res, answers)
	case Compact:
		res.Err = s.history.compact(r.Revision, s.rev)
	case LeaseGrant:
		res.Err = s.leases.grant(r.Lease, r.TTL, s.slot)
	case LeaseRevoke:
		res.Err = s.revoke(r.Lease)
	case LeaseRenew:
		res.TTL, res.Err = s.leases.renew(r.Lease, s.slot)
	case LeaseExpire:
		if l := s.leases[r.Lease]; l != nil && l.since == r.Since {
			res.Err = s.revoke(r.Lease)
		}
	}
}

// applyTxn runs one transaction: the branch is chosen, checked as a whole,
// and only then are its operations carried out, all at one new revision.
func (s *State) applyTxn(r *Request, res *Result, answers bool) {
	ops := r.Then
	res.Succeeded = holds(s.keys.Root(), r.Compares)
	if !res.Succeeded {
		ops = r.Else
	}
	if res.Err = s.check(ops); res.Err != nil {
		return
	}
	next, first := s.rev+1, len(s.history.log)
	for i := range ops {
		if out := s.carryOut(&ops[i], next, answers); answers {
			res.Ops = append(res.Ops, out)
		}
	}
	s.finish(next, first)
}

// carryOut does one operation at revision next. The operation must have passed check.
func (s *State) carryOut(op *Op, next Revision, answers bool) (out OpResult) {
	out.Kind = op.Kind
	switch op.Kind {
	case OpRange:
		if answers {
			out.Read = s.read(op)
		}
	case OpPut:
		prev := s.put(op, next)
		if op.PrevKV && prev.Live() {
			out.Prev = []*KV{prev}
		}
	case OpDelete:
		gone := s.delete(op.Range, next)
		out.Deleted = int64(len(gone))
		if op.PrevKV {
			out.Prev = gone
		}
	}
	return out
}

// finish closes the revision next if anything was logged from index first on.
func (s *State) finish(next Revision, first int) {
	if s.history.end(first) {
		s.rev = next
	}
}

// check says why ops cannot be carried out. It changes nothing.
func (s *State) check(ops []Op) error {
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case OpRange:
			if err := checkRevision(op.Read.Revision, s.rev, s.history.compacted); err != nil {
				return err
			}
		case OpPut:
			if op.Lease != 0 && s.leases[op.Lease] == nil {
				return ErrLeaseNotFound
			}
			if (op.IgnoreValue || op.IgnoreLease) && !s.keys.Root().Get(op.Range.Key).Live() {
				return ErrKeyNotFound
			}
		case OpDelete: // may find nothing
		}
	}
	if len(ops) > 1 && changesTwice(ops) {
		return ErrDuplicateKey
	}
	return nil
}

// changesTwice says whether one key is put twice, or put and deleted, by ops
// (etcd: checkIntervals). Two deletes may overlap.
func changesTwice(ops []Op) bool {
	puts := make([]string, 0, len(ops))
	for i := range ops {
		if ops[i].Kind == OpPut {
			puts = append(puts, ops[i].Range.Key)
		}
	}
	slices.Sort(puts)
	for i := 1; i < len(puts); i++ {
		if puts[i] == puts[i-1] {
			return true
		}
	}
	for i := range ops {
		if ops[i].Kind == OpDelete {
			j, _ := slices.BinarySearch(puts, ops[i].Range.Key)
			if j < len(puts) && ops[i].Range.Contains(puts[j]) {
				return true
			}
		}
	}
	return false
}

// read answers a range operation inside a transaction. Without a revision it sees the writes
// of earlier operations; with the state's revision it does not.
func (s *State) read(op *Op) ReadResult {
	if op.Read.Revision <= 0 {
		return readNewest(s.keys.Root(), op.Range, &op.Read)
	}
	return readAt(s.keys.Root(), op.Range, &op.Read)
}

// put makes a new version of a key at rev, and returns the version before it.
func (s *State) put(op *Op, rev Revision) (prev *KV) {
	kv := &KV{Key: op.Range.Key, Value: op.Value, Create: rev, Mod: rev, Version: 1, Lease: op.Lease}
	prev = s.keys.Put(kv)
	if prev != nil {
		kv.Key = prev.Key // one string a key, not one a version
		kv.Link(prev)
	}
	if prev.Live() {
		kv.Create, kv.Version = prev.Create, prev.Version+1
		if op.IgnoreValue {
			kv.Value = prev.Value
		}
		if op.IgnoreLease {
			kv.Lease = prev.Lease
		}
	}
	s.record(kv, prev)
	return prev
}

// delete puts a tombstone on each live key of r at rev, and returns the deleted versions.
func (s *State) delete(r KeyRange, rev Revision) []*KV {
	var gone []*KV
	if r.Single() {
		if kv := s.keys.Root().Get(r.Key); kv.Live() {
			gone = []*KV{kv}
		}
	} else {
		s.keys.Root().Ascend(r, func(kv *KV) bool {
			if kv.Live() {
				gone = append(gone, kv)
			}
			return true
		})
	}
	for _, prev := range gone {
		s.bury(prev, rev)
	}
	return gone
}

// bury puts a tombstone on prev.
func (s *State) bury(prev *KV, rev Revision) {
	kv := &KV{Key: prev.Key, Mod: rev}
	kv.Link(prev)
	s.keys.Put(kv)
	s.record(kv, prev)
}

// Bytes returns the length of all live keys and values together.
func (s *State) Bytes() int64 { return s.bytes }

// sizeOf returns what a version adds to State.Bytes while it is the newest.
func sizeOf(kv *KV) int64 {
	if !kv.Live() {
		return 0
	}
	return int64(len(kv.Key) + len(kv.Value))
}

// record logs a change, counts it, and moves its key from one lease to the other.
func (s *State) record(kv, prev *KV) {
	s.history.add(kv, prev)
	s.bytes += sizeOf(kv) - sizeOf(prev)
	s.leases.move(kv, prev)
}

// revoke deletes a lease and every key on it, at one revision.
func (s *State) revoke(id LeaseID) error {
	keys, err := s.leases.drop(id)
	if err != nil {
		return err
	}
	next, first := s.rev+1, len(s.history.log)
	for _, k := range keys {
		s.bury(s.keys.Root().Get(k), next)
	}
	s.finish(next, first)
	return nil
}

// Prune frees versions that compaction made unreachable. It handles up to limit changes, and
// returns whether there are more. It changes nothing that can be read at or above the
// compacted revision. Do not call it while the parts of a Frozen are being made: see
// Frozen.Parts.
func (s *State) Prune(limit int) (more bool) {
	for _, c := range s.history.next(limit) {
		s.prune(c.KV)
	}
	return s.history.due()
}

// prune cuts off the history before a version below the compacted revision, because a read at
// or above that revision finds this version or a newer one. If the version is a tombstone and
// the newest, its key is removed; an older tombstone is cut off together with the version
// after it.
func (s *State) prune(kv *KV) {
	kv.Link(nil)
	if !kv.Live() && s.keys.Root().Get(kv.Key) == kv {
		s.keys.Remove(kv.Key)
	}
}

// ChangesSince returns every change above rev that is still held, ordered by revision, then
// key. The slice is valid only until the next Apply or Prune.
func (s *State) ChangesSince(rev Revision) []Change {
	return s.history.above(rev)
}

// Lease returns a lease: its granted time to live, in seconds, the slot in which it was
// granted or last renewed, and its keys, sorted.
func (s *State) Lease(id LeaseID) (ttl int64, since journal.Slot, keys []string, ok bool) {
	l := s.leases[id]
	if l == nil {
		return 0, 0, nil, false
	}
	return l.ttl, l.since, sortedKeys(l.keys), true
}

// Leases calls yield for every lease, in no order.
func (s *State) Leases(yield func(id LeaseID, ttl int64, since journal.Slot)) {
	for id, l := range s.leases {
		yield(id, l.ttl, l.since)
	}
}
