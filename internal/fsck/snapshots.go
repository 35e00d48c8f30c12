package fsck

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// badSnapshot says whether err is the snapshot's fault, not that of the way to
// the store.
func badSnapshot(err error) bool {
	return errors.Is(err, snapshot.ErrBad) || errors.Is(err, journal.ErrNoBlob) || errors.Is(err, journal.ErrCorrupt)
}

// checkSnapshots loads every snapshot, one at a time, and looks for blobs that belong to
// none. Running servers delete old snapshots once there are newer ones: if that happens
// meanwhile, it starts over.
func (c *checker) checkSnapshots(ctx context.Context) error {
	for again := 4; ; again-- {
		names, whole, err := c.src.blobs(ctx)
		if err != nil {
			return err
		}
		found, err := c.src.loadSnapshots(ctx, names)
		if err != nil {
			return err
		}
		if found.dropped && again > 0 {
			continue
		}
		c.report.Snapshots = found.snapshots
		if !whole {
			c.report.add(Finding{Severity: Warning, Code: UnlistedBlobs,
				Message: fmt.Sprintf("there are about %d blobs or more, which is what one listing returns; older ones may not have been looked at", journal.MaxListed)})
		}
		if names, err = c.src.settle(ctx, found, names); err != nil {
			return err
		}
		for _, f := range append(found.findings, found.orphans(names)...) {
			c.report.add(f)
		}
		return nil
	}
}

// going is how long a running server may take from one blob of a snapshot that it deletes to
// the next.
const going = 500 * time.Millisecond

// settle returns names without the blobs that running servers are deleting. A server deletes a
// snapshot's manifest first, so that its other blobs seem to belong to none for a while.
func (s *source) settle(ctx context.Context, found loaded, names []string) ([]string, error) {
	for again := 4; again > 0; again-- {
		left := len(found.leftOver(names))
		if left == 0 {
			break
		}
		select {
		case <-time.After(going):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		now, _, err := s.blobs(ctx)
		if err != nil {
			return nil, err
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(now, name) })
		if len(found.leftOver(names)) == left {
			break
		}
	}
	return names, nil
}

// blobs returns the names of the blobs of snapshots and of others, and whether these are
// certainly all. The others do not keep snapshots out.
func (s *source) blobs(ctx context.Context) (names []string, whole bool, err error) {
	names, err = s.store.ListBlobs(ctx, snapshot.Prefix)
	if err != nil {
		return nil, false, err
	}
	all, err := s.store.ListBlobs(ctx, "")
	if err != nil {
		return nil, false, err
	}
	// A listing that was cut may lack a whole folder besides.
	whole = len(all) <= journal.MaxListed-snapshot.MaxBlobs
	if n := len(names); n > 0 && !slices.Contains(all, names[n-1]) { // servers delete the oldest only
		whole = false
	}
	for _, name := range all {
		if !strings.HasPrefix(name, snapshot.Prefix) {
			names = append(names, name)
		}
	}
	return names, whole, nil
}

// loaded is what the snapshots turned out to be.
type loaded struct {
	snapshots []Snapshot // oldest first
	findings  []Finding
	blobs     map[string]bool // that belong to one
	dropped   bool            // one was deleted while it was loaded
}

// loadSnapshots loads the snapshots among the names of blobs.
func (s *source) loadSnapshots(ctx context.Context, names []string) (loaded, error) {
	out := loaded{snapshots: []Snapshot{}, blobs: map[string]bool{}}
	slots := snapshot.Slots(names)
	slices.Reverse(slots)
	for _, slot := range slots {
		sn, err := s.loadSnapshot(ctx, slot, out.blobs)
		switch {
		case slices.Contains(names, snapshot.DisputeOf(slot)):
			out.blobs[snapshot.DisputeOf(slot)] = true
			sn.Status, sn.Revision = Disputed, 0
			out.findings = append(out.findings, Finding{Severity: Warning, Code: SnapshotDisputed, Slot: slot,
				Message: "a server that made this state anew from the journal says that the snapshot is wrong"})
		case err == nil:
		case !badSnapshot(err):
			return out, err
		case s.deleted(ctx, slot, err):
			out.dropped = true
			continue
		default:
			sn.Status = Unusable
			out.findings = append(out.findings, Finding{Severity: Warning, Code: SnapshotUnusable, Slot: slot, Message: err.Error()})
		}
		out.snapshots = append(out.snapshots, sn)
		s.progress(PhaseSnapshots, slot)
	}
	return out, nil
}

// loadSnapshot loads one snapshot, and notes which blobs belong to it.
func (s *source) loadSnapshot(ctx context.Context, slot journal.Slot, blobs map[string]bool) (Snapshot, error) {
	sn := Snapshot{Slot: slot, Status: Unverified}
	manifest, err := snapshot.ReadManifest(ctx, s.store, slot)
	if err != nil {
		return sn, err
	}
	for _, name := range manifest.Blobs() {
		blobs[name] = true
	}
	cur, hash, err := s.load(ctx, slot)
	if err != nil {
		return sn, err
	}
	sn.Hash, sn.Revision = hash, cur.state.Revision()
	return sn, nil
}

// deleted says whether running servers have deleted a snapshot that could not be loaded
// because of cause, or are deleting it: it is older than those that they keep, and has
// lost a blob.
func (s *source) deleted(ctx context.Context, slot journal.Slot, cause error) bool {
	names, err := s.store.ListBlobs(ctx, snapshot.Prefix)
	if err != nil {
		return false
	}
	i := slices.Index(snapshot.Slots(names), slot) // how many are newer
	return i < 0 || i >= snapshot.Keep && errors.Is(cause, journal.ErrNoBlob)
}

// orphans returns a finding for each folder with blobs that belong to no snapshot.
func (l *loaded) orphans(names []string) (findings []Finding) {
	folders := map[string]int{}
	for _, name := range l.leftOver(names) {
		dir, _ := path.Split(name)
		folders[dir]++
	}
	newest := ""
	if n := len(l.snapshots); n > 0 {
		newest = snapshot.Folder(l.snapshots[n-1].Slot)
	}
	for dir, n := range sorted(folders) {
		f := Finding{Severity: Warning, Code: OrphanBlobs, Blob: dir, Message: fmt.Sprintf("%s of no snapshot", count(n, "blob"))}
		switch {
		case !strings.HasPrefix(dir, snapshot.Prefix):
			f.Severity, f.Code, f.Message = Info, UnknownBlobs, fmt.Sprintf("%s that xb did not write", count(n, "blob"))
		case dir > newest:
			f.Severity, f.Message = Info, f.Message+" yet: one is being written, or a server ended while it wrote one"
		}
		findings = append(findings, f)
	}
	return findings
}

// leftOver returns the names of blobs that belong to no snapshot.
func (l *loaded) leftOver(names []string) (left []string) {
	unreadable := map[string]bool{} // folders of snapshots whose manifest cannot be trusted
	for _, sn := range l.snapshots {
		unreadable[snapshot.Folder(sn.Slot)] = sn.Status == Unusable
	}
	for _, name := range names {
		if dir, _ := path.Split(name); !l.blobs[name] && !unreadable[dir] && dir != announce.Prefix {
			left = append(left, name)
		}
	}
	return left
}

// compareSnapshots holds the snapshots against the states that were computed at their
// slots.
func (c *checker) compareSnapshots() {
	for i := range c.report.Snapshots {
		sn := &c.report.Snapshots[i]
		h, computed := c.history.hashes[sn.Slot]
		switch {
		case sn.Status == Unusable, sn.Status == Disputed:
		case c.ended && sn.Slot > c.report.LastSlot:
			sn.Status = PastTail
			c.report.add(Finding{Severity: Error, Code: SnapshotPastTail, Slot: sn.Slot,
				Message: fmt.Sprintf("a snapshot holds the state at this slot, but the journal ends with slot %d", c.report.LastSlot)})
		case !computed || !c.history.covers(sn.Slot): // no slots were applied up to it
		case h == sn.Hash:
			sn.Status = Verified
		default:
			sn.Status = Differs
			c.report.add(Finding{Severity: Error, Code: SnapshotDiffers, Slot: sn.Slot,
				Message: fmt.Sprintf("the snapshot's state has the hash %s; applying the journal gives %s", sn.Hash.short(), h.short())})
		}
	}
}
