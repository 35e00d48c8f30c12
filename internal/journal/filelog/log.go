// Package filelog is a journal in a directory of one machine: a checksummed
// write-ahead log, one write and one fdatasync a record, held by one process
// at a time. It never starts a goroutine. README.md is its format.
package filelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// keepBuffer is how large a write buffer is kept for the next Append, in bytes.
const keepBuffer = 1 << 20

// MaxRecord is the length of the longest record, in bytes.
const MaxRecord = 16 << 20

// Options are what a Log may be told. The zero value is ready for use.
type Options struct {
	// SegmentSize is how long the files of the journal become, in bytes:
	// between 4 KiB and 1 GiB, 64 MiB if 0. It may differ from one Open to the
	// next.
	SegmentSize int64
	// AcceptLoss opens a log whose end is known to be missing, as it is, and
	// makes that its end: what the missing records said is lost for good.
	AcceptLoss bool
	// Logger hears of repairs. nil: no one.
	Logger *slog.Logger

	fs vfs // of the tests; else the operating system's
}

// Log is a journal in a directory. It implements journal.Store. Its system
// calls cannot be cut short: a ctx that ends while one hangs is heeded after.
type Log struct {
	fs   vfs
	dir  string
	opts Options
	log  *slog.Logger
	info journal.Info
	lock io.Closer

	// writer holds a token while somebody writes: an Append, Trim, Close or
	// repair. Its holder alone touches buf, rolling, suspect and the last segment's end.
	writer chan struct{}
	buf    []byte
	// rolling says that the next segment may be there already, so that the
	// current one must not get another record.
	rolling bool
	// suspect says that a write or fdatasync failed, so that what the system
	// shows of the last segment may not be what is on the disk.
	suspect bool

	// mu guards what readers see. Nobody holds it during I/O.
	mu     sync.RWMutex
	segs   []*segment   // by first slot; where two overlap, the later counts
	floor  journal.Slot // the first slot that is not trimmed
	next   journal.Slot // the slot after the tail
	closed bool

	blobSeq atomic.Uint64 // for the names of temporary files
}

var _ journal.Store = (*Log)(nil)

// Info implements journal.Journal.
func (l *Log) Info() journal.Info { return l.info }

// acquire takes the writer's token, which release gives back.
func (l *Log) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.writer <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.isClosed() {
		l.release()
		return journal.ErrClosed
	}
	return nil
}

func (l *Log) release() { <-l.writer }

func (l *Log) isClosed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.closed
}

// Append implements journal.Journal. The slot must be the one after the tail.
func (l *Log) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if len(rec) > MaxRecord {
		return fmt.Errorf("append slot %d: %d bytes, at most %d: %w", slot, len(rec), MaxRecord, journal.ErrTooLarge)
	}
	if err := l.acquire(ctx); err != nil {
		return fmt.Errorf("append slot %d: %w", slot, err)
	}
	defer l.release()
	if err := l.repair(); err != nil {
		return fmt.Errorf("append slot %d: %w", slot, err)
	}
	switch { // only the writer, which we are, changes next
	case slot < l.next:
		return fmt.Errorf("append slot %d: %w", slot, journal.ErrTaken)
	case slot > l.next:
		return fmt.Errorf("append slot %d: the tail is at %d: %w", slot, l.next-1, journal.ErrAhead)
	}
	if err := l.write(slot, rec); err != nil {
		return fmt.Errorf("append slot %d: %w", slot, explainWrite(l.dir, err))
	}
	return nil
}

// write makes rec durable at the end of the last segment, then visible.
func (l *Log) write(slot journal.Slot, rec []byte) error {
	size := frameSize(len(rec))
	seg, err := l.room(slot, size)
	if err != nil {
		return err
	}
	l.buf = appendFrame(l.buf[:0], seg.seed, slot, rec)
	written := seg.written
	if seg.end+size > written {
		written = min(seg.end+size+zeroAhead, seg.alloc)
		l.buf = appendZeros(l.buf, int(written-seg.end-size))
	}
	if _, err := seg.file.WriteAt(l.buf, seg.end); err != nil {
		// What was written of the frame is not one, and the next overwrites it.
		// A full disk is nobody's fault; anything else may be the file's.
		l.suspect = !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT)
		return err
	}
	if err := seg.file.Sync(); err != nil {
		l.suspect = true
		return err
	}
	seg.written = written
	seg.grow(seg.end + size)
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	l.mu.Lock()
	l.next = slot + 1
	l.mu.Unlock()
	return nil
}

// zeroAhead is how many zeros a write carries behind its frame once it goes
// where nothing was written before. The next frames then go into blocks that
// the file system knows as written, and syncing them changes no metadata: on
// ext4 that halves the time of a sync of 4 KiB.
const zeroAhead = 256 << 10

// appendZeros appends n zeros to b.
func appendZeros(b []byte, n int) []byte {
	b = slices.Grow(b, n)
	b = b[:len(b)+n]
	clear(b[len(b)-n:])
	return b
}

// room returns the last segment once it has room for size more bytes.
// Whatever fails here, nothing is stored, and the next Append tries again.
func (l *Log) room(slot journal.Slot, size int64) (seg *segment, err error) {
	seg = l.segs[len(l.segs)-1]
	if (l.rolling || seg.end+size > seg.limit) && seg.first < slot {
		l.rolling = true // from here on a crash may show the new segment
		next, err := create(l.fs, l.dir, l.info.ID, slot, nil)
		if err != nil {
			return nil, err
		}
		// Before anything goes into it: it must not be missed unseen.
		if err := writeMeta(l.fs, l.dir, meta{id: l.info.ID, floor: l.floor, last: slot, tail: slot - 1}); err != nil {
			return nil, errors.Join(err, next.close())
		}
		next.limit = l.opts.SegmentSize
		l.rolling = false
		l.install(next, slot)
		seg = next
	}
	seg.limit = max(seg.limit, seg.end+size) // one long record may fill a segment
	if seg.end+size <= seg.alloc {
		return seg, nil
	}
	for _, alloc := range []int64{seg.limit, seg.end + size} { // a nearly full disk may hold this one yet
		if err = seg.file.Allocate(alloc); err == nil {
			seg.alloc = alloc
			return seg, nil
		}
	}
	return nil, err
}

// install makes seg the last segment, in place of those that it covers whole.
// next is the slot after the tail, now that seg is there.
func (l *Log) install(seg *segment, next journal.Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs := slices.Clone(l.segs) // readers may hold the old slice
	for len(segs) > 0 && segs[len(segs)-1].first >= seg.first {
		_ = segs[len(segs)-1].close() // its content is in seg, durably
		segs = segs[:len(segs)-1]
	}
	l.segs, l.next = append(segs, seg), next
}

// Read implements journal.Journal.
func (l *Log) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	recs, err := l.read(ctx, from, limit)
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	return recs, nil
}

func (l *Log) read(ctx context.Context, from journal.Slot, limit int) (all [][]byte, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		seg, until, err := l.find(from)
		if seg == nil || err != nil || len(all) >= limit {
			return all, err
		}
		var recs [][]byte
		if err = seg.load(l.fs, l.info.ID, false, until); err == nil {
			recs, err = seg.read(from, until, limit-len(all))
		}
		if err != nil {
			// A Trim, Close or repair may have taken the file away meanwhile.
			if again, _, _ := l.find(from); again == seg {
				return nil, err
			}
			continue
		}
		all, from = append(all, recs...), from+journal.Slot(len(recs))
	}
}

// Peek implements journal.Journal. No record lies past the tail of a file.
func (l *Log) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	return single(l.Read(ctx, slot, 1))
}

// single is the one record of a Read with a limit of 1; nil for none.
func single(recs [][]byte, err error) ([]byte, error) {
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	return recs[0], nil
}

// find returns the segment that holds slot from, and the slot up to which it
// counts; none if from is past the tail.
func (l *Log) find(from journal.Slot) (seg *segment, until journal.Slot, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return nil, 0, journal.ErrClosed
	case from < l.floor:
		return nil, 0, fmt.Errorf("the floor is %d: %w", l.floor, journal.ErrTrimmed)
	case from >= l.next:
		return nil, 0, nil
	}
	seg, until = locate(l.segs, l.next, from)
	return seg, until, nil
}

// locate returns the segment of slot from among segs, and the slot before
// which it ends. next is the slot after the tail; from is below it.
func locate(segs []*segment, next, from journal.Slot) (*segment, journal.Slot) {
	i, exact := slices.BinarySearchFunc(segs, from, func(s *segment, slot journal.Slot) int {
		if s.first < slot {
			return -1
		}
		return int(min(s.first-slot, 1))
	})
	if !exact {
		i--
	}
	if i+1 < len(segs) {
		next = segs[i+1].first
	}
	return segs[i], next
}

// Trim implements journal.Trimmer. It deletes whole segments, and remembers
// the floor for the rest.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	if deleted, err = l.trim(ctx, before); err != nil {
		return deleted, fmt.Errorf("trim before slot %d: %w", before, err)
	}
	return deleted, nil
}

func (l *Log) trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	if err := l.acquire(ctx); err != nil {
		return 0, err
	}
	defer l.release()
	if err := l.repair(); err != nil {
		return 0, err
	}
	if before > l.next {
		return 0, fmt.Errorf("the tail is at %d", l.next-1)
	}
	if before > l.floor {
		if err := writeMeta(l.fs, l.dir, meta{id: l.info.ID, floor: before, last: l.segs[len(l.segs)-1].first, tail: l.next - 1}); err != nil {
			return 0, err
		}
		deleted = int(before - l.floor)
		l.mu.Lock()
		l.floor = before
		l.mu.Unlock()
	}
	return deleted, l.dropTrimmed()
}

// dropTrimmed deletes the segments that are wholly below the floor, the oldest
// first. The last segment stays, whatever the floor: it knows the tail. One
// that a crash brings back is deleted by the next Open.
func (l *Log) dropTrimmed() error {
	for len(l.segs) > 1 && l.segs[1].first <= l.floor {
		seg := l.segs[0]
		if err := l.fs.Remove(seg.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		l.mu.Lock()
		l.segs = l.segs[1:]
		l.mu.Unlock()
		_ = seg.close() // it was only read from
	}
	return nil
}

// Close implements journal.Journal. It waits for an Append under way.
func (l *Log) Close() error {
	l.writer <- struct{}{}
	defer l.release()
	if l.isClosed() {
		return nil
	}
	if !l.suspect && !l.rolling {
		l.markEnd()
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	var errs []error
	for _, seg := range l.segs {
		errs = append(errs, seg.close())
	}
	if err := errors.Join(append(errs, l.lock.Close())...); err != nil {
		return fmt.Errorf("close journal %s: %w", l.dir, err)
	}
	return nil
}

// markEnd writes that the log ends here on purpose, so that damage to its last
// record will not pass for a write that a crash cut short. Without the mark
// nothing else is lost.
func (l *Log) markEnd() {
	seg := l.segs[len(l.segs)-1]
	mark := appendFrameHeader(l.buf[:0], seg.seed, frame{end: true, slot: l.next})
	_, err := seg.file.WriteAt(mark, seg.end)
	if err == nil {
		err = seg.file.Sync()
	}
	if err == nil {
		err = l.noteEnd()
	}
	if err != nil {
		l.log.Warn("the journal was closed without a mark of its end", "dir", l.dir, "error", err)
	}
}
