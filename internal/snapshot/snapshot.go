// Package snapshot is how a state is stored beside its journal: the names of the
// blobs, the manifest, the parts, the hash, and the schedule by which replicas take
// snapshots. It never decides which of two snapshots is right, and never keeps a
// state of its own.
//
// docs/journal-format.md gives the bytes.
package snapshot

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Prefix starts the name of every blob that belongs to a snapshot.
const Prefix = "snapshot/"

// Keep is how many snapshots replicas keep; they delete older ones.
const Keep = 2

// ErrBad: a snapshot is incomplete, or its bytes are not what its manifest says.
var ErrBad = errors.New("snapshot is bad")

const (
	manifestName = "manifest.json"
	disputedName = "disputed"
)

// Folder is what the names of all blobs of the snapshot at slot start with.
func Folder(slot journal.Slot) string {
	return fmt.Sprintf("%s%020d/", Prefix, uint64(slot))
}

// DisputeOf is the name of the blob that tells replicas not to start from the
// snapshot at slot. What the blob holds is for people.
func DisputeOf(slot journal.Slot) string { return Folder(slot) + disputedName }

// Slots returns the slots of the snapshots whose manifests are among the names of
// blobs, newest first.
func Slots(names []string) []journal.Slot {
	var slots []journal.Slot
	for _, name := range names {
		if dir, file := path.Split(name); file == manifestName {
			n, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(dir, Prefix), "/"), 10, 64)
			if err == nil {
				slots = append(slots, journal.Slot(n))
			}
		}
	}
	slices.SortFunc(slots, func(a, b journal.Slot) int {
		if a > b {
			return -1
		}
		return 1
	})
	return slots
}

// Undisputed returns the slots of the snapshots among the names of blobs that no
// replica disputes, newest first.
func Undisputed(names []string) []journal.Slot {
	return slices.DeleteFunc(Slots(names), func(slot journal.Slot) bool {
		return slices.Contains(names, DisputeOf(slot))
	})
}
