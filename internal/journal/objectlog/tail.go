package objectlog

import (
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// keepBytes is the length of the longest record that is kept for a Read.
const keepBytes = 1 << 20

// tail is how far this process knows the slots of its journal to be held.
type tail struct {
	depth journal.Slot

	mu sync.Mutex
	// Every slot up to last is held or trimmed. It only rises.
	last journal.Slot
	// Slots that are held, and that an empty slot may come before. Invariant: each
	// is after last+1, and they are at most 4*depth.
	landed map[journal.Slot]struct{}
	// Records that Append met, for the Read that follows: at most depth.
	unread map[journal.Slot][]byte
}

func newTail(depth int) *tail {
	return &tail{
		depth:  journal.Slot(depth),
		landed: make(map[journal.Slot]struct{}),
		unread: make(map[journal.Slot][]byte),
	}
}

// known returns the slot up to which all are known to be held or trimmed.
func (t *tail) known() journal.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// raise notes that every slot up to last is held or trimmed.
func (t *tail) raise(last journal.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raiseLocked(last)
}

// raiseLocked is raise for a caller that holds mu.
func (t *tail) raiseLocked(last journal.Slot) {
	if last <= t.last {
		return
	}
	t.last = last
	for {
		if _, ok := t.landed[t.last+1]; !ok {
			break
		}
		t.last++
	}
	for slot := range t.landed {
		if slot <= t.last {
			delete(t.landed, slot)
		}
	}
}

// held notes that slot is held, whatever is before it.
func (t *tail) held(slot journal.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot == t.last+1 {
		t.raiseLocked(slot)
	} else if slot > t.last && len(t.landed) < 4*int(t.depth) {
		t.landed[slot] = struct{}{}
	}
}

// keep holds a record that Append met at slot until a Read asks for it, because a
// caller that lost a slot reads it next.
func (t *tail) keep(slot journal.Slot, rec []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(rec) > keepBytes {
		return
	}
	if len(t.unread) >= int(t.depth) {
		clear(t.unread)
	}
	t.unread[slot] = rec
}

// take returns the records from slot on that keep was given and that are not
// past the known tail, at most limit, and forgets them.
func (t *tail) take(slot journal.Slot, limit int) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var recs [][]byte
	for ; len(recs) < limit && slot <= t.last; slot++ {
		rec, ok := t.unread[slot]
		if !ok {
			break
		}
		delete(t.unread, slot)
		recs = append(recs, rec)
	}
	return recs
}
