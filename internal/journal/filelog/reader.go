package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// ErrReadOnly is the error of a Reader that is asked to write.
var ErrReadOnly = errors.New("journal was opened read-only")

// Reader reads the journal in a directory without taking its lock or changing
// anything, beside a process that writes it or without one. It implements
// journal.Store; what would write is ErrReadOnly. It may show a record that
// the writer is about to make durable and has not acknowledged yet.
type Reader struct {
	blobs
	fs   disk.FS
	dir  string
	info journal.Info

	mu   sync.Mutex // held for the whole of a Read: this is for tools
	view view       // as of the last look at the directory; empty before the first
}

var _ journal.Store = (*Reader)(nil)

// OpenReadOnly opens the journal in dir for reading.
func OpenReadOnly(ctx context.Context, dir string) (*Reader, error) {
	return openReader(ctx, dir, disk.OS{})
}

func openReader(ctx context.Context, dir string, fs disk.FS) (*Reader, error) {
	r := &Reader{fs: fs, dir: dir, info: journal.Info{MaxRecord: MaxRecord, Depth: 1}}
	r.blobs.fs, r.blobs.dir, r.readOnly = fs, filepath.Join(dir, blobDir), true
	if err := r.open(ctx); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", dir, explain(dir, err))
	}
	return r, nil
}

func (r *Reader) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := readMeta(r.fs, r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no journal (%w): check the directory's name", err)
	}
	if err != nil {
		return err
	}
	r.info.ID = m.id
	if err := r.refresh(); err != nil {
		_ = r.view.close() // they were only read from
		return err
	}
	return nil
}

// Info implements journal.Journal.
func (r *Reader) Info() journal.Info { return r.info }

// Read implements journal.Journal. It finds what the writer has added since.
func (r *Reader) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	recs, err := r.read(ctx, from, limit)
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	return recs, nil
}

// Peek implements journal.Journal. No record lies past the tail of a file.
func (r *Reader) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	return single(r.Read(ctx, slot, 1))
}

func (r *Reader) read(ctx context.Context, from journal.Slot, limit int) (all [][]byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	if r.view.next-from < journal.Slot(limit) || from >= r.view.next { // it may have grown
		if err := r.refresh(); err != nil {
			return nil, err
		}
	}
	for refreshed := false; ; {
		seg, until, err := r.view.find(from)
		if seg == nil || err != nil || len(all) >= limit {
			return all, err
		}
		err = seg.Load(r.fs, r.info.ID, false, until)
		if errors.Is(err, fs.ErrNotExist) && !refreshed {
			refreshed, err = true, r.refresh() // the writer has trimmed
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		recs, err := seg.Read(from, until, limit-len(all))
		if err != nil {
			return nil, err
		}
		all, from = append(all, recs...), from+journal.Slot(len(recs))
	}
}

// refresh looks at the directory again. The writer may be at work in it, so if
// something looks damaged, refresh looks some times more: no writer keeps a file in
// such a state.
func (r *Reader) refresh() (err error) {
	for range 5 {
		if err = r.refreshOnce(); !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func (r *Reader) refreshOnce() error {
	m, err := readMeta(r.fs, r.dir)
	if err != nil {
		return err
	}
	if m.id != r.info.ID {
		return fmt.Errorf("this is journal %v now, and was %v: open it again", m.id, r.info.ID)
	}
	segs, err := listSegments(r.fs, r.dir, m.floor)
	if err != nil {
		return err
	}
	old := r.view.segs
	v := view{segs: r.keep(segs), floor: m.floor}
	if err = v.last().Extend(r.fs, m.id); err == nil {
		v.next = v.last().Next()
		err = m.lost(r.dir, v)
	}
	if err != nil {
		if !slices.Contains(old, v.last()) {
			_ = v.last().Close() // it was only read from
		}
		return err
	}
	for _, o := range old {
		if !slices.Contains(v.segs, o) {
			_ = o.Close() // it was only read from
		}
	}
	r.view = v
	return nil
}

// keep puts segments that are known already in place of those of segs that are
// the same.
func (r *Reader) keep(segs []*segment.Segment) []*segment.Segment {
	old := r.view.segs
	for i, seg := range segs {
		j := slices.IndexFunc(old, func(o *segment.Segment) bool { return o.First == seg.First })
		sealed, wasSealed := i < len(segs)-1, j >= 0 && j < len(old)-1
		if j >= 0 && sealed == wasSealed && (sealed || old[j].Same(r.fs, r.info.ID)) {
			segs[i] = old[j]
		}
	}
	return segs
}

// Append returns ErrReadOnly.
func (r *Reader) Append(_ context.Context, slot journal.Slot, _ []byte) error {
	return fmt.Errorf("append slot %d: %w", slot, ErrReadOnly)
}

// Trim returns ErrReadOnly.
func (r *Reader) Trim(_ context.Context, before journal.Slot) (int, error) {
	return 0, fmt.Errorf("trim before slot %d: %w", before, ErrReadOnly)
}

// Close implements journal.Journal.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed.Store(true)
	_ = r.view.close() // they were only read from
	return nil
}
