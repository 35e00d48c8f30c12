package replica

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// restored is the state that a replica starts from: that of a snapshot, or the empty one
// at slot 0.
type restored struct {
	state  *mvcc.State
	chains *record.Chains
	hash   [sha256.Size]byte // of the snapshot
}

// restore returns the state of the newest snapshot that is whole, or the empty one, and
// publishes it.
func (r *Replica) restore(ctx context.Context) (restored, error) {
	from := restored{state: mvcc.New(), chains: record.NewChains(r.info.ID)}
	// While snapshots are loaded, running replicas may replace them by newer ones.
	for tried := []journal.Slot(nil); from.state.Slot() == 0; {
		names, err := r.access.Snapshots(ctx)
		if err != nil {
			return from, err
		}
		found := snapshot.Undisputed(names)
		if slices.Equal(found, tried) {
			break
		}
		tried = found
		if from, err = r.restoreNewest(ctx, found, from); err != nil {
			return from, err
		}
	}
	if r.info.Exclusive {
		if err := snapshot.DeleteOrphans(ctx, r.cfg.Store); err != nil { // the next start tries again
			r.log.Debug("blobs of no snapshot stay", "error", err)
		}
	}
	r.hub.publish(from.state.View(), nil)
	return from, nil
}

// restoreNewest returns the state of the first of the snapshots that is whole, or none
// if there is no such one.
func (r *Replica) restoreNewest(ctx context.Context, slots []journal.Slot, none restored) (restored, error) {
	for _, slot := range slots {
		var loaded snapshot.Loaded
		_, err := r.access.Manifest(ctx, slot)
		if err == nil {
			// How large a snapshot may be goes by its slot, so the journal must have that.
			if err := r.access.Reaches(ctx, slot); err != nil {
				return none, err
			}
			loaded, err = r.access.Load(ctx, slot)
		}
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if err != nil {
			r.log.Warn("snapshot is not usable; trying another one", "slot", uint64(slot), "error", err)
			continue
		}
		r.log.Info("snapshot restored", "slot", uint64(slot), "revision", int64(loaded.State.Revision()))
		return restored{loaded.State, loaded.Chains, loaded.Hash}, nil
	}
	return none, nil
}
