package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// DeleteOld deletes all snapshots but the newest Keep ones, and none that is as new
// as sure: nothing newer is known to be right.
func DeleteOld(ctx context.Context, blobs journal.Blobs, sure journal.Slot) error {
	names, err := blobs.ListBlobs(ctx, Prefix)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	slots := Undisputed(names)
	if len(slots) <= Keep {
		return nil
	}
	oldest := Folder(min(slots[Keep-1], sure))
	return deleteBlobs(ctx, blobs, slices.DeleteFunc(names, func(name string) bool { return name >= oldest }))
}

// DeleteAbove deletes the snapshots of later slots than the journal has, and returns
// those slots. It is for a journal that is known to have lost its end.
func DeleteAbove(ctx context.Context, blobs journal.Blobs, tail journal.Slot) (deleted []journal.Slot, err error) {
	names, err := blobs.ListBlobs(ctx, Prefix)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, slot := range Slots(names) {
		if slot > tail {
			deleted = append(deleted, slot)
		}
	}
	return deleted, deleteBlobs(ctx, blobs, slices.DeleteFunc(names, func(name string) bool { return name < Folder(tail+1) }))
}

// DeleteOrphans deletes the blobs of snapshots that have no manifest: a server that
// ended while it stored a snapshot left them. Call it only if nobody else can be
// storing a snapshot.
func DeleteOrphans(ctx context.Context, blobs journal.Blobs) error {
	names, err := blobs.ListBlobs(ctx, Prefix)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	whole := map[string]bool{}
	for _, slot := range Slots(names) {
		whole[Folder(slot)] = true
	}
	var failed []error
	for _, name := range names {
		if dir, _ := path.Split(name); !whole[dir] {
			if err := blobs.DeleteBlob(ctx, name); err != nil {
				failed = append(failed, fmt.Errorf("delete blob %s: %w", name, err))
			}
		}
	}
	return errors.Join(failed...)
}

// deleteBlobs deletes the manifests first: a snapshot without a manifest does not
// count as one, so that no reader meets one of which parts are gone.
func deleteBlobs(ctx context.Context, blobs journal.Blobs, names []string) error {
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(path.Base(b), path.Base(a)) // hashes sort below "manifest.json"
	})
	for _, name := range names {
		if err := blobs.DeleteBlob(ctx, name); err != nil {
			return fmt.Errorf("delete blob %s of a snapshot: %w", name, err)
		}
	}
	return nil
}
