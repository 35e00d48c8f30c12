package filelog

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// view is what readers see of a journal: which segments hold its slots, and which
// slots those are. It is a value: to change it is to make another one.
type view struct {
	// By first slot, without gaps, at least one. Where two overlap, the later
	// counts.
	segs []*segment.Segment
	// Invariant: 1 <= floor <= next, segs[0] starts at or before the floor, and the
	// last segment holds all slots from its first up to next-1.
	floor journal.Slot // the first slot that is not trimmed
	next  journal.Slot // the slot after the tail
}

// last is the segment that the writer appends to.
func (v view) last() *segment.Segment { return v.segs[len(v.segs)-1] }

// find returns the segment that holds slot from, and the slot before which it
// counts; none if from is past the tail. Below the floor it is ErrTrimmed.
func (v view) find(from journal.Slot) (seg *segment.Segment, until journal.Slot, err error) {
	switch {
	case from < v.floor:
		return nil, 0, fmt.Errorf("the floor is %d: %w", v.floor, journal.ErrTrimmed)
	case from >= v.next:
		return nil, 0, nil
	}
	i, exact := slices.BinarySearchFunc(v.segs, from, func(s *segment.Segment, slot journal.Slot) int {
		if s.First < slot {
			return -1
		}
		return int(min(s.First-slot, 1))
	})
	if !exact {
		i--
	}
	until = v.next
	if i+1 < len(v.segs) {
		until = v.segs[i+1].First
	}
	return v.segs[i], until, nil
}

// close closes all segments.
func (v view) close() (errs []error) {
	for _, seg := range v.segs {
		errs = append(errs, seg.Close())
	}
	return errs
}

// listSegments returns the segments in dir, in order, at least one, none of them
// loaded.
func listSegments(fs disk.FS, dir string, floor journal.Slot) ([]*segment.Segment, error) {
	folder := filepath.Join(dir, journalDir)
	names, err := fs.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var segs []*segment.Segment
	for _, name := range names {
		if first, ok := segment.ParseName(name); ok {
			segs = append(segs, segment.At(folder, first))
		}
	}
	if len(segs) == 0 || segs[0].First > floor {
		return nil, fmt.Errorf("the segment that holds slot %d is missing from %s: %w", floor, folder, journal.ErrCorrupt)
	}
	return segs, nil
}
