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

// floors is what a look at the floors found.
type floors struct {
	all []numbered
	at  time.Time // when the store looked
}

// raised is the highest floor that is at least so old; 1 if there is none.
func (f *floors) raised(ago time.Duration) journal.Slot {
	highest := journal.Slot(1)
	for _, o := range f.all {
		if f.at.Sub(o.modified) >= ago {
			highest = max(highest, o.slot)
		}
	}
	return highest
}

// listFloors looks at the floors. Of several pages the first look counts: a
// floor that is raised meanwhile may be missed.
func (l *Log) listFloors(ctx context.Context) (f floors, err error) {
	err = l.eachNumbered(ctx, floorPrefix, func(page []numbered, at time.Time) (bool, error) {
		if f.at.IsZero() {
			f.at = at
		}
		f.all = append(f.all, page...)
		return true, nil
	})
	return f, err
}

// lookAtFloors looks at the floors, and returns the slot below which all is gone.
func (l *Log) lookAtFloors(ctx context.Context) (journal.Slot, error) {
	f, err := l.listFloors(ctx)
	if err != nil {
		return 0, err
	}
	return l.ends.looked(f.raised(l.spans.readable), f.at), nil
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

// raiseFloor creates a floor at slot, unless there is one.
func (l *Log) raiseFloor(ctx context.Context, slot journal.Slot) error {
	name := fmt.Sprintf("%s%020d", floorPrefix, uint64(slot))
	return l.again(ctx, func() error {
		_, err := l.put(ctx, name, nil, ifAbsent)
		if statusOf(err) == http.StatusPreconditionFailed {
			return nil // by another process, or by a PUT of ours that seemed to fail
		}
		return err
	})
}
