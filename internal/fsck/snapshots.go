package fsck

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// badSnapshot says whether err is the snapshot's fault, not that of the way to
// the store.
func badSnapshot(err error) bool {
	return errors.Is(err, replica.ErrBadSnapshot) || errors.Is(err, journal.ErrNoBlob) || errors.Is(err, journal.ErrCorrupt)
}

// checkSnapshots loads every snapshot, one at a time, and looks for blobs that
// belong to none.
func (c *checker) checkSnapshots(ctx context.Context) error {
	names, err := c.store.ListBlobs(ctx, "")
	if err != nil {
		return err
	}
	whole := map[string]bool{} // blobs of snapshots with a manifest
	slots := replica.SnapshotSlots(names)
	slices.Reverse(slots)
	for _, slot := range slots {
		blobs, err := replica.SnapshotBlobs(ctx, c.store, slot)
		for _, name := range blobs {
			whole[name] = true
		}
		var loaded replica.Loaded
		if err == nil {
			loaded, err = replica.LoadSnapshot(ctx, c.store, c.id, slot)
		}
		if err != nil && !badSnapshot(err) {
			return err
		}
		if err != nil && c.dropped(ctx, slot) {
			continue
		}
		sn := Snapshot{Slot: slot, Hash: loaded.Hash, Status: Unverified}
		if err != nil {
			sn.Status = Unusable
			c.report.add(Finding{Severity: Warning, Code: SnapshotUnusable, Slot: slot, Message: err.Error()})
		}
		if err == nil {
			sn.Revision = loaded.State.Revision()
		}
		c.report.Snapshots = append(c.report.Snapshots, sn)
		c.progress(PhaseSnapshots, slot)
	}
	c.reportOrphans(names, whole)
	return nil
}

// dropped says whether a running server has deleted the snapshot meanwhile, as
// servers do once there are newer ones.
func (c *checker) dropped(ctx context.Context, slot journal.Slot) bool {
	names, err := c.store.ListBlobs(ctx, replica.SnapshotPrefix)
	return err == nil && !slices.Contains(replica.SnapshotSlots(names), slot)
}

// reportOrphans reports blobs that belong to no snapshot, once a folder.
func (c *checker) reportOrphans(names []string, whole map[string]bool) {
	bad := map[string]bool{} // what belongs to a snapshot that cannot be read is not known
	newest := ""
	for _, sn := range c.report.Snapshots {
		newest = fmt.Sprintf("%s%020d/", replica.SnapshotPrefix, uint64(sn.Slot))
		bad[newest] = sn.Status == Unusable
	}
	folders := map[string]int{}
	for _, name := range names {
		if dir, _ := path.Split(name); !whole[name] && !bad[dir] {
			folders[dir]++
		}
	}
	for dir, n := range sorted(folders) {
		f := Finding{Severity: Warning, Code: OrphanBlobs, Blob: dir, Message: fmt.Sprintf("%s of no snapshot", count(n, "blob"))}
		switch {
		case !strings.HasPrefix(dir, replica.SnapshotPrefix):
			f.Severity, f.Code, f.Message = Info, UnknownBlobs, fmt.Sprintf("%s that xb did not write", count(n, "blob"))
		case dir > newest:
			f.Severity, f.Message = Info, f.Message+" yet: one is being written, or a server ended while it wrote one"
		}
		c.report.add(f)
	}
}

// compareSnapshots holds the snapshots against the state computed at their slots.
func (c *checker) compareSnapshots() {
	for i := range c.report.Snapshots {
		sn := &c.report.Snapshots[i]
		h, computed := c.hashes[sn.Slot]
		switch {
		case sn.Status == Unusable:
		case c.ended && sn.Slot > c.report.LastSlot:
			sn.Status = PastTail
			c.report.add(Finding{Severity: Error, Code: SnapshotPastTail, Slot: sn.Slot,
				Message: fmt.Sprintf("a snapshot holds the state at this slot, but the journal ends with slot %d", c.report.LastSlot)})
		case !computed || c.spanOf(sn.Slot) == nil: // nothing was applied up to it
		case h == sn.Hash:
			sn.Status = Verified
		default:
			sn.Status = Differs
			c.report.add(Finding{Severity: Error, Code: SnapshotDiffers, Slot: sn.Slot,
				Message: fmt.Sprintf("the snapshot's state has the hash %s; applying the journal gives %s", sn.Hash.short(), h.short())})
		}
	}
}
