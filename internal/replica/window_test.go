package replica

import (
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// checkWindow fails unless the window's invariants hold.
func checkWindow(t *testing.T, w *window) {
	t.Helper()
	for name, slots := range map[string][]journal.Slot{"records": keys(w.records), "taken": keys(w.taken)} {
		for _, slot := range slots {
			if slot <= w.applied || slot >= w.next {
				t.Errorf("%s has slot %d, outside of %d to %d", name, slot, w.applied, w.next)
			}
		}
	}
	for slot, b := range w.flying {
		if slot >= w.next || b.slot != slot {
			t.Errorf("the Append to slot %d, of a batch for slot %d, is not below %d", slot, b.slot, w.next)
		}
	}
	for n, b := range w.open {
		if b.filler() || b.number != n || n > w.number {
			t.Errorf("open has number %d of %d for batch %d", n, w.number, b.number)
		}
	}
	if w.next <= w.applied {
		t.Errorf("next is %d, and slot %d is applied", w.next, w.applied)
	}
}

func keys[V any](m map[journal.Slot]V) (slots []journal.Slot) {
	for slot := range m {
		slots = append(slots, slot)
	}
	return slots
}

// send launches a batch to a slot.
func send(w *window, b *batch, slot journal.Slot) *batch {
	b.slot, b.rec = slot, []byte{byte(slot)}
	w.launch(b)
	return b
}

// TestWindow follows batches through the window: one that lands above a hole, one that
// loses its slot, a filler, and one that is void.
func TestWindow(t *testing.T) {
	w := newWindow(10)
	a, b := send(&w, w.create(nil), 11), send(&w, w.create(nil), 12)
	checkWindow(t, &w)
	if w.free(11) || w.free(12) || !w.free(13) || w.next != 13 {
		t.Errorf("with two Appends under way the next slot is %d, free %v %v %v", w.next, w.free(11), w.free(12), w.free(13))
	}
	w.landed(b)
	if _, _, ok := w.apply(); ok || !w.blocked(time.Now()) {
		t.Error("the record of slot 12 is applied before that of slot 11")
	}
	w.lost(a)
	checkWindow(t, &w)
	if w.free(11) || w.takeWaiting() != a {
		t.Error("the batch that lost slot 11 does not wait, or the slot counts as free")
	}
	send(&w, a, 15)
	w.landed(a)
	if hole := w.holeAbove(11); hole != 13 {
		t.Errorf("the hole below slot 15 is slot %d, want 13", hole)
	}
	filler := send(&w, newFiller(), 13)
	w.landed(filler)
	w.lost(send(&w, newFiller(), 14))
	checkWindow(t, &w)
	if len(w.open) != 2 || w.takeWaiting() != nil {
		t.Errorf("%d batches are open, want 2; fillers are neither open nor wait", len(w.open))
	}
	w.learn(11, entry{rec: []byte("another's")})
	w.learn(14, entry{rec: []byte("another's")})
	for want := journal.Slot(11); want <= 15; want++ {
		slot, e, ok := w.apply()
		if !ok || slot != want {
			t.Fatalf("applied slot %d, %v, want %d", slot, ok, want)
		}
		checkWindow(t, &w)
		switch e.ours {
		case b:
			if !w.resolve(b) || w.resolve(b) {
				t.Error("a batch has its outcome once")
			}
		case a:
			if !w.void(a) || w.takeWaiting() != a {
				t.Error("a void batch does not wait to be launched again")
			}
		}
	}
	if w.next != 16 || len(w.records)+len(w.taken)+len(w.flying) != 0 || len(w.open) != 1 {
		t.Errorf("in the end the window is %+v", w)
	}
}

// TestWindowReadBeforeTheAppendReturns: a batch has its outcome as soon as it is read. An
// Append that returns later changes nothing.
func TestWindowReadBeforeTheAppendReturns(t *testing.T) {
	for name, returns := range map[string]func(*window, *batch){"landed": (*window).landed, "lost": (*window).lost} {
		w := newWindow(0)
		b := send(&w, w.create(nil), 1)
		b.body = []byte("body")
		w.learn(1, entry{rec: []byte("as read")})
		if _, _, ok := w.apply(); !ok {
			t.Fatal("the record is not applied")
		}
		forged := record.Header{Number: 1, Kind: record.Batch}
		if w.find(&forged, []byte("another body")) != nil {
			t.Errorf("%s: a record with another body is taken for the batch", name)
		}
		h := record.Header{Number: 1, Kind: b.kind}
		if found := w.find(&h, []byte("body")); found != b || !w.resolve(found) {
			t.Errorf("%s: the record is not recognized", name)
		}
		returns(&w, b)
		checkWindow(t, &w)
		if w.takeWaiting() != nil || len(w.records)+len(w.taken)+len(w.flying)+len(w.open) != 0 {
			t.Errorf("%s: the window is %+v", name, w)
		}
	}
}

// TestWindowBlocked: an Append that takes long holds up what is above it.
func TestWindowBlocked(t *testing.T) {
	w, now := newWindow(0), time.Now()
	send(&w, w.create(nil), 1).sent = now
	if w.blocked(now.Add(overdue)) || !w.blocked(now.Add(overdue+1)) {
		t.Errorf("an Append is overdue after %v", overdue)
	}
}

// TestWindowControl: control records wait to be launched, in order, and have numbers.
func TestWindowControl(t *testing.T) {
	w := newWindow(0)
	w.control(record.Snapshot, []byte("1"))
	w.control(record.Floor, []byte("2"))
	for _, want := range []struct {
		kind record.Kind
		n    mvcc.BatchNumber
	}{{record.Snapshot, 1}, {record.Floor, 2}} {
		if b := w.takeWaiting(); b == nil || b.kind != want.kind || b.number != want.n {
			t.Errorf("the next batch is %+v, want %+v", b, want)
		}
	}
	if b := w.create(nil); b.number != 3 {
		t.Errorf("the batch after two control records has number %d", b.number)
	}
}

// TestFillersTakeNoNumber: a filler must never wait for the batches above its slot to be
// applied.
func TestFillersTakeNoNumber(t *testing.T) {
	l := &loop{Replica: &Replica{info: journal.Info{MaxRecord: 1 << 20}}, window: newWindow(0)}
	l.queue.init()
	send(&l.window, l.window.create(nil), 1)
	if _, err := l.queue.add(l.maxBatch(), time.Time{}, &mvcc.Request{}); err != nil {
		t.Fatal(err)
	}
	l.window.number = mvcc.BatchWindow
	for range 2 * mvcc.BatchWindow {
		if b := l.nextBatch(true); b == nil || b.number != 0 || !b.filler() {
			t.Fatalf("the batch that fills is %+v; want one without a number, and with nothing in it", b)
		}
	}
	if b := l.nextBatch(false); b != nil {
		t.Errorf("batch %d, by which number 1 would come too late", b.number)
	}
	l.window.resolve(l.window.open[1])
	if b := l.nextBatch(false); b == nil || b.number != mvcc.BatchWindow+1 || len(b.proposals) != 1 {
		t.Errorf("once number 1 is done the next batch is %+v", b)
	}
}
