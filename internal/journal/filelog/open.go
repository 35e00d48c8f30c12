package filelog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// The names in the directory.
const (
	metaName   = "meta.json"
	lockName   = "lock"
	journalDir = "journal"
	blobDir    = "blobs"
)

func (l *Log) journalDir() string { return filepath.Join(l.dir, journalDir) }

// Open opens the journal in dir, and makes one if dir is missing or empty of
// one. It takes the lock until Close, and repairs what a crash left behind; if
// it returns an error, nothing of the journal has changed.
func Open(ctx context.Context, dir string, opts Options) (*Log, error) {
	l, err := openDir(ctx, dir, opts)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", dir, explain(dir, err))
	}
	return l, nil
}

func openDir(ctx context.Context, dir string, opts Options) (*Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := newLog(dir, opts)
	if err != nil {
		return nil, err
	}
	// Before the lock, so that even its file is left as it is.
	if _, err := readMeta(l.fs, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := l.fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	if err := l.fs.Writable(dir); err != nil {
		return nil, err
	}
	if l.lock, err = l.fs.Lock(filepath.Join(dir, lockName)); err != nil {
		return nil, err
	}
	if err := l.recover(); err != nil {
		for _, seg := range l.segs {
			err = errors.Join(err, seg.close())
		}
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

func newLog(dir string, opts Options) (*Log, error) {
	if opts.SegmentSize == 0 {
		opts.SegmentSize = 64 << 20
	}
	if opts.SegmentSize < 4<<10 || opts.SegmentSize > 1<<30 {
		return nil, fmt.Errorf("segment size %d is not between 4 KiB and 1 GiB", opts.SegmentSize)
	}
	if opts.fs == nil {
		opts.fs = osFS{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Log{
		fs: opts.fs, dir: dir, opts: opts, log: opts.Logger,
		info:   journal.Info{MaxRecord: MaxRecord, Exclusive: true, Depth: 1},
		writer: make(chan struct{}, 1),
	}, nil
}

// explain adds what to do about the errors of a directory.
func explain(dir string, err error) error {
	var held *heldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("%w: one directory serves one process; stop that one, or choose another directory", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("this process may not write there (%w): give user %d the directory, or choose another", err, os.Getuid())
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: choose a directory", err)
	case errors.Is(err, journal.ErrCorrupt):
		return fmt.Errorf("%w; nothing was changed: put an undamaged copy of the file in its place; if there is none and only the end is missing, xb journal accept-loss makes the journal end where it does now; what is whole, xb journal dump --salvage prints", err)
	case errors.Is(err, journal.ErrOlderFormat):
		return fmt.Errorf("%w: use the xb that wrote it; nothing was changed", err)
	case errors.Is(err, journal.ErrNewerFormat):
		return fmt.Errorf("%w: use the xb that wrote it, or a newer one; nothing was changed", err)
	}
	return err
}

// explainWrite adds what to do about a disk that takes no more.
func explainWrite(dir string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: there is no room left in %s; make some, and writes go on", err, dir)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: %s has become read-only; the disk may be failing", err, dir)
	}
	return err
}

// recover brings the directory to where appends can go on. What it finds wrong
// it finds before it changes anything.
func (l *Log) recover() error {
	m, err := readMeta(l.fs, l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.create()
	}
	if err != nil {
		return err
	}
	l.info.ID, l.floor = m.id, m.floor
	if l.segs, err = listSegments(l.fs, l.dir, m.floor); err != nil {
		return err
	}
	last := l.segs[len(l.segs)-1]
	if err := last.load(l.fs, m.id, true, 0); err != nil {
		return err
	}
	l.next = last.first + journal.Slot(len(last.scan.offsets)-1)
	if err := m.lost(l.dir, l.segs, l.next); err != nil && !l.opts.AcceptLoss {
		return err
	}
	if l.next < m.floor {
		return last.damage(corrupt(last.end, "the log ends with slot %d, and everything before slot %d was trimmed", l.next-1, m.floor))
	}
	last.limit = max(l.opts.SegmentSize, last.alloc)
	for _, dir := range []string{l.journalDir(), l.blobDir()} {
		if err := l.fs.Writable(dir); err != nil {
			return err
		}
	}
	if err := l.settle(last); err != nil {
		return err
	}
	if err := l.noteEnd(); err != nil {
		return err
	}
	l.removeTemporary()
	if err := l.dropTrimmed(); err != nil {
		l.log.Warn("trimmed segments could not be deleted; the next trim tries again", "dir", l.dir, "error", err)
	}
	return nil
}

// settle makes durable whatever there is to read: the process before us may
// have died between its write and its fdatasync, or after one that failed.
func (l *Log) settle(last *segment) error {
	if last.scan.torn {
		l.log.Warn("cutting a record that a crash cut short", "file", last.path, "offset", last.end, "slot", l.next)
	}
	if err := last.rewriteTail(); err != nil {
		l.log.Warn("the end of the journal cannot be made durable where it is", "file", last.path, "error", err)
		l.suspect = true
	}
	if err := l.repair(); err != nil {
		return err
	}
	for _, dir := range []string{l.journalDir(), l.dir} { // the same goes for the names of files
		if err := l.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// rewriteTail cuts a torn tail, and writes the last record again: the system
// may take its pages for written when they are not.
func (s *segment) rewriteTail() error {
	if s.scan.torn {
		if err := s.file.Truncate(s.end); err != nil {
			return err
		}
		s.alloc = s.end
	}
	offsets := s.scan.offsets
	start := int64(offsets[suspectFrom(offsets)])
	if tail := make([]byte, s.end-start); len(tail) > 0 {
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

// repair is what follows a write or an fdatasync that failed. From then on the
// page cache may show what is not on the disk, and a second fdatasync would
// report success. So the records that share a block with the failed one, and
// that one itself if it can be read, go into a new segment. The old one keeps
// what is before, and whatever it shows behind that is of no account. Until
// that has worked, nothing can be appended; Read shows what was acknowledged
// before. The caller holds the writer's token.
func (l *Log) repair() error {
	if !l.suspect {
		return nil
	}
	old := l.segs[len(l.segs)-1]
	first, recs, err := l.salvage(old)
	if err != nil {
		return fmt.Errorf("repair after a failed write: %w", err)
	}
	seg, err := create(l.fs, l.dir, l.info.ID, first, recs)
	if err != nil {
		return fmt.Errorf("repair after a failed write: %w", err)
	}
	seg.limit = max(l.opts.SegmentSize, seg.end)
	next := first + journal.Slot(len(recs))
	if err := writeMeta(l.fs, l.dir, meta{id: l.info.ID, floor: l.floor, last: first, tail: next - 1}); err != nil {
		return fmt.Errorf("repair after a failed write: %w", errors.Join(err, seg.close()))
	}
	l.log.Warn("repaired the journal after a failed write", "file", seg.path, "first", first, "next", next)
	l.install(seg, next)
	l.suspect = false
	return nil
}

// salvage reads what belongs into the segment that replaces the end of old.
func (l *Log) salvage(old *segment) (first journal.Slot, recs [][]byte, err error) {
	f, head, size, err := openSegment(l.fs, old.path, false, l.info.ID, old.first)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close() // only read from
	offsets := old.scan.offsets
	i := suspectFrom(offsets)
	first = old.first + journal.Slot(i)
	w := &window{r: f, size: size}
	off := int64(offsets[i])
	for slot := first; slot <= l.next; slot++ {
		size, err := w.frameAt(off, head.seed(), slot)
		if err != nil {
			return 0, nil, err
		}
		if size == 0 {
			if slot < l.next {
				return 0, nil, old.damage(corrupt(off, "the frame of slot %d fails its checksum", slot))
			}
			break // the failed record is not there
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

// noteEnd writes down where the log ends now, so that its end cannot go unseen.
// The caller holds the writer's token.
func (l *Log) noteEnd() error {
	return writeMeta(l.fs, l.dir, meta{id: l.info.ID, floor: l.floor, last: l.segs[len(l.segs)-1].first, tail: l.next - 1})
}

// create makes a journal in a directory that has none. meta.json comes last:
// with it the journal exists, without it nothing was ever stored.
func (l *Log) create() error {
	if err := l.fs.MkdirAll(l.journalDir()); err != nil {
		return err
	}
	if err := l.mustBeUnborn(); err != nil {
		return err
	}
	if err := l.fs.MkdirAll(l.blobDir()); err != nil {
		return err
	}
	rand.Read(l.info.ID[:]) // never fails: crypto/rand ends the process instead
	seg, err := create(l.fs, l.dir, l.info.ID, 1, nil)
	if err != nil {
		return err
	}
	seg.limit = l.opts.SegmentSize
	l.segs, l.floor, l.next = []*segment{seg}, 1, 1
	return l.noteEnd()
}

// mustBeUnborn returns an error if there is more than a creation that was
// interrupted leaves behind: a first segment without records.
func (l *Log) mustBeUnborn() error {
	names, err := l.fs.ReadDir(l.journalDir())
	if err != nil {
		return err
	}
	for _, name := range names {
		first, ok := parseSegment(name)
		if !ok {
			continue
		}
		f, err := l.fs.Open(segmentPath(l.dir, first), false)
		if err != nil {
			return err
		}
		size, err := f.Size()
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if first != 1 || size > headerSize {
			return fmt.Errorf("%s is missing, and %s holds records: %w",
				metaName, filepath.Join(journalDir, name), journal.ErrCorrupt)
		}
	}
	return nil
}

// listSegments returns the segments in dir, in order, at least one.
func listSegments(fs vfs, dir string, floor journal.Slot) ([]*segment, error) {
	names, err := fs.ReadDir(filepath.Join(dir, journalDir))
	if err != nil {
		return nil, err
	}
	var segs []*segment
	for _, name := range names {
		if first, ok := parseSegment(name); ok {
			segs = append(segs, &segment{first: first, path: segmentPath(dir, first)})
		}
	}
	if len(segs) == 0 || segs[0].first > floor {
		return nil, fmt.Errorf("the segment that holds slot %d is missing from %s: %w",
			floor, filepath.Join(dir, journalDir), journal.ErrCorrupt)
	}
	return segs, nil
}

// removeTemporary deletes what a crash kept from becoming a file. It takes up
// space and does no other harm, so failing is no error.
func (l *Log) removeTemporary() {
	for _, dir := range []string{l.dir, l.journalDir(), filepath.Join(l.dir, blobDir)} {
		names, _ := l.fs.ReadDir(dir)
		for _, name := range names {
			if strings.HasSuffix(name, tmpSuffix) {
				_ = l.fs.Remove(filepath.Join(dir, name))
			}
		}
	}
}
