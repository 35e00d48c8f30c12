package s3log

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
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
//   - Trim deletes a slot only when a floor above it is settle old.
//   - What a look at the floors finds below a floor that is readable old, is
//     gone: nothing that is or will be in such a slot counts.
//   - All other slots are not deleted within trust of that look, since
//     readable + trust < settle, by more than the clocks of a store differ among
//     its machines. An answer about such a slot that is not farther than trust
//     from the look, or that came before the look, is true of the journal.
type spans struct {
	trust    time.Duration // for how long after a look at the floors answers count without another look
	readable time.Duration // for how long after they were given up slots are still served
	settle   time.Duration // how old a floor is when the slots below it are deleted
}

// realSpans leave two minutes for clocks that differ.
var realSpans = spans{trust: 3 * time.Minute, readable: 15 * time.Minute, settle: 20 * time.Minute}

// youngPages is how many pages of floors in a row, 1,000 floors each, a look reads
// without finding one that is settle old. Owners never make so many: each Trim
// raises one floor, and deletes those below one that is settle old.
const youngPages = 8

// lookAtFloors looks at the floors, and returns the slot below which all is gone.
//
// It lists them from the highest ripe floor that is known on: nobody deletes that
// one before there is a higher ripe one, and those below it say nothing more. What
// one page of the listing says counts at once, so that a look that fails half way
// has not been in vain. No list of floors is kept.
func (l *Log) lookAtFloors(ctx context.Context) (journal.Slot, error) {
	from := l.ends.ripeFloor()
	at, seen, err := l.listFloors(ctx, from)
	if err == nil && !seen && from > 1 {
		// Somebody deleted that floor, or the store mistook where to begin.
		at, _, err = l.listFloors(ctx, 1)
	}
	if err != nil {
		return 0, err
	}
	return l.ends.looked(at), nil
}

// listFloors notes what the floors at slot from and above give up. at is when the
// store looked; of several pages, when it looked at the first: a floor that is
// raised meanwhile may be missed. seen says whether there is such a floor.
func (l *Log) listFloors(ctx context.Context, from journal.Slot) (at time.Time, seen bool, err error) {
	young := 0
	err = l.eachNumbered(ctx, floorPrefix, from, func(page []numbered, now time.Time) (bool, error) {
		if at.IsZero() {
			at = now
		}
		seen = seen || len(page) > 0 && page[len(page)-1].slot >= from
		ripe := raised(page, now, l.spans.settle)
		l.ends.raise(raised(page, now, l.spans.readable), ripe)
		if young++; ripe > 1 {
			young = 0
		}
		if young == youngPages {
			return false, fmt.Errorf("more than %d objects in %s/%s are newer than %v, and no owner makes so many; allow nobody but the journal's owner to write there, and wait until they are older",
				1000*(youngPages-1), l.cfg.location(), floorPrefix, l.spans.settle)
		}
		return true, nil
	})
	return at, seen, err
}

// raised is the highest of the floors that is at least so old at now; 1 if there
// is none.
func raised(floors []numbered, now time.Time, ago time.Duration) journal.Slot {
	highest := journal.Slot(1)
	for _, o := range floors {
		if now.Sub(o.modified) >= ago {
			highest = max(highest, o.slot)
		}
	}
	return highest
}

// vouch says whether answers of the store about slots from slot on, which it
// gave between oldest and newest, are true of the journal: nil if none of the
// slots can have been deleted before, or journal.ErrTrimmed. It looks at the
// floors if the last look does not cover the answers.
func (l *Log) vouch(ctx context.Context, slot journal.Slot, oldest, newest time.Time) error {
	if !l.ends.covers(oldest, newest, l.spans.trust) {
		if _, err := l.lookAtFloors(ctx); err != nil {
			return err
		}
	}
	if l.ends.trimmed(slot) {
		return journal.ErrTrimmed
	}
	return nil
}

func floorName(slot journal.Slot) string { return fmt.Sprintf("%s%020d", floorPrefix, uint64(slot)) }

// raiseFloor creates a floor at slot, unless there is one.
func (l *Log) raiseFloor(ctx context.Context, slot journal.Slot) error {
	name := floorName(slot)
	return l.again(ctx, func() error {
		_, err := l.put(ctx, name, nil, ifAbsent)
		if statusOf(err) == http.StatusPreconditionFailed {
			return nil // by another process, or by a PUT of ours that seemed to fail
		}
		return err
	})
}
