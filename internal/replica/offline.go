package replica

import (
	"context"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// What is here is for those who look at a journal without being a replica of it.

// SnapshotPrefix starts the name of every blob that belongs to a snapshot.
const SnapshotPrefix = "snapshot/"

// KeepSnapshots is how many snapshots replicas keep; they drop older ones.
const KeepSnapshots = 2

// SnapshotBlobs returns the names of the blobs that the snapshot at slot
// consists of, its manifest among them. The error wraps ErrBadSnapshot, or is
// one of the store's.
func SnapshotBlobs(ctx context.Context, blobs journal.Blobs, slot journal.Slot) ([]string, error) {
	m, err := readManifest(ctx, blobs, slot)
	if err != nil {
		return nil, err
	}
	return append(append([]string{m.Chains}, m.Parts...), snapshotDir(slot)+manifestName), nil
}

// Due says whether replicas of this policy take a snapshot now that the
// records since the last one, or since slot 1, weigh so much, and the live keys
// and values are of so many bytes. See Weight.
func (p SnapshotPolicy) Due(weight, state int64) bool {
	if p.EveryBytes == 0 {
		p.EveryBytes = defaultEveryBytes
	}
	return weight >= max(p.EveryBytes, state)
}

// Weight is what a record of so many bytes adds to the weight that Due takes.
func (p SnapshotPolicy) Weight(record int) int64 {
	if p.RecordWeight == 0 {
		p.RecordWeight = defaultRecordWeight
	}
	return int64(record) + p.RecordWeight
}

// DropSnapshotsAbove deletes the snapshots of later slots than the journal has, and
// returns those slots. It is for a journal whose end is lost, and known to be.
func DropSnapshotsAbove(ctx context.Context, blobs journal.Blobs, tail journal.Slot) (dropped []journal.Slot, err error) {
	names, err := blobs.ListBlobs(ctx, SnapshotPrefix)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, slot := range SnapshotSlots(names) {
		if slot > tail {
			dropped = append(dropped, slot)
		}
	}
	manifestsFirst(names)
	for _, name := range names {
		if name < snapshotDir(tail+1) {
			continue
		}
		if err := blobs.DeleteBlob(ctx, name); err != nil {
			return dropped, fmt.Errorf("delete blob of a snapshot: %w", err)
		}
	}
	return dropped, nil
}
