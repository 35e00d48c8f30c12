// Package status tells how a journal, its snapshots and its servers stand, by what is
// stored. It changes nothing, asks no server, and checks far less than fsck.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// Looked is of how many of the last records a report tells.
const Looked = 4096

// Report is how a journal stands.
type Report struct {
	Journal   string       `json:"journal"` // its ID
	Format    int          `json:"format"`
	First     journal.Slot `json:"firstSlot"`   // that is not deleted
	Last      journal.Slot `json:"lastSlot"`    // 0: the journal is empty
	LookedAt  int          `json:"recordsRead"` // the last ones
	Bytes     int64        `json:"bytesRead"`
	Snapshots []Snapshot   `json:"snapshots"` // newest first
	Servers   []Server     `json:"servers"`   // that wrote last first
	// Problems are sentences that say what is wrong.
	Problems []string `json:"problems"`
}

// Snapshot is one of the snapshots beside the journal.
type Snapshot struct {
	Slot     journal.Slot  `json:"slot"`
	Behind   journal.Slot  `json:"behindSlots"` // how many slots came after it
	Parts    int           `json:"parts,omitempty"`
	Bytes    int64         `json:"bytes,omitempty"`  // stored; 0: unknown
	Writer   fsck.WriterID `json:"writer,omitzero"`  // who wrote it, as it says, or whose record names it; 0: unknown
	Written  time.Time     `json:"written,omitzero"` // by its writer's clock, as it says
	Disputed bool          `json:"disputed,omitempty"`
	Unusable string        `json:"unusable,omitempty"` // why
}

// Server is a server that wrote some of the records read, or announced itself.
type Server struct {
	Writer  fsck.WriterID `json:"writer"`
	Name    string        `json:"name,omitempty"`
	Account string        `json:"account,omitempty"`
	Version string        `json:"version,omitempty"`
	Started time.Time     `json:"started,omitzero"`   // as it says
	Last    journal.Slot  `json:"lastSlot,omitempty"` // its last record; 0: none of the records read
	Behind  journal.Slot  `json:"behindSlots"`        // how many records came after it
}

// Read makes the report of a journal. Its error says why the journal cannot be read.
func Read(ctx context.Context, store journal.Store) (*Report, error) {
	r := &Report{Journal: store.Info().ID.String(), Format: journal.FormatVersion, Snapshots: []Snapshot{}, Servers: []Server{}, Problems: []string{}}
	var err error
	if r.First, err = fsck.First(ctx, store); err != nil {
		return nil, err
	}
	if r.Last, err = fsck.Last(ctx, store); err != nil {
		return nil, err
	}
	seen, err := r.look(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := r.servers(ctx, store, seen); err != nil {
		return nil, err
	}
	return r, r.snapshots(ctx, store, seen)
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// seen is what the last records say. Invariant: no more entries than Looked in each map.
type seen struct {
	last  map[mvcc.WriterID]journal.Slot // of each writer
	marks map[journal.Slot]mvcc.WriterID // who named each snapshot first
}

// look reads the last records.
func (r *Report) look(ctx context.Context, store journal.Store) (seen, error) {
	s := seen{last: map[mvcc.WriterID]journal.Slot{}, marks: map[journal.Slot]mvcc.WriterID{}}
	slot := max(r.First, r.Last+1-min(r.Last, Looked))
	for slot <= r.Last {
		recs, err := store.Read(ctx, slot, int(min(64, r.Last+1-slot)))
		switch {
		case errors.Is(err, journal.ErrTrimmed): // just now
			slot++
			continue
		case errors.Is(err, journal.ErrCorrupt):
			r.problem("records from slot %d on are damaged; see xb fsck", slot)
			return s, nil
		case err != nil:
			return s, err
		case len(recs) == 0:
			r.problem("slot %d is empty, and slot %d is not; see xb fsck", slot, r.Last)
			return s, nil
		}
		for _, rec := range recs {
			r.LookedAt++
			r.Bytes += int64(len(rec))
			if errors.Is(s.add(store.Info().ID, slot, rec), record.ErrFormat) {
				r.problem("slot %d was written by another version of xb, which this one cannot read", slot)
				return s, nil
			}
			slot++
		}
	}
	return s, nil
}

// add takes in the record of a slot, unless it is of another journal. The error says why
// it cannot be decoded.
func (s *seen) add(id journal.ID, slot journal.Slot, rec []byte) error {
	h, body, err := record.Parse(rec)
	if h.Journal != id {
		return nil
	}
	if err != nil {
		return err
	}
	s.last[h.Writer] = slot
	if m, err := record.ParseSnapshotMark(body); h.Kind == record.Snapshot && err == nil {
		if _, named := s.marks[m.Slot]; !named {
			s.marks[m.Slot] = h.Writer
		}
	}
	return nil
}

// servers lists who wrote the records and who announced themselves.
func (r *Report) servers(ctx context.Context, store journal.Store, s seen) error {
	announced, more, err := announce.List(ctx, store)
	if err != nil {
		return err
	}
	if more > 0 {
		r.problem("there are %d more announcements of servers than are read; delete blobs under %s that nobody needs", more, announce.Prefix)
	}
	rows := map[mvcc.WriterID]Server{}
	for writer, last := range s.last {
		rows[writer] = Server{Writer: fsck.WriterID(writer), Last: last, Behind: r.Last - last}
	}
	for _, a := range announced {
		row := rows[a.Writer]
		row.Writer, row.Name, row.Account, row.Version, row.Started = fsck.WriterID(a.Writer), a.Name, a.Account, a.Version, a.Started
		rows[a.Writer] = row
	}
	r.Servers = slices.SortedFunc(maps.Values(rows), func(a, b Server) int {
		return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.Writer, b.Writer))
	})
	return nil
}

// snapshots lists the snapshots, and says what is wrong with them.
func (r *Report) snapshots(ctx context.Context, store journal.Store, s seen) error {
	names, err := store.ListBlobs(ctx, snapshot.Prefix)
	if err != nil {
		return err
	}
	if r.Last, err = later(ctx, store, r.Last); err != nil { // servers may have gone on
		return err
	}
	usable := journal.Slot(0)
	for i, slot := range snapshot.Slots(names) {
		sn := Snapshot{Slot: slot, Behind: r.Last - min(slot, r.Last), Writer: fsck.WriterID(s.marks[slot])}
		m, err := snapshot.ReadManifest(ctx, store, slot)
		switch {
		case errors.Is(err, journal.ErrNoBlob):
			continue // deleted just now, because there are newer ones
		case errors.Is(err, snapshot.ErrBad), errors.Is(err, journal.ErrCorrupt):
			sn.Unusable = err.Error()
			r.problem("the snapshot of slot %d cannot be used: %s", slot, printable(sn.Unusable))
		case err != nil:
			return err
		}
		sn.describe(&m)
		sn.Disputed = slices.Contains(names, snapshot.DisputeOf(slot))
		if sn.Disputed && i == 0 {
			r.problem("the newest snapshot, of slot %d, is disputed: a server that made the state anew came to another one", slot)
		}
		if slot > r.Last {
			r.problem("there is a snapshot of slot %d, and the journal ends with slot %d: its end is missing", slot, r.Last)
		}
		if !sn.Disputed && sn.Unusable == "" {
			usable = max(usable, slot)
		}
		r.Snapshots = append(r.Snapshots, sn)
	}
	if usable+1 < r.First {
		r.problem("the records before slot %d are deleted, and no snapshot that can be used stands for them", r.First)
	}
	return nil
}

// describe takes in what the manifest of the snapshot says. Whoever may write to the store
// may write anything there.
func (s *Snapshot) describe(m *snapshot.Manifest) {
	s.Parts, s.Bytes = len(m.Parts), max(0, m.Bytes)
	if by := m.Author(); by.Writer != 0 {
		s.Writer, s.Written = fsck.WriterID(by.Writer), by.At
	}
}

// later returns the last slot that is held, which is last or a later one.
func later(ctx context.Context, store journal.Store, last journal.Slot) (journal.Slot, error) {
	for {
		recs, err := store.Read(ctx, last+1, 64)
		if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrTrimmed) || err == nil && len(recs) == 0 {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		last += journal.Slot(len(recs))
	}
}
