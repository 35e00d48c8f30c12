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

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// MaxRecord is the length of the longest record, in bytes.
const MaxRecord = 16 << 20

// Options are options of Open. The zero value is ready for use.
type Options struct {
	// SegmentSize is how long the files of the journal become, in bytes:
	// between 4 KiB and 1 GiB, 64 MiB if 0. It may differ from one Open to the
	// next.
	SegmentSize int64
	// AcceptLoss opens a log whose end is known to be missing, as it is, and
	// makes that its end: the missing records are lost for good.
	AcceptLoss bool
	// Logger is told of repairs. nil: nothing is logged.
	Logger *slog.Logger

	fs disk.FS // in tests; else the operating system's
}

// Log is a journal in a directory. It implements journal.Store. Its system
// calls cannot be cut short: if ctx ends while one hangs, the call returns after it.
type Log struct {
	blobs
	fs   disk.FS
	dir  string
	opts Options
	log  *slog.Logger
	info journal.Info
	lock io.Closer

	// writer holds a token while an Append, Trim, Close or repair writes. Only the
	// holder of the token touches tail and rolling, and changes view.
	writer chan struct{}
	tail   *segment.Tail // Invariant: of view.last()
	// rolling says that the next segment may be there already, so that the
	// current one must not get another record.
	rolling bool

	mu   sync.RWMutex // guards view; nobody holds it during I/O
	view view
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
	if l.closed.Load() {
		l.release()
		return journal.ErrClosed
	}
	return nil
}

// release gives the writer's token back.
func (l *Log) release() { <-l.writer }

// see returns the view as it stands.
func (l *Log) see() view {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.view
}

// show makes v the view.
func (l *Log) show(v view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view = v
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
	switch next := l.view.next; { // only the writer, which we are, changes the view
	case slot < next:
		return fmt.Errorf("append slot %d: %w", slot, journal.ErrTaken)
	case slot > next:
		return fmt.Errorf("append slot %d: the tail is at %d: %w", slot, next-1, journal.ErrAhead)
	}
	if err := l.write(slot, rec); err != nil {
		return fmt.Errorf("append slot %d: %w", slot, explainWrite(l.dir, err))
	}
	return nil
}

// write makes rec durable at the end of the last segment, then visible.
func (l *Log) write(slot journal.Slot, rec []byte) error {
	if (l.rolling || !l.tail.Fits(len(rec))) && l.tail.Segment.First < slot {
		if err := l.roll(slot); err != nil {
			return err
		}
	}
	if err := l.tail.Append(slot, rec); err != nil {
		return err
	}
	l.mu.Lock()
	l.view.next = slot + 1
	l.mu.Unlock()
	return nil
}

// roll makes the segment that starts with slot, and goes on in it. If that fails,
// nothing is stored, and the next Append tries again.
func (l *Log) roll(slot journal.Slot) error {
	l.rolling = true // from here on a crash may show the new segment
	next, err := segment.Create(l.fs, l.journalDir(), l.info.ID, slot, nil)
	if err != nil {
		return err
	}
	// Before anything goes into it: if it is missing later, that must be noticed.
	if err := l.writeMeta(l.view.floor, next); err != nil {
		return errors.Join(err, next.Close())
	}
	l.rolling = false
	l.install(next)
	return nil
}

// install makes seg the last segment, in place of those that it covers whole, and
// goes on behind it.
func (l *Log) install(seg *segment.Segment) {
	v := l.view
	v.segs = slices.Clone(v.segs) // readers may hold the old slice
	for len(v.segs) > 0 && v.last().First >= seg.First {
		_ = v.last().Close() // its content is in seg, durably
		v.segs = v.segs[:len(v.segs)-1]
	}
	v.segs, v.next = append(v.segs, seg), seg.Next()
	l.tail = segment.NewTail(seg, l.opts.SegmentSize)
	l.show(v)
}

// writeMeta writes down the floor, and where the log ends if last is its last
// segment, so that the loss of its end will be noticed.
func (l *Log) writeMeta(floor journal.Slot, last *segment.Segment) error {
	return writeMeta(l.fs, l.dir, meta{id: l.info.ID, floor: floor, last: last.First, tail: last.Next() - 1})
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
		if err := l.begin(ctx); err != nil {
			return nil, err
		}
		seg, until, err := l.see().find(from)
		if seg == nil || err != nil || len(all) >= limit {
			return all, err
		}
		var recs [][]byte
		if err = seg.Load(l.fs, l.info.ID, false, until); err == nil {
			recs, err = seg.Read(from, until, limit-len(all))
		}
		if err != nil {
			// A Trim, Close or repair may have taken the file away meanwhile.
			if again, _, _ := l.see().find(from); again == seg && !l.closed.Load() {
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
	v := l.view
	if before > v.next {
		return 0, fmt.Errorf("the tail is at %d", v.next-1)
	}
	if before > v.floor {
		if err := l.writeMeta(before, v.last()); err != nil {
			return 0, err
		}
		deleted = int(before - v.floor)
		v.floor = before
		l.show(v)
	}
	return deleted, l.dropTrimmed()
}

// dropTrimmed deletes the segments that are wholly below the floor, the oldest
// first. The last segment stays, whatever the floor, because it knows the tail. If
// a crash brings one back, the next Open deletes it.
func (l *Log) dropTrimmed() error {
	for v := l.view; len(v.segs) > 1 && v.segs[1].First <= v.floor; {
		seg := v.segs[0]
		if err := l.fs.Remove(seg.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		v.segs = v.segs[1:]
		l.show(v)
		_ = seg.Close() // it was only read from
	}
	return nil
}

// Close implements journal.Journal. It waits for an Append under way.
func (l *Log) Close() error {
	l.writer <- struct{}{}
	defer l.release()
	if l.closed.Load() {
		return nil
	}
	if !l.tail.Suspect && !l.rolling {
		if err := l.markEnd(); err != nil {
			l.log.Warn("the journal was closed without a mark of its end", "dir", l.dir, "error", err)
		}
	}
	l.closed.Store(true)
	errs := append(l.view.close(), l.lock.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close journal %s: %w", l.dir, err)
	}
	return nil
}

// markEnd writes that the log ends here on purpose, so that damage to its last
// record will not pass for a write that a crash cut short. Without the mark
// nothing else is lost.
func (l *Log) markEnd() error {
	if err := l.tail.MarkEnd(l.view.next); err != nil {
		return err
	}
	return l.writeMeta(l.view.floor, l.view.last())
}
