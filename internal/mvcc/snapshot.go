package mvcc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Frozen is a state at one slot, with all that a snapshot holds. It is
// immutable.
type Frozen struct {
	View    *View
	leases  []leaseRow
	writers []writerRow
}

type leaseRow struct {
	id       LeaseID
	ttl      int64
	renewals uint64
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
		f.leases = append(f.leases, leaseRow{id, l.ttl, l.renewals})
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

// Parts encodes the state canonically: two states are equal if and only if
// their parts are. It calls yield with one part after the other; the first
// holds the leases and writers, each other one whole keys, in order. The
// slice is only good until yield returns. It returns the error of yield, or
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
		if kept = head.since(f.View.compact, kept[:0]); len(kept) > 0 {
			w.history(kept)
		}
		if len(w.b) >= PartSize {
			err = flush()
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
		w.uvarint(l.renewals)
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

// history writes versions of one key, newest first.
func (w *wireWriter) history(versions []*KV) {
	w.string(versions[0].Key)
	w.uvarint(uint64(len(versions)))
	for _, kv := range versions {
		w.varint(int64(kv.Mod))
		w.varint(kv.Version)
		if kv.Live() {
			w.varint(int64(kv.Create))
			w.varint(int64(kv.Lease))
			w.bytes(kv.Value)
		}
	}
}

// Part is a decoded part of a snapshot, other than the first: the newest
// versions of some keys, in order, with their histories.
type Part struct{ heads []*KV }

// ParsePart decodes a part other than the first. Parts may be decoded at the
// same time. The error wraps ErrMalformed.
func ParsePart(b []byte) (Part, error) {
	r := wireReader{b: b}
	var p Part
	for len(r.b) > 0 {
		key := r.string()
		n := r.count()
		if n == 0 {
			r.fail()
		}
		var newer *KV
		for ; n > 0 && !r.failed; n-- {
			kv := &KV{Key: key, Mod: Revision(r.varint()), Version: r.varint()}
			if kv.Version > 0 {
				kv.Create, kv.Lease = Revision(r.varint()), LeaseID(r.varint())
				kv.Value = r.bytes()
			}
			if newer == nil {
				p.heads = append(p.heads, kv)
			} else {
				if newer.Mod <= kv.Mod {
					r.fail()
				}
				newer.prev.Store(kv)
			}
			newer = kv
		}
		if r.failed {
			return Part{}, fmt.Errorf("snapshot part: %w", ErrMalformed)
		}
	}
	return p, nil
}

// Thaw builds the state from the first part of a snapshot and the others,
// decoded, in order. The error wraps ErrMalformed.
func Thaw(first []byte, parts []Part) (*State, error) {
	s := New()
	r := wireReader{b: first}
	s.slot = journal.Slot(r.uvarint())
	s.rev, s.compact = Revision(r.varint()), Revision(r.varint())
	s.pruned.Store(int64(s.compact))
	for range r.count() {
		id := LeaseID(r.varint())
		s.leases[id] = &lease{ttl: r.varint(), renewals: r.uvarint()}
	}
	for range r.count() {
		id := WriterID(r.uvarint())
		w := &writer{last: journal.Slot(r.uvarint()), max: BatchNumber(r.uvarint())}
		for i := range w.seen {
			w.seen[i] = r.uvarint()
		}
		s.writers[id] = w
	}
	if r.failed || len(r.b) != 0 {
		return nil, fmt.Errorf("first part of a snapshot: %w", ErrMalformed)
	}
	last, any := "", false
	for _, p := range parts {
		for _, head := range p.heads {
			if any && head.Key <= last {
				return nil, fmt.Errorf("snapshot: key %q after %q: %w", head.Key, last, ErrMalformed)
			}
			last, any = head.Key, true
			s.restore(head)
		}
	}
	slices.SortFunc(s.log, func(a, b Change) int {
		if c := cmp.Compare(a.KV.Mod, b.KV.Mod); c != 0 {
			return c
		}
		return cmp.Compare(a.KV.Key, b.KV.Key)
	})
	s.toPrune = nil
	return s, nil
}

// restore puts one key back with its history, into the log and its lease too.
func (s *State) restore(head *KV) {
	delta := 0
	if head.Live() {
		delta = 1
		if l := s.leases[head.Lease]; l != nil {
			if l.keys == nil {
				l.keys = map[string]struct{}{}
			}
			l.keys[head.Key] = struct{}{}
		}
	}
	s.keys.put(head, delta)
	s.bytes += head.size()
	for kv := head; kv != nil && kv.Mod >= s.compact; {
		prev := kv.prev.Load()
		c := Change{KV: kv}
		if prev.Live() {
			c.Prev = prev
		}
		s.log = append(s.log, c)
		kv = prev
	}
}
