package fsck

import (
	"cmp"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// maxWriters bounds how many writers are told apart: each start of a server
// is a writer of its own.
const maxWriters = 4096

// writerTable is what is known of the writers.
type writerTable struct {
	rows   map[mvcc.WriterID]*Writer
	others int // records of writers that did not fit
}

func newWriterTable() writerTable { return writerTable{rows: map[mvcc.WriterID]*Writer{}} }

func (t *writerTable) row(id mvcc.WriterID, slot journal.Slot) *Writer {
	w := t.rows[id]
	if w == nil {
		if len(t.rows) == maxWriters {
			t.others++
			return &Writer{} // nobody looks at it
		}
		w = &Writer{ID: WriterID(id), First: slot}
		t.rows[id] = w
	}
	w.Last = slot
	return w
}

func (t *writerTable) batch(id mvcc.WriterID, slot journal.Slot, requests int) {
	w := t.row(id, slot)
	w.Batches++
	w.Requests += requests
}

func (t *writerTable) control(id mvcc.WriterID, slot journal.Slot) { t.row(id, slot) }

// list returns the writers in the order in which they came.
func (t *writerTable) list() (rows []Writer, others int) {
	rows = []Writer{}
	for _, w := range t.rows {
		rows = append(rows, *w)
	}
	slices.SortFunc(rows, func(a, b Writer) int { return cmp.Compare(a.First, b.First) })
	return rows, t.others
}
