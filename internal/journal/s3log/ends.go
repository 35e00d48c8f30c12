package s3log

import (
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// keepBytes is the length of the longest record that is kept for a Read.
const keepBytes = 1 << 20

// ends is what this process knows of where its journal starts and ends.
type ends struct {
	depth journal.Slot

	mu     sync.Mutex
	floor  journal.Slot              // every slot below it is gone, whatever the store holds there; at least 1
	ripe   journal.Slot              // the highest floor known below which slots may be deleted; 1 <= ripe <= floor
	look   time.Time                 // when the store was last asked for the floors, by its clock; zero: never
	latest time.Time                 // the last answer that was held against that, by its clock
	tail   journal.Slot              // every slot up to it is held or trimmed
	landed map[journal.Slot]struct{} // held, after an empty slot for all we know
	unread map[journal.Slot][]byte   // records that Append met, for the Read that follows
}

func newEnds(depth int) *ends {
	return &ends{
		depth:  journal.Slot(depth),
		floor:  1,
		ripe:   1,
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

// ripeFloor returns the highest floor known below which slots may be deleted.
func (e *ends) ripeFloor() journal.Slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ripe
}

// raise notes that all below floor is gone, and that what is below ripe may be
// deleted.
func (e *ends) raise(floor, ripe journal.Slot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if floor = max(floor, ripe); floor > e.floor {
		e.floor = floor
		e.raiseTailLocked(floor - 1)
	}
	e.ripe = max(e.ripe, ripe)
}

// looked notes when the store looked at all the floors, and returns the highest
// floor that is known.
func (e *ends) looked(at time.Time) journal.Slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look, e.latest = at, at
	return e.floor
}

// covers says whether the last look at the floors covers answers of the store
// that it gave between oldest and newest. Where the store does not say when, or
// its clock was set back, none is covered.
func (e *ends) covers(oldest, newest time.Time, trust time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.look.IsZero() || oldest.IsZero() {
		return false
	}
	e.latest = newest
	return newest.Sub(e.look) <= trust && e.look.Sub(oldest) <= trust
}

// due says that the last look at the floors covers little more.
func (e *ends) due(trust time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.look.IsZero() || e.latest.Sub(e.look) > trust/2
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
