package mvcc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Frozen is a state at one slot, with all that a snapshot holds. It is
// immutable, but for history that Prune takes from under it: see Parts.
type Frozen struct {
	View    *View
	leases  []leaseRow
	writers []writerRow
}

type leaseRow struct {
	id    LeaseID
	ttl   int64
	since journal.Slot
}

type writerRow struct {
	id WriterID
	writer
}

// Freeze takes the state as it stands, in time that grows with the leases and
// writers but not with the keys.
func (s *State) Freeze() *Frozen {
	f := &Frozen{View: s.View()}
	for id, l := range s.leases {
		f.leases = append(f.leases, leaseRow{id, l.ttl, l.since})
	}
	for id, w := range s.writers {
		f.writers = append(f.writers, writerRow{id, *w})
	}
	slices.SortFunc(f.leases, func(a, b leaseRow) int { return cmp.Compare(a.id, b.id) })
	slices.SortFunc(f.writers, func(a, b writerRow) int { return cmp.Compare(a.id, b.id) })
	return f
}

// PartSize is the length, in bytes, at which a part of a snapshot is closed.
// It is part of the canonical encoding.
const PartSize = 4 << 20

// The limits of a snapshot: no state makes more. Who reads one that claims more
// need not make room for it.
const (
	// MaxFirstPart is the length of the first part, in bytes: that of MaxLeases
	// and maxWriters, none of which is longer than its row.
	MaxFirstPart = 32 << 20
	// MaxPart is the length of any other part, in bytes: one that is about to be
	// closed, and one version more, which a batch had room for.
	MaxPart = PartSize + MaxBatchWeight + 1<<10
)

// MaxParts is how many parts the state at a slot has at most: what is put into
// it came in batches.
func MaxParts(slot journal.Slot) uint64 { return uint64(min(slot, 1<<60)) + 2 }

// Parts encodes the state canonically: two states are equal if and only if
// their parts are. It calls yield with one part after the other; the first
// holds the leases and writers, each other one keys with their histories, in
// order; a history may go on in the next part. The slice is only good until yield returns. It returns the error of yield, or
// ErrCompacted if the state was compacted and pruned since it was frozen: what
// was yielded is then worthless, and the state must be frozen anew.
func (f *Frozen) Parts(yield func(part []byte) error) error {
	w := wireWriter{}
	w.frame(f)
	if err := yield(w.b); err != nil {
		return err
	}
	w.b = make([]byte, 0, PartSize+PartSize/4)
	flush := func() error {
		if Revision(f.View.pruned.Load()) > f.View.compact {
			return ErrCompacted // versions may have been cut while we walked
		}
		err := yield(w.b)
		w.b = w.b[:0]
		return err
	}
	var err error
	var kept []*KV
	f.View.root.ascend(KeyRange{End: FromKey}, func(head *KV) bool {
		kept = head.since(f.View.compact, kept[:0])
		for rest := kept; len(rest) > 0 && err == nil; {
			if rest = w.history(rest); len(w.b) >= PartSize {
				err = flush()
			}
		}
		return err == nil
	})
	if err != nil || len(w.b) == 0 {
		return err
	}
	return flush()
}

// frame writes what is not keys.
func (w *wireWriter) frame(f *Frozen) {
	w.uvarint(uint64(f.View.slot))
	w.varint(int64(f.View.rev))
	w.varint(int64(f.View.compact))
	w.uvarint(uint64(len(f.leases)))
	for _, l := range f.leases {
		w.varint(int64(l.id))
		w.varint(l.ttl)
		w.uvarint(uint64(l.since))
	}
	w.uvarint(uint64(len(f.writers)))
	for i := range f.writers {
		wr := &f.writers[i]
		w.uvarint(uint64(wr.id))
		w.uvarint(uint64(wr.last))
		w.uvarint(uint64(wr.max))
		for _, word := range wr.seen {
			w.uvarint(word)
		}
	}
}

// since appends to dst the versions that can be read at or above compact,
// newest first: those made there, and the one below if it is live.
func (kv *KV) since(compact Revision, dst []*KV) []*KV {
	for ; kv != nil && kv.Mod >= compact; kv = kv.prev.Load() {
		dst = append(dst, kv)
	}
	if kv.Live() {
		dst = append(dst, kv)
	}
	return dst
}

// history writes versions of one key, newest first, up to the one that fills the
// part. It returns the others.
func (w *wireWriter) history(versions []*KV) (rest []*KV) {
	w.string(versions[0].Key)
	for rest = versions; len(rest) > 0 && (len(w.b) < PartSize || len(rest) == len(versions)); rest = rest[1:] {
		kv := rest[0]
		w.varint(int64(kv.Mod))
		w.varint(kv.Version)
		if kv.Live() {
			w.varint(int64(kv.Create))
			w.varint(int64(kv.Lease))
			w.bytes(kv.Value)
		}
	}
	w.varint(0)
	return rest
}

// Part is a decoded part of a snapshot, other than the first: the newest
// versions of some keys, in order, with their histories.
type Part struct {
	heads []*KV
	last  *KV // the oldest version of the last key
}

// ParsePart decodes a part other than the first. Parts may be decoded at the
// same time. The error wraps ErrMalformed.
func ParsePart(b []byte) (Part, error) {
	r := wireReader{b: b}
	var p Part
	if len(b) > MaxPart {
		r.fail()
	}
	for len(r.b) > 0 {
		head, last := r.history()
		p.heads, p.last = append(p.heads, head), last
	}
	if r.failed {
		return Part{}, fmt.Errorf("snapshot part of %d bytes: %w", len(b), ErrMalformed)
	}
	return p, nil
}

// history reads versions of one key, at least one, up to a revision of 0.
func (r *wireReader) history() (head, last *KV) {
	key := r.string()
	for {
		mod := Revision(r.varint())
		if mod == 0 && last != nil && !r.failed {
			return head, last
		}
		kv := &KV{Key: key, Mod: mod, Version: r.varint()}
		if kv.Live() {
			kv.Create, kv.Lease = Revision(r.varint()), LeaseID(r.varint())
			kv.Value = r.bytes()
		}
		switch {
		case r.failed || !kv.sound() || last != nil && !last.follows(kv):
			r.fail()
			return nil, nil
		case last == nil:
			head = kv
		default:
			last.prev.Store(kv)
		}
		last = kv
	}
}

// join gives the last key of each part the versions that the next part begins
// with, if they are its own.
func join(parts []Part) error {
	last := (*KV)(nil)
	for i := range parts {
		p := &parts[i]
		if last != nil && len(p.heads) > 0 && p.heads[0].Key == last.Key {
			if !last.follows(p.heads[0]) {
				return fmt.Errorf("snapshot: key %q is in two parts: %w", last.Key, ErrMalformed)
			}
			last.prev.Store(p.heads[0])
			p.heads = p.heads[1:]
		}
		if p.last != nil {
			last = p.last
		}
	}
	return nil
}

// sound says whether a version's numbers agree with each other.
func (kv *KV) sound() bool {
	if !kv.Live() {
		return kv.Version == 0 && kv.Mod > 1
	}
	return kv.Create > 1 && kv.Create <= kv.Mod && (kv.Create == kv.Mod) == (kv.Version == 1)
}

// follows says whether older can be the version before kv.
func (kv *KV) follows(older *KV) bool {
	switch {
	case older.Mod >= kv.Mod:
		return false
	case kv.Live() && kv.Version > 1:
		return older.Version == kv.Version-1 && older.Create == kv.Create
	default: // a creation follows a tombstone, a tombstone follows a value
		return older.Live() != kv.Live()
	}
}

// Thaw builds the state from the first part of a snapshot and the others,
// decoded, in order, which it takes over. The error wraps ErrMalformed: the
// parts are of no state that there could be, or one is missing.
func Thaw(first []byte, parts []Part) (*State, error) {
	s := New()
	r := wireReader{b: first}
	r.frame(s)
	if r.failed || len(r.b) != 0 {
		return nil, fmt.Errorf("first part of a snapshot: %w", ErrMalformed)
	}
	if err := join(parts); err != nil {
		return nil, err
	}
	var last *KV
	for _, p := range parts {
		for _, head := range p.heads {
			if last != nil && head.Key <= last.Key || !s.restore(head) {
				return nil, fmt.Errorf("snapshot: key %q is out of order, or its history is: %w", head.Key, ErrMalformed)
			}
			last = head
		}
	}
	slices.SortFunc(s.log, func(a, b Change) int {
		if c := cmp.Compare(a.KV.Mod, b.KV.Mod); c != 0 {
			return c
		}
		return cmp.Compare(a.KV.Key, b.KV.Key)
	})
	if !s.gapless() {
		return nil, fmt.Errorf("snapshot at revision %d: a revision has no change: %w", s.rev, ErrMalformed)
	}
	return s, nil
}

// frame reads what is not keys.
func (r *wireReader) frame(s *State) {
	s.slot = journal.Slot(r.uvarint())
	s.rev, s.compact = Revision(r.varint()), Revision(r.varint())
	if s.compact < 0 || s.rev < max(s.compact, 1) {
		r.fail()
	}
	s.pruned.Store(int64(s.compact))
	var lastLease LeaseID
	for i := range r.count(minLease, MaxLeases) {
		id, l := LeaseID(r.varint()), &lease{ttl: r.varint(), since: journal.Slot(r.uvarint())}
		if id == 0 || i > 0 && id <= lastLease || l.ttl < 1 || l.ttl > MaxLeaseTTL || l.since > s.slot || r.failed {
			r.fail()
			return
		}
		s.leases[id], lastLease = l, id
	}
	var lastWriter WriterID
	for i := range r.count(minWriter, maxWriters) {
		id := WriterID(r.uvarint())
		w := &writer{last: journal.Slot(r.uvarint()), max: BatchNumber(r.uvarint())}
		for i := range w.seen {
			w.seen[i] = r.uvarint()
		}
		if i > 0 && id <= lastWriter || w.last > s.slot || r.failed {
			r.fail()
			return
		}
		s.writers[id], lastWriter = w, id
	}
}

// restore puts one key back with its history, into the log and its lease too.
// It says whether the history is what the state would keep of one.
func (s *State) restore(head *KV) bool {
	if head.Mod > s.rev {
		return false
	}
	if head.Live() && head.Lease != 0 {
		l := s.leases[head.Lease]
		if l == nil {
			return false
		}
		l.attach(head.Key)
	}
	s.keys.put(head)
	s.bytes += head.size()
	kv := head
	for kv.Mod >= s.compact {
		prev := kv.prev.Load()
		c := Change{KV: kv}
		if prev.Live() {
			c.Prev = prev
		}
		s.log = append(s.log, c)
		if prev == nil {
			return kv.Version == 1
		}
		kv = prev
	}
	return kv.Live() && kv.prev.Load() == nil // one version, below what was compacted
}

// gapless says whether every revision from the compacted one on has a change.
func (s *State) gapless() bool {
	next := max(s.compact, 2)
	for i := range s.log {
		if mod := s.log[i].KV.Mod; mod == next {
			next++
		} else if mod != next-1 {
			return false
		}
	}
	return next == s.rev+1 || s.rev == 1
}
