package replica

import (
	"context"

	"github.com/xbernetes/xbernetes/internal/replica/archive"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// restore returns the state to start from, and publishes it.
func (r *Replica) restore(ctx context.Context) (archive.Restored, error) {
	from, err := r.archive.Restore(ctx)
	if err != nil {
		return from, err
	}
	if r.info.Exclusive {
		if err := snapshot.DeleteOrphans(ctx, r.cfg.Store); err != nil { // the next start tries again
			r.log.Debug("blobs that belong to no snapshot were not deleted", "error", err)
		}
	}
	r.hub.publish(from.State.View(), nil)
	return from, nil
}
