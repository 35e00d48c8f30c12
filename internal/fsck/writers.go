package fsck

import (
	"cmp"
	"errors"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// maxWriters bounds how many writers are told apart. Each start of a server makes a new
// writer.
const maxWriters = 4096

// writerTable is what is known of the writers. Invariant: at most maxWriters rows.
type writerTable struct {
	rows   map[mvcc.WriterID]*Writer
	others int // records of writers that did not fit
}

func newWriterTable() writerTable { return writerTable{rows: map[mvcc.WriterID]*Writer{}} }

// row returns the row of a writer that wrote a slot.
func (t *writerTable) row(id mvcc.WriterID, slot journal.Slot) *Writer {
	w := t.rows[id]
	if w == nil {
		if len(t.rows) == maxWriters {
			t.others++
			return &Writer{} // a row that is not in the table
		}
		w = &Writer{ID: WriterID(id), First: slot}
		t.rows[id] = w
	}
	w.Last = slot
	return w
}

// add notes the record of a step. A void one says nothing of a writer, unless it is a
// batch that was seen before.
func (t *writerTable) add(s *step) {
	if s.void != nil && !errors.Is(s.void, errSeen) {
		return
	}
	w := t.row(s.head.Writer, s.slot)
	if s.void == nil && s.head.Kind == record.Batch {
		w.Batches++
		w.Requests += len(s.requests)
	}
}

// list returns the writers in the order in which they came.
func (t *writerTable) list() (rows []Writer, others int) {
	rows = []Writer{}
	for _, w := range t.rows {
		rows = append(rows, *w)
	}
	slices.SortFunc(rows, func(a, b Writer) int { return cmp.Compare(a.First, b.First) })
	return rows, t.others
}
