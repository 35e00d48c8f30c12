package mvcc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

// Frozen is a state at one slot, with all that a snapshot holds. It is immutable, except that
// Prune may remove history from it: see Parts.
type Frozen struct {
	View    *View
	leases  []leaseRow  // by ascending id
	writers []writerRow // by ascending id
}

// Freeze returns the present state. The time grows with the leases and writers, but not with
// the keys.
func (s *State) Freeze() *Frozen {
	return &Frozen{View: s.View(), leases: s.leases.rows(), writers: s.writers.rows()}
}

// PartSize is the length, in bytes, at which a part of a snapshot is closed.
// It is part of the canonical encoding.
const PartSize = 4 << 20

// The limits of a snapshot. No state makes a larger one, so a reader refuses one that claims
// to be larger.
const (
	// MaxFirstPart is the greatest length of the first part, in bytes: that of
	// MaxLeases and maxWriters rows.
	MaxFirstPart = 32 << 20
	// MaxPart is the greatest length of any other part, in bytes: a part that is just
	// short of PartSize, and one more version, which fitted in a batch.
	MaxPart = PartSize + MaxBatchWeight + 1<<10
)

// MaxParts returns how many parts the state at a slot can have, because all its versions came
// in batches.
func MaxParts(slot journal.Slot) uint64 { return uint64(min(slot, 1<<60)) + 2 }

// Parts encodes the state canonically: two states are equal if and only if their parts are.
// It calls yield with one part after the other. The first part holds the leases and writers;
// the others hold keys with their histories, in order, and a history may go on in the next
// part. The slice is valid only until yield returns. The error is that of yield, or
// ErrCompacted if the state was compacted and pruned since it was frozen: then the parts are
// useless, and the state must be frozen anew.
func (f *Frozen) Parts(yield func(part []byte) error) error {
	if err := yield(f.firstPart()); err != nil {
		return err
	}
	var w wire.Writer
	flush := func() error {
		if Revision(f.View.pruned.Load()) > f.View.compact {
			return ErrCompacted // versions may have been cut while we walked
		}
		err := yield(w.B)
		w.B = w.B[:0]
		return err
	}
	var err error
	var kept []*KV
	f.View.root.Ascend(KeyRange{End: FromKey}, func(head *KV) bool {
		kept = since(head, f.View.compact, kept[:0])
		for rest := kept; len(rest) > 0 && err == nil; {
			if rest = writeVersions(&w, rest); len(w.B) >= PartSize {
				err = flush()
			}
		}
		return err == nil
	})
	if err != nil || len(w.B) == 0 {
		return err
	}
	return flush()
}

// firstPart returns the part with all but the keys.
func (f *Frozen) firstPart() []byte {
	w := wire.Writer{}
	w.Uvarint(uint64(f.View.slot))
	w.Varint(int64(f.View.rev))
	w.Varint(int64(f.View.compact))
	writeLeases(&w, f.leases)
	writeWriters(&w, f.writers)
	return w.B
}

// since appends to dst the versions of a key, from kv back, that can be read at or above compact,
// newest first: those made there, and the one below if it is live.
func since(kv *KV, compact Revision, dst []*KV) []*KV {
	for ; kv != nil && kv.Mod >= compact; kv = kv.Prev() {
		dst = append(dst, kv)
	}
	if kv.Live() {
		dst = append(dst, kv)
	}
	return dst
}

// writeVersions writes versions of one key, newest first, until the part is full. It returns
// the remaining versions.
func writeVersions(w *wire.Writer, versions []*KV) (rest []*KV) {
	w.Text(versions[0].Key)
	for rest = versions; len(rest) > 0 && (len(w.B) < PartSize || len(rest) == len(versions)); rest = rest[1:] {
		kv := rest[0]
		w.Varint(int64(kv.Mod))
		w.Varint(kv.Version)
		if kv.Live() {
			w.Varint(int64(kv.Create))
			w.Varint(int64(kv.Lease))
			w.Bytes(kv.Value)
		}
	}
	w.Varint(0)
	return rest
}

// Part is a decoded part of a snapshot, but not the first: the newest versions of some keys,
// in order, with their histories.
type Part struct {
	heads []*KV
	last  *KV // the oldest version of the last key
}

// ParsePart decodes a part other than the first. Several parts may be decoded at the same
// time. The error wraps ErrMalformed.
func ParsePart(b []byte) (Part, error) {
	r := wire.Reader{B: b}
	var p Part
	if len(b) > MaxPart {
		r.Fail()
	}
	for len(r.B) > 0 {
		head, last := readVersions(&r)
		p.heads, p.last = append(p.heads, head), last
	}
	if r.Failed {
		return Part{}, fmt.Errorf("snapshot part of %d bytes: %w", len(b), ErrMalformed)
	}
	return p, nil
}

// readVersions reads versions of one key, at least one, up to a revision of 0.
func readVersions(r *wire.Reader) (head, last *KV) {
	key := r.Text()
	for {
		mod := Revision(r.Varint())
		if mod == 0 && last != nil && !r.Failed {
			return head, last
		}
		kv := &KV{Key: key, Mod: mod, Version: r.Varint()}
		if kv.Live() {
			kv.Create, kv.Lease = Revision(r.Varint()), LeaseID(r.Varint())
			kv.Value = r.Bytes()
		}
		switch {
		case r.Failed || !sound(kv) || last != nil && !follows(last, kv):
			r.Fail()
			return nil, nil
		case last == nil:
			head = kv
		default:
			last.Link(kv)
		}
		last = kv
	}
}

// join appends to the last key of each part the versions at the beginning of the next part,
// if these are versions of that key.
func join(parts []Part) error {
	last := (*KV)(nil)
	for i := range parts {
		p := &parts[i]
		if last != nil && len(p.heads) > 0 && p.heads[0].Key == last.Key {
			if !follows(last, p.heads[0]) {
				return fmt.Errorf("snapshot: key %q is in two parts: %w", last.Key, ErrMalformed)
			}
			last.Link(p.heads[0])
			p.heads = p.heads[1:]
		}
		if p.last != nil {
			last = p.last
		}
	}
	return nil
}

// sound says whether the numbers of a version are consistent.
func sound(kv *KV) bool {
	if !kv.Live() {
		return kv.Version == 0 && kv.Mod > 1
	}
	return kv.Create > 1 && kv.Create <= kv.Mod && (kv.Create == kv.Mod) == (kv.Version == 1)
}

// follows says whether older can be the version before kv.
func follows(kv, older *KV) bool {
	switch {
	case older.Mod >= kv.Mod:
		return false
	case kv.Live() && kv.Version > 1:
		return older.Version == kv.Version-1 && older.Create == kv.Create
	default: // a creation follows a tombstone, a tombstone follows a value
		return older.Live() != kv.Live()
	}
}

// Thaw builds the state from the first part of a snapshot and the other parts, decoded and in
// order. The caller must not use those any more. The error wraps ErrMalformed: no state has
// such parts, or a part is missing.
func Thaw(first []byte, parts []Part) (*State, error) {
	s := New()
	r := wire.Reader{B: first}
	s.readFirstPart(&r)
	if r.Failed || len(r.B) != 0 {
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
	slices.SortFunc(s.history.log, func(a, b Change) int {
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

// readFirstPart reads the part that firstPart returned.
func (s *State) readFirstPart(r *wire.Reader) {
	s.slot = journal.Slot(r.Uvarint())
	s.rev, s.history.compacted = Revision(r.Varint()), Revision(r.Varint())
	if s.history.compacted < 0 || s.rev < max(s.history.compacted, 1) {
		r.Fail()
	}
	s.history.pruned.Store(int64(s.history.compacted))
	s.leases.read(r, s.slot)
	s.writers.read(r, s.slot)
}

// restore puts a key with its history into the tree, the log and its lease. It returns whether
// a state can have such a history.
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
	s.keys.Put(head)
	s.bytes += sizeOf(head)
	kv := head
	for kv.Mod >= s.history.compacted {
		prev := kv.Prev()
		c := Change{KV: kv}
		if prev.Live() {
			c.Prev = prev
		}
		s.history.log = append(s.history.log, c)
		if prev == nil {
			return kv.Version == 1
		}
		kv = prev
	}
	return kv.Live() && kv.Prev() == nil // one version, below what was compacted
}

// gapless says whether every revision from the compacted one on has a change.
func (s *State) gapless() bool {
	next := max(s.history.compacted, 2)
	for i := range s.history.log {
		if mod := s.history.log[i].KV.Mod; mod == next {
			next++
		} else if mod != next-1 {
			return false
		}
	}
	return next == s.rev+1 || s.rev == 1
}
