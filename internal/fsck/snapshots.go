package fsck

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// badSnapshot says whether err is the snapshot's fault, not that of the way to
// the store.
func badSnapshot(err error) bool {
	return errors.Is(err, snapshot.ErrBad) || errors.Is(err, journal.ErrNoBlob) || errors.Is(err, journal.ErrCorrupt)
}

// checkSnapshots loads every snapshot, one at a time, and looks for blobs that
// belong to none. Running servers drop old snapshots once there are newer
// ones: then it starts over.
func (c *checker) checkSnapshots(ctx context.Context) error {
	for again := 4; ; again-- {
		names, err := c.store.ListBlobs(ctx, "")
		if err != nil {
			return err
		}
		found, dropped, err := c.loadSnapshots(ctx, names)
		if err != nil {
			return err
		}
		if dropped && again > 0 {
			continue
		}
		c.report.Snapshots = found.snapshots
		for _, f := range found.findings {
			c.report.add(f)
		}
		c.reportOrphans(names, found.blobs)
		return nil
	}
}

// loaded is what the snapshots turned out to be.
type loaded struct {
	snapshots []Snapshot // oldest first
	findings  []Finding
	blobs     map[string]bool // that belong to one
}

// loadSnapshots loads the snapshots among the names of blobs. dropped says
// that one is not there any more.
func (c *checker) loadSnapshots(ctx context.Context, names []string) (out loaded, dropped bool, err error) {
	out = loaded{snapshots: []Snapshot{}, blobs: map[string]bool{}}
	slots := snapshot.Slots(names)
	slices.Reverse(slots)
	for _, slot := range slots {
		manifest, err := snapshot.ReadManifest(ctx, c.store, slot)
		var content snapshot.Loaded
		if err == nil {
			for _, name := range manifest.Blobs() {
				out.blobs[name] = true
			}
			content, err = snapshot.Load(ctx, c.store, c.id, slot)
		}
		sn := Snapshot{Slot: slot, Hash: content.Hash, Status: Unverified}
		switch {
		case slices.Contains(names, snapshot.DisputeOf(slot)):
			out.blobs[snapshot.DisputeOf(slot)] = true
			sn.Status = Disputed
			out.findings = append(out.findings, Finding{Severity: Warning, Code: SnapshotDisputed, Slot: slot,
				Message: "a server that made this state anew from the journal says that the snapshot is wrong"})
		case err == nil:
			sn.Revision = content.State.Revision()
		case !badSnapshot(err):
			return out, dropped, err
		case c.dropped(ctx, slot, err):
			dropped = true
			continue
		default:
			sn.Status = Unusable
			out.findings = append(out.findings, Finding{Severity: Warning, Code: SnapshotUnusable, Slot: slot, Message: err.Error()})
		}
		out.snapshots = append(out.snapshots, sn)
		c.progress(PhaseSnapshots, slot)
	}
	return out, dropped, nil
}

// dropped says whether running servers have deleted the snapshot meanwhile, or
// are about to: its parts go before its manifest does.
func (c *checker) dropped(ctx context.Context, slot journal.Slot, cause error) bool {
	names, err := c.store.ListBlobs(ctx, snapshot.Prefix)
	if err != nil {
		return false
	}
	i := slices.Index(snapshot.Slots(names), slot) // how many are newer
	return i < 0 || i >= snapshot.Keep && errors.Is(cause, journal.ErrNoBlob)
}

// reportOrphans reports blobs that belong to no snapshot, once a folder.
func (c *checker) reportOrphans(names []string, whole map[string]bool) {
	bad := map[string]bool{} // what belongs to a snapshot that cannot be read is not known
	newest := ""
	for _, sn := range c.report.Snapshots {
		newest = snapshot.Folder(sn.Slot)
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
		case !strings.HasPrefix(dir, snapshot.Prefix):
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
		case sn.Status == Unusable, sn.Status == Disputed:
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
