package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// Dispute stores a mark beside the snapshot at slot that no replica should start from it.
// If that fails, a log message tells people to delete the snapshot.
func (a *Archive) Dispute(ctx context.Context, slot journal.Slot) {
	name := snapshot.DisputeOf(slot)
	if err := a.store.PutBlob(ctx, name, fmt.Appendf(nil, "writer %016x\n", uint64(a.writer))); err != nil && ctx.Err() == nil {
		a.log.Warn("a wrong snapshot could not be marked; delete it by hand", "slot", uint64(slot), "blob", name, "error", err)
	}
}

// DisputeFrom disputes the snapshot at slot, and all later ones, unless their hashes are
// known to be right.
func (a *Archive) DisputeFrom(ctx context.Context, slot journal.Slot, known map[journal.Slot][sha256.Size]byte) error {
	a.Dispute(ctx, slot)
	found, err := a.undisputed(ctx)
	if err != nil {
		return err
	}
	for _, newer := range found {
		if newer > slot {
			a.disputeUnless(ctx, newer, known[newer])
		}
	}
	return nil
}

// disputeUnless disputes the snapshot at slot unless its manifest names that hash or the
// snapshot was deleted.
func (a *Archive) disputeUnless(ctx context.Context, slot journal.Slot, hash [sha256.Size]byte) {
	m, err := a.access.Manifest(ctx, slot)
	if ctx.Err() == nil && !errors.Is(err, journal.ErrNoBlob) && m.Hash != hex.EncodeToString(hash[:]) {
		a.Dispute(ctx, slot)
	}
}
