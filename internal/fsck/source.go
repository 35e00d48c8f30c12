package fsck

import (
	"context"
	"errors"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// source is the journal that is checked, and says how far it has been read.
type source struct {
	store  journal.Store
	id     journal.ID
	reader reader
	bytes  int64          // of the records read in this phase
	hear   func(Progress) // nil: nobody
}

func newSource(store journal.Store, hear func(Progress)) source {
	return source{store: store, id: store.Info().ID, reader: reader{store: store}, hear: hear}
}

// begin begins a phase.
func (s *source) begin() { s.bytes = 0 }

// progress says how far the check has come.
func (s *source) progress(p Phase, slot journal.Slot) {
	if s.hear != nil {
		s.hear(Progress{Phase: p, Slot: slot, Bytes: s.bytes})
	}
}

// read reads some slots, and counts them.
func (s *source) read(ctx context.Context, from journal.Slot) ([][]byte, error) {
	recs, err := s.reader.read(ctx, from, 0)
	for _, rec := range recs {
		s.bytes += int64(len(rec))
	}
	return recs, err
}

// load returns a cursor on the state of a snapshot, and the snapshot's hash.
func (s *source) load(ctx context.Context, slot journal.Slot) (*cursor, Hash, error) {
	content, err := snapshot.Load(ctx, s.store, s.id, slot)
	if err != nil {
		return nil, Hash{}, err
	}
	return &cursor{s.id, content.State, content.Chains}, content.Hash, nil
}

// highestFloor returns the highest slot that floor records in the slots from first to
// last name, as far as those can be read; 0: none does.
func (s *source) highestFloor(ctx context.Context, first, last journal.Slot) (floor journal.Slot, err error) {
	for slot := first; slot <= last; {
		recs, err := s.read(ctx, slot)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return floor, err
		}
		if err != nil || len(recs) == 0 {
			return floor, nil
		}
		for _, rec := range recs {
			if h, body, err := record.Parse(rec); err == nil && h.Journal == s.id && h.Kind == record.Floor {
				if m, err := record.ParseFloorMark(body); err == nil {
					floor = max(floor, m.Slot)
				}
			}
		}
		slot += journal.Slot(len(recs))
		s.progress(PhaseSlots, slot-1)
	}
	return floor, nil
}

// proofOf returns a slot behind an empty one whose record proves that the empty slot was
// held: its writer had applied what the empty slot held, or it lies farther than anybody
// appends; 0: there is none. Other records may lie there, of writers that were ahead of
// one that ended.
func (s *source) proofOf(ctx context.Context, empty journal.Slot) (journal.Slot, error) {
	depth := journal.Slot(s.store.Info().Depth)
	for ahead := journal.Slot(1); ahead <= 1<<20; {
		rec, err := s.store.Peek(ctx, empty+ahead)
		corrupt := errors.Is(err, journal.ErrCorrupt)
		switch {
		case err != nil && !corrupt:
			return 0, err
		case ahead >= depth && (corrupt || rec != nil), record.SawHeld(s.id, rec, empty):
			return empty + ahead, nil
		}
		if ahead <= 2*depth {
			ahead++
		} else {
			ahead *= 2 // the gap may be long
		}
	}
	return 0, nil
}

const (
	// maxWindow is how many slots are asked for at once, and windowBytes about
	// how much they may hold.
	maxWindow   = 256
	windowBytes = 16 << 20
)

// reader reads a journal in windows that fit in memory.
type reader struct {
	store journal.Journal
	size  int // of the next window, in slots; 0: not known yet
}

// read returns records from slot on, at most limit if that is not 0, and none only at
// the tail. If a record is corrupt, those before it come first.
func (r *reader) read(ctx context.Context, from journal.Slot, limit journal.Slot) ([][]byte, error) {
	n := max(r.size, 8)
	if limit > 0 {
		n = int(min(journal.Slot(n), limit))
	}
	recs, err := r.store.Read(ctx, from, n)
	if errors.Is(err, journal.ErrCorrupt) && n > 1 {
		recs, err = r.store.Read(ctx, from, 1)
	}
	if len(recs) > 0 {
		bytes := 0
		for _, rec := range recs {
			bytes += len(rec)
		}
		r.size = max(1, min(2*n, maxWindow, windowBytes/(bytes/len(recs)+1)))
	}
	return recs, err
}
