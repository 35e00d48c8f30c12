package s3log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
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
	if l.cfg.ReadOnly {
		return errReadOnly
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if l.ends.trimmed(slot) {
		return journal.ErrTaken
	}
	if err := l.checkDepth(ctx, slot); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, err)
	}
	if err := l.place(ctx, slot, rec); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, err)
	}
	return nil
}

// place brings rec to slot, or finds out that another record is there.
func (l *Log) place(ctx context.Context, slot journal.Slot, rec []byte) error {
	name := slotName(slot)
	frame := encodeFrame(name, l.info.ID, rec)
	for n := 0; ; n++ {
		at, err := l.put(ctx, name, frame, ifAbsent)
		if err == nil {
			return l.confirm(ctx, slot, at)
		}
		if !passing(err) && statusOf(err) != http.StatusPreconditionFailed {
			return err
		}
		l.cfg.logger().Debug("append not confirmed", "slot", slot, "attempt", n+1, "err", err)
		if statusOf(err) != http.StatusConflict { // 409 stored nothing
			if settled, err := l.settleBy(ctx, slot, rec); settled {
				return err
			}
		}
		if pause(ctx, n) != nil {
			return unknown(fmt.Sprintf("gave up after %d attempts (%s)", n+1, err), ended(ctx))
		}
	}
}

// settleBy reads the slot after a PUT whose outcome it may tell: refused
// because the slot is held, or not known at all. settled says that err is
// Append's; otherwise the slot was empty, or would not say.
func (l *Log) settleBy(ctx context.Context, slot journal.Slot, rec []byte) (settled bool, err error) {
	got, at, err := l.readSlot(ctx, slot)
	switch {
	case errors.Is(err, errAbsent):
		// Either the PUT did not land, or not yet: then it meets the next
		// one, and one of the two, with the same bytes, is refused.
		err := l.vouch(ctx, slot, at, at)
		return errors.Is(err, journal.ErrTrimmed), l.trimmedMeanwhile(err)
	case errors.Is(err, journal.ErrCorrupt):
		return true, err
	case err != nil:
		return false, nil
	case bytes.Equal(got, rec):
		return true, l.confirm(ctx, slot, at)
	}
	if err := l.vouch(ctx, slot, at, at); err != nil {
		return true, l.trimmedMeanwhile(err)
	}
	l.ends.held(slot)
	l.ends.keep(slot, got)
	return true, journal.ErrTaken
}

// confirm acknowledges a record that the store held at slot at its time at,
// unless the slot may have been deleted before: there the condition of a PUT
// means nothing, and what it left nobody reads.
func (l *Log) confirm(ctx context.Context, slot journal.Slot, at time.Time) error {
	if err := l.vouch(ctx, slot, at, at); err != nil {
		return l.trimmedMeanwhile(err)
	}
	l.ends.held(slot)
	return nil
}

// trimmedMeanwhile is the error of an Append whose slot cannot be vouched for.
func (l *Log) trimmedMeanwhile(err error) error {
	return unknown("cannot tell whether the slot had been trimmed before", err)
}

// checkDepth returns ErrAhead if slot is too far after the tail. It asks the
// store only where this process does not know the tail well enough.
func (l *Log) checkDepth(ctx context.Context, slot journal.Slot) error {
	if slot <= depth || slot-depth <= l.ends.known() {
		return nil
	}
	if err := l.findTail(ctx, slot-1, 2*depth-1); err != nil {
		return err
	}
	if slot-depth <= l.ends.known() {
		return nil
	}
	if _, err := l.lookAtFloors(ctx); err != nil {
		return err
	}
	if slot-depth <= l.ends.known() {
		return nil
	}
	return fmt.Errorf("the tail is at %d: %w", l.ends.known(), journal.ErrAhead)
}

// outcomeUnknown is the error of an Append that may have happened.
type outcomeUnknown struct {
	why   string
	cause error
}

func unknown(why string, cause error) error { return &outcomeUnknown{why, cause} }

func (e *outcomeUnknown) Error() string { return "outcome unknown: " + e.why }

// Unwrap lets the caller see that its context ended, or the store's own error.
func (e *outcomeUnknown) Unwrap() error { return e.cause }
