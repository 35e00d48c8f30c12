package replica

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
)

// A writer anchors its records at the last slot that it has applied. So a
// record whose anchor is an empty slot, or one past it, proves that the slot
// was held, and that its record is lost: a slot to put back, never one to fill.
// An empty slot below records that are all anchored before it was never held,
// or held by nobody who wrote since: a writer ended there before its record
// landed, and others fill it.

const (
	// peekers is how many slots are looked at together.
	peekers = 32
	// nearby is how many slots are looked at above one that turns up empty while
	// the journal is followed: whoever took the slot went on close above it. At
	// the start as many are looked at as the journal may have.
	nearby = 8
)

// neverHeld makes sure that the empty slot after all that this replica knows was
// not held, by so many slots above it. The error wraps ErrLost, or says why the
// journal cannot be read.
func (l *loop) neverHeld(slot journal.Slot, reach int) error {
	witnesses := make([]journal.Slot, min(reach, l.info.Depth)) // each a slot whose record proves it, or 0
	var group errgroup.Group
	group.SetLimit(peekers)
	for i := range witnesses {
		group.Go(func() error {
			above := slot + 1 + journal.Slot(i)
			rec, err := l.peek(above)
			if err == nil && record.SawHeld(l.info.ID, rec, slot) {
				witnesses[i] = above
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, above := range witnesses {
		if above == 0 {
			continue
		}
		// Whoever wrote the witness read the slot before: if it was filled just
		// now, it is there to be read.
		if rec, err := l.peek(slot); err != nil || rec != nil {
			return err
		}
		return fmt.Errorf("%w: slot %d is empty, and the writer of slot %d had read a record in it; stop all servers of this journal and put the slot back from a copy, or an older version of the bucket; xb fsck says how to go on without it", ErrLost, slot, above)
	}
	return nil
}

// peek is a Peek, repeated until the journal answers. What cannot be decoded
// proves nothing.
func (l *loop) peek(slot journal.Slot) (rec []byte, err error) {
	wait := newPatience(l.Replica, "read")
	defer wait.over()
	for {
		err := wait.try(l.ctx, func(ctx context.Context) (err error) {
			rec, err = l.cfg.Store.Peek(ctx, slot)
			return err
		})
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			return nil, nil
		case err == nil, errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrClosed):
			return rec, err
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return nil, err
		}
	}
}
