package mvcc

import (
	"cmp"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

// writers are those of whom a batch came not long ago: see writerSpan. They are what
// makes a batch that landed in two slots happen once.
type writers map[WriterID]*writer

// writer remembers which of a writer's last batches were applied.
type writer struct {
	last journal.Slot // its newest batch's slot
	max  BatchNumber  // its highest batch
	// Bit n%BatchWindow says whether batch n was applied, for n in
	// (max-BatchWindow, max]. Invariant: batch max was, if there was one.
	seen [BatchWindow / 64]uint64
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

// admit notes that a batch came in slot, and says whether it is new: not seen
// before, not too old to tell, and numbered.
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

// mark notes whether batch n was applied.
func (w *writer) mark(n BatchNumber, seen bool) {
	word, bit := &w.seen[n%BatchWindow/64], uint64(1)<<(n%64)
	*word &^= bit
	if seen {
		*word |= bit
	}
}

// forget forgets the writers of which nothing has come for so long, if it is time
// to look.
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

// writerRow is a writer as a snapshot holds it.
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

// read puts in what writeWriters wrote of a state at slot. r fails if no state can
// have such writers.
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
