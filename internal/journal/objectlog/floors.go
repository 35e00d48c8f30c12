package objectlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// A slot that was deleted looks like one that was never held: a GET finds
// nothing, and a conditional PUT succeeds. So an answer about a slot counts
// only together with what the floors say, and with the store's own time of
// both, which the Date header of every answer tells. No clock of this machine
// has a say: it may have stood still, or jumped, for as long as it likes.
//
// A floor is an object that is created once, and says from its creation on that
// the slots below it are given up. The rules, all by the store's clock:
//
//   - Trim deletes a slot only once a floor above it has the age spans.kept.
//   - If a look at the floors finds one of the age spans.readable, all slots
//     below it are gone: whatever is or will be in such a slot does not count.
//   - No other slot is deleted within spans.trust of that look, because
//     readable + trust < kept, by more than the clocks of a store differ among
//     its machines. So an answer about such a slot is true of the journal if it
//     came before the look, or at most spans.trust after it.
type spans struct {
	trust    time.Duration // for how long after a look at the floors answers count without another look
	readable time.Duration // for how long after they were given up slots are still served
	kept     time.Duration // how old a floor is when the slots below it are deleted
}

// realSpans leave two minutes for clocks that differ.
var realSpans = spans{trust: 3 * time.Minute, readable: 15 * time.Minute, kept: 20 * time.Minute}

// youngPages is how many pages of floors in a row a look reads without finding one
// of the age spans.kept. Owners never make so many: each Trim raises one floor, and
// deletes those below one of that age.
const youngPages = 8

// floors is what this process knows of the floors of its journal, and how it
// finds out more.
type floors struct {
	bucket *bucket.Bucket
	spans  spans // realSpans, others in tests
	tail   *tail // every slot below a floor counts as held

	mu sync.Mutex
	// Every slot below floor is gone, whatever the store holds there; those below
	// ripe may be deleted, so that this is where a look begins. Invariant:
	// 1 <= ripe <= floor, both only rise, and the tail is at floor-1 or above.
	floor, ripe journal.Slot
	// When the store was last asked for the floors, and when it last gave an
	// answer that was held against that look, both by its own clock. Zero: never.
	looked, answered time.Time
}

func newFloors(b *bucket.Bucket, t *tail) *floors {
	return &floors{bucket: b, spans: realSpans, tail: t, floor: 1, ripe: 1}
}

// trimmed says whether slot is known to be gone.
func (f *floors) trimmed(slot journal.Slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slot < f.floor
}

// deletable returns the highest slot known below which slots may be deleted.
func (f *floors) deletable() journal.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ripe
}

// raise notes that all below floor is gone, and that what is below ripe may be
// deleted.
func (f *floors) raise(floor, ripe journal.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ripe = max(f.ripe, ripe)
	f.floor = max(f.floor, floor, ripe)
	f.tail.raise(f.floor - 1)
}

// noteLook notes when the store looked at all floors, and returns the slot below
// which all is gone.
func (f *floors) noteLook(at time.Time) journal.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked, f.answered = at, at
	return f.floor
}

// covers says whether the last look at the floors covers answers of the store
// that it gave between oldest and newest. If the store does not say when it gave
// them, or its clock was set back, none is covered.
func (f *floors) covers(oldest, newest time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looked.IsZero() || oldest.IsZero() {
		return false
	}
	f.answered = newest
	return newest.Sub(f.looked) <= f.spans.trust && f.looked.Sub(oldest) <= f.spans.trust
}

// due says that the last look at the floors covers little more.
func (f *floors) due() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looked.IsZero() || f.answered.Sub(f.looked) > f.spans.trust/2
}

// vouch says whether answers of the store about slots from slot on, which it
// gave between oldest and newest, are true of the journal: nil if none of the
// slots can have been deleted before, or journal.ErrTrimmed. It looks at the
// floors if the last look does not cover the answers.
func (f *floors) vouch(ctx context.Context, slot journal.Slot, oldest, newest time.Time) error {
	if !f.covers(oldest, newest) {
		if _, err := f.look(ctx); err != nil {
			return err
		}
	}
	if f.trimmed(slot) {
		return journal.ErrTrimmed
	}
	return nil
}

// look asks the store for the floors, and returns the slot below which all is
// gone.
//
// It lists the floors from the highest ripe one that is known on: nobody deletes
// that floor before there is a higher ripe one, and those below it say nothing
// more. What one page of the listing says counts at once, so that the next look
// goes on where one failed. No list of floors is kept.
func (f *floors) look(ctx context.Context) (journal.Slot, error) {
	from := f.deletable()
	at, seen, err := f.list(ctx, from)
	if err == nil && !seen && from > 1 {
		// Somebody deleted that floor, or the store mistook where to begin.
		at, _, err = f.list(ctx, 1)
	}
	if err != nil {
		return 0, err
	}
	return f.noteLook(at), nil
}

// list notes what the floors at slot from and above give up. at is when the store
// looked; of several pages, when it looked at the first, because a floor that is
// raised meanwhile may be missed. seen says whether there is such a floor.
func (f *floors) list(ctx context.Context, from journal.Slot) (at time.Time, seen bool, err error) {
	young := 0
	err = eachNumbered(ctx, f.bucket, floorPrefix, from, func(page []numbered, now time.Time) (bool, error) {
		if at.IsZero() {
			at = now
		}
		seen = seen || len(page) > 0 && page[len(page)-1].slot >= from
		ripe := highest(page, now, f.spans.kept)
		f.raise(highest(page, now, f.spans.readable), ripe)
		if young++; ripe > 1 {
			young = 0
		}
		if young == youngPages {
			return false, fmt.Errorf("more than %d objects in %s/%s are newer than %v, and no owner makes so many; allow nobody but the journal's owner to write there, and wait until they are older",
				bucket.MaxPage*(youngPages-1), f.bucket.Names().Location, floorPrefix, f.spans.kept)
		}
		return true, nil
	})
	return at, seen, err
}

// highest returns the slot of the highest floor that has that age at now; 1 if
// there is none.
func highest(floors []numbered, now time.Time, age time.Duration) journal.Slot {
	slot := journal.Slot(1)
	for _, o := range floors {
		if now.Sub(o.modified) >= age {
			slot = max(slot, o.slot)
		}
	}
	return slot
}

// create creates a floor at slot, unless there is one.
func (f *floors) create(ctx context.Context, slot journal.Slot) error {
	return f.bucket.Again(ctx, func() error {
		_, err := f.bucket.Create(ctx, numberedName(floorPrefix, slot), nil)
		if errors.Is(err, bucket.ErrExists) {
			return nil // by another process, or by a PUT of ours that seemed to fail
		}
		return err
	})
}
