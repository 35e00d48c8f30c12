package replica

import (
	"crypto/sha256"
	"errors"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// trimmer gives up the records that no kept snapshot needs, where the replica
// may (Config.Trim). It believes no snapshot but those whose hash it computed
// itself from the journal, and reads one back before it lets go of what made it.
type trimmer struct {
	checked []checked    // the last snapshots that the journal names and this replica agrees with, oldest first
	given   journal.Slot // the last of them that records were given up for
	working bool
}

type checked struct {
	slot journal.Slot
	hash [sha256.Size]byte
}

// agreed notes a snapshot that this replica computed alike.
func (t *trimmer) agreed(l *loop, slot journal.Slot, hash [sha256.Size]byte) {
	if !l.cfg.Trim {
		return
	}
	if n := len(t.checked); n > 0 && slot <= t.checked[n-1].slot {
		return // a mark whose outcome was unknown may stand in the journal twice
	}
	t.checked = append(t.checked, checked{slot, hash})
	if n := len(t.checked) - snapshot.Keep; n > 0 {
		t.checked = t.checked[n:]
	}
	t.giveUp(l)
}

// giveUp gives up what is before the oldest snapshot that is kept, once another
// replica came to the same hash, where there is one.
func (t *trimmer) giveUp(l *loop) {
	if len(t.checked) < snapshot.Keep || t.working || !l.snaps.trusted(l, t.checked[0].slot) || t.checked[0].slot <= t.given {
		return
	}
	t.working = true
	oldest := t.checked[0]
	t.given = oldest.slot
	l.group.Go(func() error {
		loaded, err := snapshot.Load(l.ctx, l.cfg.Store, l.info.ID, oldest.slot)
		if err == nil && loaded.Hash != oldest.hash {
			err = snapshot.ErrBad
		}
		return l.call(l.ctx, func(l *loop) {
			if err == nil {
				// Deleting begins once this is applied: in the journal, for all to see.
				l.control(record.Floor, record.FloorMark{Slot: oldest.slot + 1}.Append(nil))
				return
			}
			t.working = false
			if l.ctx.Err() == nil && !errors.Is(err, journal.ErrNoBlob) { // gone: there are newer ones
				l.log.Warn("snapshot cannot be read back; the records before it stay", "slot", uint64(oldest.slot), "error", err)
			}
		})
	})
}

// onFloor deletes what a floor of ours gives up. After a crash on the way, the
// next floor covers the rest.
func (t *trimmer) onFloor(l *loop, mark record.FloorMark) {
	l.group.Go(func() error {
		deleted, err := l.cfg.Store.Trim(l.ctx, mark.Slot)
		if deleted > 0 {
			l.log.Info("old records deleted", "count", deleted, "below", uint64(mark.Slot))
		}
		if err != nil && l.ctx.Err() == nil {
			l.log.Warn("old records were not deleted; that is tried again after the next snapshot", "below", uint64(mark.Slot), "error", err)
		}
		return l.call(l.ctx, func(*loop) { t.working = false })
	})
}
