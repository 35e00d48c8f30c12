package segment

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

const (
	// keepBuffer is how large a write buffer is kept for the next Append, in bytes.
	keepBuffer = 1 << 20
	// zeroAhead is how many zeros a write carries behind its frame once it goes
	// where nothing was written before. The next frames then go into blocks that
	// the file system knows as written, and syncing them changes no metadata: on
	// ext4 that halves the time of a sync of 4 KiB.
	zeroAhead = 256 << 10
)

// Tail is the end of the last segment, where the journal's one writer appends. It
// has one user at a time; others may read the segment meanwhile.
type Tail struct {
	Segment *Segment
	// Suspect says that a write or sync failed, so that what the system shows of
	// the segment may not be what is on the disk. Then nothing may be appended.
	Suspect bool

	buf []byte // of the last write, to be used again
	// All in bytes from the start of the file. Invariant: end <= alloc <= limit
	// after each Append.
	end     int64 // the next frame belongs here
	written int64 // up to here the file's blocks are written, if only with zeros; 0 if not known
	alloc   int64 // how long the file is
	limit   int64 // how long it may become
}

// NewTail is the end of a segment that is loaded for writing, which may become
// limit bytes long.
func NewTail(s *Segment, limit int64) *Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Tail{Segment: s, end: s.scan.end(), alloc: s.size, limit: max(limit, s.size)}
}

// Fits says whether there is room for a record of n bytes.
func (t *Tail) Fits(n int) bool { return t.end+FrameSize(n) <= t.limit }

// Append makes rec durable at slot, the one after the segment's last. After an
// error it may be there or not, and where Suspect is set, only reading the disk
// anew tells. A record that does not fit makes the segment longer than its limit.
func (t *Tail) Append(slot journal.Slot, rec []byte) error {
	size := FrameSize(len(rec))
	if err := t.allocate(size); err != nil {
		return err
	}
	s := t.Segment
	t.buf = appendFrame(t.buf[:0], s.seed, slot, rec)
	written := t.written
	if t.end+size > written {
		written = min(t.end+size+zeroAhead, t.alloc)
		t.buf = appendZeros(t.buf, int(written-t.end-size))
	}
	if _, err := s.file.WriteAt(t.buf, t.end); err != nil {
		// The part of the frame that was written is no frame; the next one overwrites it.
		// A full disk says nothing about the file; any other error may be the file's.
		t.Suspect = !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT)
		return err
	}
	if err := s.file.Sync(); err != nil {
		t.Suspect = true
		return err
	}
	t.written = written
	t.end += size
	s.grow(t.end)
	if cap(t.buf) > keepBuffer {
		t.buf = nil
	}
	return nil
}

// allocate makes the file long enough for size bytes more. If it fails, nothing has
// changed, and the next Append tries again.
func (t *Tail) allocate(size int64) (err error) {
	t.limit = max(t.limit, t.end+size) // one long record may fill a segment
	if t.end+size <= t.alloc {
		return nil
	}
	for _, alloc := range []int64{t.limit, t.end + size} { // a nearly full disk may hold this one yet
		if err = t.Segment.file.Allocate(alloc); err == nil {
			t.alloc = alloc
			return nil
		}
	}
	return err
}

// appendZeros appends n zeros to b.
func appendZeros(b []byte, n int) []byte {
	b = slices.Grow(b, n)
	b = b[:len(b)+n]
	clear(b[len(b)-n:])
	return b
}

// MarkEnd writes that the log ends here on purpose: next is the slot after its
// last. Later damage to its last record then does not pass for a write that a
// crash cut short.
func (t *Tail) MarkEnd(next journal.Slot) error {
	mark := appendFrameHeader(t.buf[:0], t.Segment.seed, frame{end: true, slot: next})
	if _, err := t.Segment.file.WriteAt(mark, t.end); err != nil {
		return err
	}
	return t.Segment.file.Sync()
}

// Torn says whether what follows the last frame is a write that a crash cut short,
// and at which offset it begins.
func (t *Tail) Torn() (offset int64, torn bool) { return t.end, t.Segment.scan.torn }

// Damage is the error about the end of the segment, whose file it names.
func (t *Tail) Damage(format string, args ...any) error {
	return t.Segment.damage(corrupt(t.end, format, args...))
}

// Rewrite cuts a torn end off, and writes the last records again: the system may
// take its pages for written when they are not. If it fails, Suspect is set.
func (t *Tail) Rewrite() error {
	err := t.rewrite()
	t.Suspect = err != nil
	return err
}

func (t *Tail) rewrite() error {
	s := t.Segment
	if s.scan.torn {
		if err := s.file.Truncate(t.end); err != nil {
			return err
		}
		t.alloc = t.end
	}
	offsets := s.scan.offsets
	start := int64(offsets[suspectFrom(offsets)])
	if tail := make([]byte, t.end-start); len(tail) > 0 {
		if _, err := s.file.ReadAt(tail, start); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(tail, start); err != nil {
			return err
		}
	}
	return s.file.Sync()
}

// suspectBlock is the largest unit in which a file system writes back: when
// writing a byte failed, no byte of its block is to be relied on.
const suspectBlock = 64 << 10

// suspectFrom returns the index of the first record that shares a block with
// the last one, or with what comes after it; 0 if there is no record.
func suspectFrom(offsets []uint32) int {
	n := len(offsets) - 1
	if n == 0 {
		return 0
	}
	block := offsets[n-1] / suspectBlock * suspectBlock
	i, _ := slices.BinarySearch(offsets, block)
	if i > 0 && offsets[i] > block {
		i-- // it ends in the block
	}
	return i
}

// Salvage reads from the disk anew what belongs into a segment that replaces the
// end of this one: the records that share a block with the last, and the one at next,
// whose write failed, if it is there. All others up to next must be there.
func (t *Tail) Salvage(fs disk.FS, id journal.ID, next journal.Slot) (first journal.Slot, recs [][]byte, err error) {
	old := t.Segment
	f, head, size, err := openFile(fs, old.Path, false, id, old.First)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close() // only read from
	offsets := old.scan.offsets
	i := suspectFrom(offsets)
	first = old.First + journal.Slot(i)
	w := &window{r: f, size: size}
	off := int64(offsets[i])
	for slot := first; slot <= next; slot++ {
		size, err := w.frameAt(off, head.seed(), slot)
		if err != nil {
			return 0, nil, err
		}
		if size == 0 {
			if slot < next {
				return 0, nil, old.damage(corrupt(off, "the frame of slot %d fails its checksum", slot))
			}
			break // the write that failed left no frame
		}
		b, err := w.at(off, size)
		if err != nil {
			return 0, nil, err
		}
		rec, _ := decodeRecord(b, head.seed(), slot) // frameAt has done so
		recs = append(recs, slices.Clone(rec))
		off += size
	}
	return first, recs, nil
}
