package replica

import (
	"bytes"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// window is what lies above the last slot applied: the records that cannot be applied
// yet, because a slot below them is empty or unknown, and the batches of this writer
// that have no outcome. A batch goes this way:
//
//	            launch              landed             apply, resolve
//	waiting ─────────────▶ flying ───────────▶ record ────────────────▶ done
//	   ▲                      │                   │
//	   ├───── lost ───────────┘                   │   another record holds the slot
//	   └───── void ───────────────────────────────┘   it was anchored too far back
//
// If a batch is read before its Append returns, it goes from flying to done. If its
// Append returns that another record holds the slot, and that is an earlier attempt of
// the same batch, it is launched again; every replica applies the first copy only.
type window struct {
	// applied is the last slot applied. Nothing up to it can change any more.
	applied journal.Slot
	// next is the slot after all that are known to be held or on their way.
	// Invariant: applied < next; every key of records, taken and flying is < next.
	next journal.Slot

	// records are those known above applied. Invariant: every key > applied.
	records map[journal.Slot]entry
	// taken are the slots that other records hold, as Appends found, and that were
	// not read yet. Invariant: every key > applied.
	taken map[journal.Slot]bool
	// flying are the Appends under way, by slot: one for a slot at most. If a slot is
	// applied meanwhile, its Append stays until it returns.
	flying map[journal.Slot]*batch

	// number is the last batch number given out. Control records have numbers too.
	number mvcc.BatchNumber
	// open are the numbered batches that were launched and have no outcome.
	// Invariant: while n is a key, no batch of requests has a number of
	// n+mvcc.BatchWindow or more. If such a batch were applied first, batch n would
	// be void for coming too late.
	open map[mvcc.BatchNumber]*batch
	// waiting are the batches to be launched before new ones, in order: those that
	// lost their slot or were void, and control records.
	waiting []*batch
}

// entry is the record of one slot.
type entry struct {
	rec  []byte
	ours *batch // the batch that the record carries; nil if it is another writer's, or not recognized yet
}

// overdue is how long an Append may take before the empty slots below it are filled.
const overdue = 2 * time.Second

// newWindow returns the window of a writer whose state is at slot applied.
func newWindow(applied journal.Slot) window {
	return window{
		applied: applied,
		next:    applied + 1,
		records: map[journal.Slot]entry{},
		taken:   map[journal.Slot]bool{},
		flying:  map[journal.Slot]*batch{},
		open:    map[mvcc.BatchNumber]*batch{},
	}
}

// free says whether a slot above applied may be empty: no record is known to hold it,
// and no batch of this writer is on its way to it.
func (w *window) free(slot journal.Slot) bool {
	_, known := w.records[slot]
	return !known && !w.taken[slot] && w.flying[slot] == nil
}

// holeAbove returns the first free slot above first that a record above it waits for;
// 0: none. Fillers of this writer wait for nothing.
func (w *window) holeAbove(first journal.Slot) journal.Slot {
	last := first
	for slot, e := range w.records {
		if e.ours == nil || !e.ours.filler() {
			last = max(last, slot)
		}
	}
	for slot := first + 1; slot < last; slot++ {
		if w.free(slot) {
			return slot
		}
	}
	return 0
}

// blocked says whether the empty slot after applied holds something up: a record above it
// is known, or an Append has been under way for long.
func (w *window) blocked(now time.Time) bool {
	if len(w.records) > 0 {
		return true
	}
	for _, b := range w.flying {
		if now.Sub(b.sent) > overdue {
			return true
		}
	}
	return false
}

// full says whether a batch of requests with the next number would break the invariant
// of open.
func (w *window) full() bool {
	for n := range w.open {
		if w.number+1-n >= mvcc.BatchWindow {
			return true
		}
	}
	return false
}

// create returns a batch of proposals with the next number. The window must not be full.
func (w *window) create(proposals []*proposal) *batch {
	w.number++
	return &batch{number: w.number, kind: record.Batch, proposals: proposals}
}

// control adds a batch of a control record to those that wait to be launched.
func (w *window) control(kind record.Kind, body []byte) {
	w.number++
	w.waiting = append(w.waiting, &batch{number: w.number, kind: kind, body: body})
}

// takeWaiting returns the first batch that waits to be launched, or nil. It drops the
// batches before it that have had their outcome meanwhile.
func (w *window) takeWaiting() *batch {
	for len(w.waiting) > 0 {
		b := w.waiting[0]
		w.waiting = w.waiting[1:]
		if b.slot == 0 || w.open[b.number] == b {
			return b
		}
	}
	return nil
}

// launch notes that the Append of a batch to its slot begins.
func (w *window) launch(b *batch) {
	w.next = max(w.next, b.slot+1)
	w.flying[b.slot] = b
	if !b.filler() {
		w.open[b.number] = b
	}
}

// landed notes that the Append of a batch returned, and that the batch holds its slot.
func (w *window) landed(b *batch) {
	delete(w.flying, b.slot)
	w.learn(b.slot, entry{rec: b.rec, ours: b})
}

// lost notes that the Append of a batch returned, and that another record holds the
// slot. That record is applied once it is read.
func (w *window) lost(b *batch) {
	delete(w.flying, b.slot)
	if b.slot > w.applied {
		w.taken[b.slot] = true
	}
	if !b.filler() { // a filler is done: its slot is filled
		w.waiting = append(w.waiting, b)
	}
}

// learn notes the record of a slot.
func (w *window) learn(slot journal.Slot, e entry) {
	if slot <= w.applied {
		return
	}
	if _, ok := w.records[slot]; !ok {
		w.records[slot] = e
	}
	w.next = max(w.next, slot+1)
}

// apply takes the record of the slot after applied out of the window, and moves applied
// to that slot. ok is false if the record is not known.
func (w *window) apply() (slot journal.Slot, e entry, ok bool) {
	slot = w.applied + 1
	if e, ok = w.records[slot]; !ok {
		return 0, entry{}, false
	}
	delete(w.records, slot)
	delete(w.taken, slot)
	w.applied = slot
	return slot, e, true
}

// find returns the open batch that a record of this writer carries; nil: none. It
// compares the bodies too, because somebody else may have forged the writer's ID.
func (w *window) find(h *record.Header, body []byte) *batch {
	if b := w.open[h.Number]; b != nil && b.kind == h.Kind && bytes.Equal(b.body, body) {
		return b
	}
	return nil
}

// resolve notes that a batch has its outcome, and says whether it had none before.
func (w *window) resolve(b *batch) bool {
	if b == nil || w.open[b.number] != b {
		return false
	}
	delete(w.open, b.number)
	return true
}

// void notes that the record of a batch was void. If the batch has no outcome yet, it
// waits to be launched again, and void returns true.
func (w *window) void(b *batch) bool {
	if w.open[b.number] != b {
		return false
	}
	w.waiting = append(w.waiting, b)
	return true
}

// timeOut tells the proposers whose wait is over that the outcome is unknown.
func (w *window) timeOut(now time.Time) {
	for _, b := range w.open {
		b.timeOut(now)
	}
}

// abandon tells all proposers that the outcome is unknown: nothing more is applied here.
func (w *window) abandon() {
	for _, b := range w.open {
		b.resolve(nil, ErrUnknown)
	}
}
