package objectlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

const (
	// deletesAtOnce is how many objects Trim deletes at once.
	deletesAtOnce = 16
	// floorsATrim is how many old floors one Trim deletes at most. It is more than
	// an owner raises; if somebody else made more, later Trims delete the rest.
	floorsATrim = bucket.MaxPage
)

// Trim implements journal.Trimmer. It creates a floor, and deletes the slots below
// the floors of the age spans.kept, oldest first. Slots that are given up only by
// newer floors, this call's among them, are deleted by a later call.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	ctx, done, err := l.calls.beginWrite(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if before <= 1 {
		return 0, nil
	}
	if err := l.floors.create(ctx, before); err != nil {
		return 0, fmt.Errorf("trim below slot %d: raise the floor: %w", before, err)
	}
	if _, err := l.floors.look(ctx); err != nil {
		return 0, fmt.Errorf("trim below slot %d: look at the floors: %w", before, err)
	}
	ripe := l.floors.deletable()
	deleted, err = l.deleteBelow(ctx, slotPrefix, min(before, ripe), math.MaxInt)
	if err != nil {
		return deleted, fmt.Errorf("trim below slot %d: delete slots: %w", before, err)
	}
	if _, err := l.deleteBelow(ctx, floorPrefix, ripe, floorsATrim); err != nil {
		return deleted, fmt.Errorf("trim below slot %d: delete old floors: %w", before, err)
	}
	return deleted, nil
}

// deleteBelow deletes the objects that are named after slots below before, at most
// so many, and returns how many it deleted.
func (l *Log) deleteBelow(ctx context.Context, prefix string, before journal.Slot, most int) (deleted int, err error) {
	err = eachNumbered(ctx, l.calls.bucket, prefix, 1, func(page []numbered, _ time.Time) (more bool, err error) {
		n := 0
		for n < len(page) && page[n].slot < before && deleted+n < most {
			n++
		}
		for names := page[:n]; len(names) > 0; {
			now := min(len(names), deletesAtOnce)
			errs := make([]error, now)
			each(now, func(i int) {
				errs[i] = l.calls.bucket.Again(ctx, func() error { return l.calls.bucket.Remove(ctx, names[i].name) })
			})
			for _, err := range errs {
				if err == nil {
					deleted++
				}
			}
			if err := firstOf(errs); err != nil {
				return false, l.explainDelete(err)
			}
			names = names[now:]
		}
		return n == len(page), nil
	})
	return deleted, err
}

// explainDelete says who may delete, if the store refused to.
func (l *Log) explainDelete(err error) error {
	if errors.Is(err, bucket.ErrDenied) {
		names := l.calls.bucket.Names()
		return bucket.Explained(err, fmt.Sprintf("these credentials may not delete from %s/%s; only the journal's owner trims it, and needs %s", names.Location, slotPrefix, names.Delete))
	}
	return err
}
