package mvcc

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// State is what applying slots 1..n gives. It has one user at a time; View
// hands out frozen copies for everybody else.
type State struct {
	slot    journal.Slot
	rev     Revision
	compact Revision
	keys    tree
	log     []Change
	leases  map[LeaseID]*lease
	writers map[WriterID]*writer

	bytes   int64         // of the live keys and their values
	toPrune []Change      // of the log below pruned: what Prune has left to look at
	pruned  *atomic.Int64 // see View
}

type lease struct {
	ttl   int64        // seconds, 1 to MaxLeaseTTL
	since journal.Slot // of its grant or last renewal: what tells two leases of one ID apart
	keys  map[string]struct{}
}

// writer remembers which of a writer's last batches were applied.
type writer struct {
	last journal.Slot             // its newest batch's slot
	max  BatchNumber              // its highest batch
	seen [BatchWindow / 64]uint64 // bit n%BatchWindow: batch n, for n in (max-BatchWindow, max]
}

// BatchWindow is how many of a writer's last batches are told apart. A batch
// that is older by number than that is void: a writer must have fewer in flight.
const BatchWindow = 256

// A writer is forgotten when nothing came of it for writerSpan slots; looked
// at every writerSweep slots. A late copy of a batch can only land in an empty
// slot at the tail, so a writer silent for that long has none in flight.
const (
	writerSpan  = 1 << 16
	writerSweep = 1 << 12
	// maxWriters is how many are known at once at most: one a slot since the
	// last that was forgotten.
	maxWriters = writerSpan + writerSweep + 1
)

// New returns the state before slot 1, at revision 1.
func New() *State {
	return &State{
		rev:     1,
		keys:    newTree(),
		leases:  map[LeaseID]*lease{},
		writers: map[WriterID]*writer{},
		pruned:  new(atomic.Int64),
	}
}

// View freezes the state as it stands, in O(1).
func (s *State) View() *View {
	return &View{slot: s.slot, rev: s.rev, compact: s.compact, root: s.keys.freeze(), log: s.log[:len(s.log):len(s.log)], pruned: s.pruned}
}

// Slot is the last slot applied.
func (s *State) Slot() journal.Slot { return s.slot }

// Revision is the revision of the last change.
func (s *State) Revision() Revision { return s.rev }

// Skip takes in slot, the next one, with a record that changes nothing: a
// control record, or a void one.
func (s *State) Skip(slot journal.Slot) {
	if slot != s.slot+1 {
		panic("mvcc: slots must be applied in order, without gaps")
	}
	s.slot = slot
	if slot%writerSweep == 0 {
		s.forgetWriters()
	}
}

// Apply takes in slot, the next one, with its batch. It returns one result a
// request, in order, or nil if the batch changes nothing: seen before, too old, or without a number.
// With answers false what is only read is not, and results may lack Ops: the
// state comes out the same.
func (s *State) Apply(slot journal.Slot, b *Batch, answers bool) []Result {
	s.Skip(slot)
	if !s.admit(slot, b) {
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

// admit notes the batch as seen, and says whether it is new.
func (s *State) admit(slot journal.Slot, b *Batch) bool {
	w := s.writers[b.Writer]
	if w == nil {
		w = &writer{}
		s.writers[b.Writer] = w
	}
	w.last = slot
	if b.Number == 0 || b.Number+BatchWindow <= w.max {
		return false
	}
	if b.Number > w.max {
		if b.Number-w.max >= BatchWindow {
			clear(w.seen[:])
		} else {
			for n := w.max + 1; n < b.Number; n++ {
				w.mark(n, false)
			}
		}
		w.max = b.Number
		w.mark(b.Number, true)
		return true
	}
	if w.seen[b.Number%BatchWindow/64]&(1<<(b.Number%64)) != 0 {
		return false
	}
	w.mark(b.Number, true)
	return true
}

func (w *writer) mark(n BatchNumber, seen bool) {
	word, bit := &w.seen[n%BatchWindow/64], uint64(1)<<(n%64)
	*word &^= bit
	if seen {
		*word |= bit
	}
}

func (s *State) forgetWriters() {
	for id, w := range s.writers {
		if w.last+writerSpan < s.slot {
			delete(s.writers, id)
		}
	}
}

func (s *State) apply(r *Request, res *Result, answers bool) {
	switch r.Kind {
	case Txn:
		s.applyTxn(r, res, answers)
	case Compact:
		res.Err = s.applyCompact(r.Revision)
	case LeaseGrant:
		res.Err = s.grant(r.Lease, r.TTL)
	case LeaseRevoke:
		res.Err = s.revoke(r.Lease)
	case LeaseRenew:
		l := s.leases[r.Lease]
		if l == nil {
			res.Err = ErrLeaseNotFound
			return
		}
		l.since, res.TTL = s.slot, l.ttl
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
	res.Succeeded = holds(s.keys.root, r.Compares)
	if !res.Succeeded {
		ops = r.Else
	}
	if res.Err = s.check(ops); res.Err != nil {
		return
	}
	next, first := s.rev+1, len(s.log)
	for i := range ops {
		if out := s.carryOut(&ops[i], next, answers); answers {
			res.Ops = append(res.Ops, out)
		}
	}
	s.finish(next, first)
}

// carryOut does one operation, which must have been checked, at revision next.
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
	if len(s.log) == first {
		return
	}
	s.rev = next
	if changes := s.log[first:]; len(changes) > 1 {
		sortChanges(changes)
	}
}

// check says why ops cannot be carried out, before any of them is.
func (s *State) check(ops []Op) error {
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case OpRange:
			if err := checkRevision(op.Read.Revision, s.rev, s.compact); err != nil {
				return err
			}
		case OpPut:
			if op.Lease != 0 && s.leases[op.Lease] == nil {
				return ErrLeaseNotFound
			}
			if (op.IgnoreValue || op.IgnoreLease) && !s.keys.root.get(op.Range.Key).Live() {
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

// read answers a range operation inside a transaction. Without a revision it
// sees what the operations before it wrote; with that of the state it does not.
func (s *State) read(op *Op) ReadResult {
	if op.Read.Revision <= 0 {
		return readNewest(s.keys.root, op.Range, &op.Read)
	}
	return readAt(s.keys.root, op.Range, &op.Read)
}

func (s *State) put(op *Op, rev Revision) (prev *KV) {
	kv := &KV{Key: op.Range.Key, Value: op.Value, Create: rev, Mod: rev, Version: 1, Lease: op.Lease}
	prev = s.keys.put(kv)
	if prev != nil {
		kv.Key = prev.Key // one string a key, not one a version
		kv.prev.Store(prev)
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

func (s *State) delete(r KeyRange, rev Revision) []*KV {
	var gone []*KV
	if r.Single() {
		if kv := s.keys.root.get(r.Key); kv.Live() {
			gone = []*KV{kv}
		}
	} else {
		s.keys.root.ascend(r, func(kv *KV) bool {
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
	kv.prev.Store(prev)
	s.keys.put(kv)
	s.record(kv, prev)
}

// Bytes is the length of all live keys and values together.
func (s *State) Bytes() int64 { return s.bytes }

func (kv *KV) size() int64 {
	if !kv.Live() {
		return 0
	}
	return int64(len(kv.Key) + len(kv.Value))
}

// record logs a change and moves its key from one lease to the other.
func (s *State) record(kv, prev *KV) {
	if !prev.Live() {
		prev = nil
	}
	s.log = append(s.log, Change{KV: kv, Prev: prev})
	s.bytes += kv.size() - prev.size()
	if prev != nil && prev.Lease != 0 && prev.Lease != kv.Lease {
		if l := s.leases[prev.Lease]; l != nil {
			delete(l.keys, kv.Key)
		}
	}
	if kv.Lease != 0 {
		s.leases[kv.Lease].attach(kv.Key)
	}
}

// grant makes a lease. 0 is what keys without a lease hold, so it cannot be one.
func (s *State) grant(id LeaseID, ttl int64) error {
	switch {
	case id == 0:
		return ErrLeaseNotFound // as in etcd
	case ttl > MaxLeaseTTL:
		return ErrLeaseTTLTooLarge
	case s.leases[id] != nil:
		return ErrLeaseExists
	case len(s.leases) >= MaxLeases:
		return ErrTooManyLeases
	}
	s.leases[id] = &lease{ttl: max(ttl, 1), since: s.slot}
	return nil
}

func (l *lease) attach(key string) {
	if l.keys == nil {
		l.keys = map[string]struct{}{}
	}
	l.keys[key] = struct{}{}
}

// revoke deletes a lease and every key on it, at one revision.
func (s *State) revoke(id LeaseID) error {
	l := s.leases[id]
	if l == nil {
		return ErrLeaseNotFound
	}
	delete(s.leases, id)
	keys := sortedKeys(l.keys)
	next, first := s.rev+1, len(s.log)
	for _, k := range keys {
		s.bury(s.keys.root.get(k), next)
	}
	s.finish(next, first)
	return nil
}

func sortedKeys(m map[string]struct{}) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (s *State) applyCompact(rev Revision) error {
	switch {
	case rev <= s.compact:
		return ErrCompacted
	case rev > s.rev:
		return ErrFutureRevision
	}
	s.compact = rev
	return nil
}

// Prune gives back the memory of what compaction made unreachable, looking at
// up to limit changes, and says whether there is more to do. It changes
// nothing that can be read at or above the compacted revision. It should not
// be called while the parts of a Frozen are being made: see there.
func (s *State) Prune(limit int) (more bool) {
	if len(s.toPrune) == 0 && s.pruned.Load() < int64(s.compact) {
		s.pruned.Store(int64(s.compact))
		s.cutLog()
	}
	n := min(limit, len(s.toPrune))
	for _, c := range s.toPrune[:n] {
		s.prune(c.KV)
	}
	if s.toPrune = s.toPrune[n:]; len(s.toPrune) == 0 {
		s.toPrune = nil
	}
	return s.toPrune != nil || s.pruned.Load() < int64(s.compact)
}

// cutLog takes what is below the compacted revision out of the log, and sets
// it aside to be pruned.
func (s *State) cutLog() {
	n := sort.Search(len(s.log), func(i int) bool { return s.log[i].KV.Mod >= s.compact })
	s.toPrune = s.log[:n:n]
	s.log = slices.Clone(s.log[n:])
}

// prune cuts off what came before a version below the compacted revision: who
// reads there or above finds that version, or a newer one. A tombstone that is
// still the newest goes altogether; one that is not, with the version after it.
func (s *State) prune(kv *KV) {
	kv.prev.Store(nil)
	if !kv.Live() && s.keys.root.get(kv.Key) == kv {
		s.keys.remove(kv.Key)
	}
}

// ChangesSince returns every change above rev that is still held, ordered by
// revision, then key. The slice is only good until the next Apply or Prune.
func (s *State) ChangesSince(rev Revision) []Change {
	return s.log[sort.Search(len(s.log), func(i int) bool { return s.log[i].KV.Mod > rev }):]
}

// Lease tells of a lease: the time to live it was granted with, in seconds, the
// slot in which it was granted or last renewed, and its keys, sorted.
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
