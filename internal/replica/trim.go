package replica

import (
	"crypto/sha256"
	"errors"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// trimmer decides which records may be given up, because no snapshot that is kept needs
// them, if the replica may delete records at all (Config.Trim). It believes only snapshots
// whose hash this replica computed from the journal. The steps are:
//
//	agreed, due ──▶ the snapshot is read back ──▶ a floor record is applied ──▶ records are deleted
//
// A crash on the way leaves records, which the next floor covers.
type trimmer struct {
	allowed bool
	// kept are the last snapshots that the journal names and this replica agrees
	// with. Invariant: ascending by slot; len <= snapshot.Keep.
	kept    []agreedSnapshot
	given   journal.Slot // the last snapshot for which records were given up; 0: none
	working bool         // between due and the end of the deletion
}

// agreedSnapshot is a snapshot of which this replica computed the same hash.
type agreedSnapshot struct {
	slot journal.Slot
	hash [sha256.Size]byte
}

// agreed notes a snapshot of which this replica computed the same hash, and says whether
// the snapshot is new here. A mark whose Append had an unknown outcome may be in the
// journal twice.
func (t *trimmer) agreed(slot journal.Slot, hash [sha256.Size]byte) bool {
	if n := len(t.kept); !t.allowed || n > 0 && slot <= t.kept[n-1].slot {
		return false
	}
	t.kept = append(t.kept, agreedSnapshot{slot, hash})
	if n := len(t.kept) - snapshot.Keep; n > 0 {
		t.kept = t.kept[n:]
	}
	return true
}

// oldest returns the oldest snapshot that is kept. ok is false if no records are to be
// given up for it. The caller must check that another replica agrees with the snapshot.
func (t *trimmer) oldest() (s agreedSnapshot, ok bool) {
	if len(t.kept) < snapshot.Keep || t.working || t.kept[0].slot <= t.given {
		return agreedSnapshot{}, false
	}
	return t.kept[0], true
}

// begin notes that the records before a snapshot are being given up.
func (t *trimmer) begin(s agreedSnapshot) { t.working, t.given = true, s.slot }

// end notes that the records were deleted, or could not be.
func (t *trimmer) end() { t.working = false }

// releaseRecords gives up the records before the oldest snapshot that is kept, if that
// snapshot is trusted and can be read back.
func (l *loop) releaseRecords() {
	oldest, ok := l.trim.oldest()
	if !ok || !l.agreement.Trusted(oldest.slot, l.alone()) {
		return
	}
	l.trim.begin(oldest)
	l.group.Go(func() error {
		err := l.archive.CanStartFrom(l.ctx, oldest.slot, oldest.hash)
		return l.call(l.ctx, func(l *loop) {
			if err == nil {
				// The records are deleted once the floor record is applied: then the
				// journal itself says that they are given up.
				l.window.control(record.Floor, record.FloorMark{Slot: oldest.slot + 1}.Append(nil))
				return
			}
			l.trim.end()
			if l.ctx.Err() == nil && !errors.Is(err, journal.ErrNoBlob) { // ErrNoBlob: deleted, since there are newer ones
				l.log.Warn("no server could start from this snapshot; the records before it are kept", "slot", uint64(oldest.slot), "error", err)
			}
		})
	})
}

// onFloor deletes the records below a slot, which a floor record of this writer gives up,
// and the snapshots older than the one for which they are given up.
func (l *loop) onFloor(below journal.Slot) {
	l.group.Go(func() error {
		deleted, err := l.cfg.Store.Trim(l.ctx, below)
		l.counts.Trim.Deleted.Add(uint64(deleted))
		if deleted > 0 {
			l.log.Info("old records deleted", "count", deleted, "below", uint64(below))
		}
		if err != nil && l.ctx.Err() == nil {
			l.counts.Trim.Failed.Add(1)
			l.log.Warn("old records were not deleted; the next snapshot tries again", "below", uint64(below), "error", err)
		}
		// Servers that store snapshots may lack the right to delete older ones.
		if err := snapshot.DeleteOld(l.ctx, l.cfg.Store, below-1); err != nil {
			l.log.Debug("old snapshots were not deleted", "error", err)
		}
		return l.call(l.ctx, func(l *loop) { l.trim.end() })
	})
}
