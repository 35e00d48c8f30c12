package s3log

import (
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// settleTime is how long a slot is held before Trim deletes it, by the
	// store's clock: longer than the 15 minutes after which S3 refuses the
	// signature of a PUT that was still in flight, plus trust and some more.
	settleTime = 20 * time.Minute
	// trustTime is how long this process may rely on having seen a slot free.
	trustTime = time.Minute
	// keepBytes is the length of the longest record that is kept for a Read.
	keepBytes = 1 << 20
)

// ends is what this process knows of where its journal starts and ends.
//
// A slot that was trimmed looks like one that was never held: a GET finds
// nothing, and a conditional PUT succeeds. So the store alone does not tell
// the two apart, and asking for the floor each time would double the requests.
// Instead: a slot that was seen free at some moment is not deleted within
// settleTime of it, because Trim leaves younger slots alone, nor is any slot
// after it. For trustTime after the sighting no floor has to be asked for.
type ends struct {
	depth journal.Slot

	mu     sync.Mutex
	floor  journal.Slot              // every slot below it is trimmed; at least 1
	tail   journal.Slot              // every slot up to it is held or trimmed
	landed map[journal.Slot]struct{} // held, after an empty slot for all we know
	unread map[journal.Slot][]byte   // records that Append met, for the Read that follows
	free   journal.Slot              // was seen empty, and never held before, ...
	freeAt time.Time                 // ... at this moment
}

func newEnds(depth int) *ends {
	return &ends{
		depth:  journal.Slot(depth),
		floor:  1,
		landed: make(map[journal.Slot]struct{}),
		unread: make(map[journal.Slot][]byte),
	}
}

// trimmed reports whether slot is known to be below the floor.
func (e *ends) trimmed(slot journal.Slot) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slot < e.floor
}

// raiseFloor notes a floor that was read, and returns the highest one known.
func (e *ends) raiseFloor(floor journal.Slot) journal.Slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	if floor > e.floor {
		e.floor = floor
		e.raiseTailLocked(floor - 1)
	}
	return e.floor
}

// apart is how long after a b was, by the clock that says more: the monotonic
// clock stands still while the machine sleeps, and the wall clock may be set.
func apart(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)).Abs())
}

// trusted reports whether slot, if it was just seen empty, cannot have been
// trimmed.
func (e *ends) trusted(slot journal.Slot) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slot >= e.free && !e.freeAt.IsZero() && apart(e.freeAt, time.Now()) < trustTime
}

// sawFree notes that slot was empty, and had never been held, at that moment
// or later. It keeps the lowest slot while that is recent enough, so that
// Appends that end out of order stay covered.
func (e *ends) sawFree(slot journal.Slot, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot <= e.free || apart(e.freeAt, at) > trustTime/2 {
		e.free, e.freeAt = slot, at
	}
}

// known returns the tail as far as it is known.
func (e *ends) known() journal.Slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tail
}

// raiseTail notes that every slot up to tail is held.
func (e *ends) raiseTail(tail journal.Slot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raiseTailLocked(tail)
}

func (e *ends) raiseTailLocked(tail journal.Slot) {
	if tail <= e.tail {
		return
	}
	e.tail = tail
	for {
		if _, ok := e.landed[e.tail+1]; !ok {
			break
		}
		e.tail++
	}
	for slot := range e.landed {
		if slot <= e.tail {
			delete(e.landed, slot)
		}
	}
}

// held notes that slot is held, whatever is before it.
func (e *ends) held(slot journal.Slot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot == e.tail+1 {
		e.raiseTailLocked(slot)
	} else if slot > e.tail && len(e.landed) < 4*int(e.depth) {
		e.landed[slot] = struct{}{}
	}
}

// keep holds a record that Append met at slot until a Read asks for it: who
// lost a slot reads it next.
func (e *ends) keep(slot journal.Slot, rec []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(rec) > keepBytes {
		return
	}
	if len(e.unread) >= int(e.depth) {
		clear(e.unread)
	}
	e.unread[slot] = rec
}

// take returns the records from slot on that keep was given and that are not
// past the tail, at most limit, and forgets them.
func (e *ends) take(slot journal.Slot, limit int) [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	var recs [][]byte
	for ; len(recs) < limit && slot <= e.tail; slot++ {
		rec, ok := e.unread[slot]
		if !ok {
			break
		}
		delete(e.unread, slot)
		recs = append(recs, rec)
	}
	return recs
}
