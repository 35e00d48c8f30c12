package objectlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Append implements journal.Journal. It ends with an unknown outcome only
// when ctx ends, the journal is closed, or the store answers something that
// repeating will not mend (a denial); until then it finds the outcome out by
// reading the slot, and sends the same bytes to the same slot again.
func (l *Log) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot == 0 {
		return errors.New("append to slot 0: the first slot is 1")
	}
	if len(rec) > maxRecord {
		return fmt.Errorf("append to slot %d: %d bytes: %w", slot, len(rec), journal.ErrTooLarge)
	}
	ctx, done, err := l.calls.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	if l.floors.trimmed(slot) {
		return journal.ErrTaken
	}
	if err := l.checkDepth(ctx, slot); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, err)
	}
	if err := l.store(ctx, slot, rec); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, err)
	}
	return nil
}

// store brings rec to slot, or finds out that another record is there.
func (l *Log) store(ctx context.Context, slot journal.Slot, rec []byte) error {
	name := slotName(slot)
	frame := l.frames.encode(name, rec)
	for n := 1; ; n++ {
		at, err := l.calls.bucket.Create(ctx, name, frame)
		if err == nil {
			return l.confirm(ctx, slot, at)
		}
		if !bucket.Passing(err) && !errors.Is(err, bucket.ErrExists) {
			return err
		}
		l.logger.Debug("append not confirmed", "slot", slot, "attempt", n, "err", err)
		if !errors.Is(err, bucket.ErrConflict) { // that one stored nothing
			if known, err := l.outcome(ctx, slot, rec); known {
				return err
			}
		}
		if bucket.Between.Pause(ctx, n) != nil {
			return unknown(fmt.Sprintf("gave up after %d attempts (%s)", n, err), bucket.Ended(ctx))
		}
	}
}

// outcome reads the slot after a PUT that was refused because the slot is held,
// or of which nothing is known. If known is set, err is what Append returns.
// Otherwise the slot is empty, or could not be read, and the PUT must be sent
// again.
func (l *Log) outcome(ctx context.Context, slot journal.Slot, rec []byte) (known bool, err error) {
	got, at, err := l.frames.record(ctx, slot)
	switch {
	case errors.Is(err, bucket.ErrAbsent):
		// The PUT did not land, or will land later: then it meets the next PUT,
		// and one of the two, which have the same bytes, is refused.
		err := l.floors.vouch(ctx, slot, at, at)
		return errors.Is(err, journal.ErrTrimmed), trimmedMeanwhile(err)
	case errors.Is(err, journal.ErrCorrupt):
		return true, err
	case err != nil:
		return false, nil
	case bytes.Equal(got, rec):
		return true, l.confirm(ctx, slot, at)
	}
	if err := l.floors.vouch(ctx, slot, at, at); err != nil {
		return true, trimmedMeanwhile(err)
	}
	l.tail.held(slot)
	l.tail.keep(slot, got)
	return true, journal.ErrTaken
}

// confirm acknowledges a record that the store held at slot at its time at,
// unless the slot may have been deleted before: then the condition of a PUT
// means nothing, and nobody reads what it left.
func (l *Log) confirm(ctx context.Context, slot journal.Slot, at time.Time) error {
	if err := l.floors.vouch(ctx, slot, at, at); err != nil {
		return trimmedMeanwhile(err)
	}
	l.tail.held(slot)
	return nil
}

// trimmedMeanwhile is the error of an Append if nothing vouches for its slot.
func trimmedMeanwhile(err error) error {
	return unknown("cannot tell whether the slot had been trimmed before", err)
}

// checkDepth returns ErrAhead if slot is too far after the tail. It asks the
// store only where this process does not know the tail well enough.
func (l *Log) checkDepth(ctx context.Context, slot journal.Slot) error {
	if slot <= depth || slot-depth <= l.tail.known() {
		return nil
	}
	if err := l.findTail(ctx, slot-1, 2*depth-1); err != nil {
		return err
	}
	if slot-depth <= l.tail.known() {
		return nil
	}
	if _, err := l.floors.look(ctx); err != nil {
		return err
	}
	if slot-depth <= l.tail.known() {
		return nil
	}
	return fmt.Errorf("the tail is at %d: %w", l.tail.known(), journal.ErrAhead)
}

// outcomeUnknown is the error of an Append that may have happened.
type outcomeUnknown struct {
	why   string
	cause error
}

// unknown returns the error of an Append that may have happened, and why that
// is not known.
func unknown(why string, cause error) error { return &outcomeUnknown{why, cause} }

func (e *outcomeUnknown) Error() string { return "outcome unknown: " + e.why }

// Unwrap lets the caller see that its context ended, or the store's own error.
func (e *outcomeUnknown) Unwrap() error { return e.cause }
