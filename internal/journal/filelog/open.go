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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
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
		return nil, errors.Join(append(append([]error{err}, l.view.close()...), l.lock.Close())...)
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
		opts.fs = disk.OS{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		fs: opts.fs, dir: dir, opts: opts, log: opts.Logger,
		info:   journal.Info{MaxRecord: MaxRecord, Exclusive: true, Depth: 1},
		writer: make(chan struct{}, 1),
	}
	l.blobs.fs, l.blobs.dir = opts.fs, filepath.Join(dir, blobDir)
	return l, nil
}

// explain adds what to do about the errors of a directory.
func explain(dir string, err error) error {
	var held *disk.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("%w: one directory serves one process; stop that one, or choose another directory", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("this process may not write there (%w): give user %d the directory, or choose another", err, os.Getuid())
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: choose a directory", err)
	case errors.Is(err, journal.ErrCorrupt):
		return fmt.Errorf("%w; nothing was changed: put an undamaged copy of the file in its place; if there is none and only the end is missing, xb journal accept-loss makes the journal end where it does now; what is whole, xb journal dump --salvage prints", err)
	case errors.Is(err, journal.ErrOlderFormat), errors.Is(err, journal.ErrNewerFormat):
		return fmt.Errorf("%w; nothing was changed", err)
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

// recover brings the directory to where appends can go on. If something is wrong, it
// returns an error before it changes anything.
func (l *Log) recover() error {
	m, err := readMeta(l.fs, l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.create()
	}
	if err != nil {
		return err
	}
	l.info.ID = m.id
	l.view = view{floor: m.floor}
	if l.view.segs, err = listSegments(l.fs, l.dir, m.floor); err != nil {
		return err
	}
	last := l.view.last()
	if err := last.Load(l.fs, m.id, true, 0); err != nil {
		return err
	}
	l.view.next = last.Next()
	l.tail = segment.NewTail(last, l.opts.SegmentSize)
	if err := m.lost(l.dir, l.view); err != nil && !l.opts.AcceptLoss {
		return err
	}
	if l.view.next < m.floor {
		return l.tail.Damage("the log ends with slot %d, and everything before slot %d was trimmed", l.view.next-1, m.floor)
	}
	for _, dir := range []string{l.journalDir(), l.blobs.dir} {
		if err := l.fs.Writable(dir); err != nil {
			return err
		}
	}
	if err := l.makeDurable(); err != nil {
		return err
	}
	if err := l.writeMeta(l.view.floor, l.view.last()); err != nil {
		return err
	}
	l.removeTemporary()
	if err := l.dropTrimmed(); err != nil {
		l.log.Warn("trimmed segments could not be deleted; the next trim tries again", "dir", l.dir, "error", err)
	}
	return nil
}

// makeDurable makes durable all that can be read: the process before this one may
// have died between its write and its fdatasync, or after an fdatasync that failed.
func (l *Log) makeDurable() error {
	path := l.tail.Segment.Path
	if offset, torn := l.tail.Torn(); torn {
		l.log.Warn("cutting a record that a crash cut short", "file", path, "offset", offset, "slot", l.view.next)
	}
	if err := l.tail.Rewrite(); err != nil {
		l.log.Warn("the end of the journal cannot be made durable where it is", "file", path, "error", err)
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

// repair is called after a write or an fdatasync that failed. From then on the page
// cache may show what is not on the disk, and a second fdatasync would report
// success. So repair writes into a new segment the records that share a block with
// the failed one, and the failed record itself if it can be read. The old segment
// keeps the records before them; its bytes after those do not matter any more.
// Until a repair has worked, nothing can be appended, and Read shows the records that
// were acknowledged before. The caller holds the writer's token.
func (l *Log) repair() error {
	if !l.tail.Suspect {
		return nil
	}
	first, recs, err := l.tail.Salvage(l.fs, l.info.ID, l.view.next)
	if err != nil {
		return fmt.Errorf("repair after a failed write: %w", err)
	}
	seg, err := segment.Create(l.fs, l.journalDir(), l.info.ID, first, recs)
	if err != nil {
		return fmt.Errorf("repair after a failed write: %w", err)
	}
	if err := l.writeMeta(l.view.floor, seg); err != nil {
		return fmt.Errorf("repair after a failed write: %w", errors.Join(err, seg.Close()))
	}
	l.log.Warn("repaired the journal after a failed write", "file", seg.Path, "first", first, "next", seg.Next())
	l.install(seg)
	return nil
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
	if err := l.fs.MkdirAll(l.blobs.dir); err != nil {
		return err
	}
	rand.Read(l.info.ID[:]) // never fails: crypto/rand ends the process instead
	seg, err := segment.Create(l.fs, l.journalDir(), l.info.ID, 1, nil)
	if err != nil {
		return err
	}
	l.view.floor = 1
	l.install(seg)
	return l.writeMeta(1, seg)
}

// mustBeUnborn returns an error if there is more than a creation that was
// interrupted leaves behind: a first segment without records.
func (l *Log) mustBeUnborn() error {
	names, err := l.fs.ReadDir(l.journalDir())
	if err != nil {
		return err
	}
	for _, name := range names {
		first, ok := segment.ParseName(name)
		if !ok {
			continue
		}
		f, err := l.fs.Open(segment.Path(l.journalDir(), first), false)
		if err != nil {
			return err
		}
		size, err := f.Size()
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if first != 1 || size > segment.HeaderSize {
			return fmt.Errorf("%s is missing, and %s holds records: %w",
				metaName, filepath.Join(journalDir, name), journal.ErrCorrupt)
		}
	}
	return nil
}

// removeTemporary deletes files that a crash left half-made. They only take up space,
// so failing to delete one is no error.
func (l *Log) removeTemporary() {
	for _, dir := range []string{l.dir, l.journalDir(), l.blobs.dir} {
		names, _ := l.fs.ReadDir(dir)
		for _, name := range names {
			if strings.HasSuffix(name, disk.TmpSuffix) {
				_ = l.fs.Remove(filepath.Join(dir, name))
			}
		}
	}
}
