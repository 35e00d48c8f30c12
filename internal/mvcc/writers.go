package mvcc

import (
	"cmp"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

// writers are the writers that wrote a batch lately; see writerSpan. By them a batch that
// landed in two slots happens once.
type writers map[WriterID]*writer

// writer remembers which of a writer's last batches were applied.
type writer struct {
	last journal.Slot // its newest batch's slot
	max  BatchNumber  // its highest batch
	// Bit n%BatchWindow says whether batch n was applied, for n in
	// (max-BatchWindow, max]. Invariant: batch max was applied, unless max is 0.
	seen [BatchWindow / 64]uint64
}

// BatchWindow is how many of a writer's last batches are remembered one by one. A batch with an
// older number is void, so a writer must have fewer batches in flight.
const BatchWindow = 256

// A writer is forgotten once it has written nothing for writerSpan slots; that is checked every
// writerSweep slots. A late copy of a batch can land only in an empty slot at the tail, so a
// writer that was silent for so long has none in flight.
const (
	writerSpan  = 1 << 16
	writerSweep = 1 << 12
	// maxWriters is how many writers can be remembered at once: one for each slot since
	// the last time that some were forgotten.
	maxWriters = writerSpan + writerSweep + 1
)

// admit notes a batch in slot, and says whether it counts: it is numbered, was not applied
// before, and is not too old to tell.
func (ws writers) admit(slot journal.Slot, b *Batch) bool {
	w := ws[b.Writer]
	if w == nil {
		w = &writer{}
		ws[b.Writer] = w
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

// mark sets whether batch n was applied.
func (w *writer) mark(n BatchNumber, seen bool) {
	word, bit := &w.seen[n%BatchWindow/64], uint64(1)<<(n%64)
	*word &^= bit
	if seen {
		*word |= bit
	}
}

// forget forgets writers that were silent for writerSpan slots, every writerSweep slots.
func (ws writers) forget(slot journal.Slot) {
	if slot%writerSweep != 0 {
		return
	}
	for id, w := range ws {
		if w.last+writerSpan < slot {
			delete(ws, id)
		}
	}
}

// writerRow is a writer in a snapshot.
type writerRow struct {
	id WriterID
	writer
}

// minWriter is the shortest wire form of a row, in bytes.
const minWriter = 3 + BatchWindow/64

// rows returns the writers by ascending id.
func (ws writers) rows() (rows []writerRow) {
	for id, w := range ws {
		rows = append(rows, writerRow{id, *w})
	}
	slices.SortFunc(rows, func(a, b writerRow) int { return cmp.Compare(a.id, b.id) })
	return rows
}

// writeWriters writes how many rows there are, and the rows.
func writeWriters(w *wire.Writer, rows []writerRow) {
	w.Uvarint(uint64(len(rows)))
	for i := range rows {
		row := &rows[i]
		w.Uvarint(uint64(row.id))
		w.Uvarint(uint64(row.last))
		w.Uvarint(uint64(row.max))
		for _, word := range row.seen {
			w.Uvarint(word)
		}
	}
}

// read reads what writeWriters wrote of a state at slot. r fails if no state can have such
// writers.
func (ws writers) read(r *wire.Reader, slot journal.Slot) {
	var last WriterID
	for i := range r.Count(minWriter, maxWriters) {
		id := WriterID(r.Uvarint())
		w := &writer{last: journal.Slot(r.Uvarint()), max: BatchNumber(r.Uvarint())}
		for i := range w.seen {
			w.seen[i] = r.Uvarint()
		}
		if i > 0 && id <= last || w.last > slot || r.Failed {
			r.Fail()
			return
		}
		ws[id], last = w, id
	}
}
