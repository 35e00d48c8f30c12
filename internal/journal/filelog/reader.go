package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// ErrReadOnly is the answer of a Reader to whoever asks it to write.
var ErrReadOnly = errors.New("journal was opened read-only")

// Reader reads the journal in a directory without taking its lock or changing
// anything, beside a process that writes it or without one. It implements
// journal.Store; what would write is ErrReadOnly. It may show a record that
// the writer is about to make durable and has not acknowledged yet.
type Reader struct {
	fs   vfs
	dir  string
	info journal.Info

	mu     sync.Mutex // held for the whole of a Read: this is for tools
	segs   []*segment
	floor  journal.Slot
	next   journal.Slot
	closed bool
}

var _ journal.Store = (*Reader)(nil)

// OpenReadOnly opens the journal in dir for reading.
func OpenReadOnly(ctx context.Context, dir string) (*Reader, error) {
	return openReader(ctx, dir, osFS{})
}

func openReader(ctx context.Context, dir string, fs vfs) (*Reader, error) {
	r := &Reader{fs: fs, dir: dir, info: journal.Info{MaxRecord: MaxRecord, Depth: 1}}
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
		r.closeAll()
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
	if err := errors.Join(ctx.Err(), r.usable()); err != nil {
		return nil, err
	}
	if r.next-from < journal.Slot(limit) || from >= r.next { // it may have grown
		if err := r.refresh(); err != nil {
			return nil, err
		}
	}
	for again := true; ; {
		if from < r.floor {
			return nil, fmt.Errorf("the floor is %d: %w", r.floor, journal.ErrTrimmed)
		}
		if from >= r.next || len(all) >= limit {
			return all, nil
		}
		seg, until := locate(r.segs, r.next, from)
		err := seg.load(r.fs, r.info.ID, false, until)
		if err == nil {
			recs, err := seg.read(from, until, limit-len(all))
			if err != nil {
				return nil, err
			}
			all, from = append(all, recs...), from+journal.Slot(len(recs))
			continue
		}
		if !again || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		again = false
		if err := r.refresh(); err != nil { // the writer has trimmed
			return nil, err
		}
	}
}

func (r *Reader) usable() error {
	if r.closed {
		return journal.ErrClosed
	}
	return nil
}

// refresh looks at the directory again. The writer may be at work in it, so
// what looks damaged is looked at some times more: no writer keeps a file in
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
	old := r.segs
	for i, seg := range segs {
		j := slices.IndexFunc(old, func(o *segment) bool { return o.first == seg.first })
		sealed, wasSealed := i < len(segs)-1, j >= 0 && j < len(old)-1
		if j >= 0 && sealed == wasSealed && (sealed || old[j].same(r.fs, m.id)) {
			segs[i] = old[j]
		}
	}
	last := segs[len(segs)-1]
	if err = last.extend(r.fs, m.id); err != nil {
		if !slices.Contains(old, last) {
			_ = last.close() // it was only read from
		}
		return err
	}
	next := last.first + journal.Slot(len(last.scan.offsets)-1)
	if err := m.lost(r.dir, segs, next); err != nil {
		if !slices.Contains(old, last) {
			_ = last.close() // it was only read from
		}
		return err
	}
	for _, o := range old {
		if !slices.Contains(segs, o) {
			_ = o.close() // it was only read from
		}
	}
	r.segs, r.floor = segs, m.floor
	r.next = next
	return nil
}

// same says whether the file at the segment's path is still the one that is
// loaded: a repair puts another in its place.
func (s *segment) same(fs vfs, id journal.ID) bool {
	f, head, _, err := openSegment(fs, s.path, false, id, s.first)
	if err != nil {
		return false
	}
	_ = f.Close() // only read from
	return s.file != nil && head == s.head
}

// extend is load for a last segment, which may have grown since the last time.
func (s *segment) extend(fs vfs, id journal.ID) error {
	if s.scan == nil {
		return s.load(fs, id, false, 0)
	}
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	found, err := scan(s.file, size, s.head, *s.scan, 0)
	if err != nil {
		return s.damage(err)
	}
	s.scan = &found
	return nil
}

// GetBlob implements journal.Blobs.
func (r *Reader) GetBlob(ctx context.Context, name string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(ctx.Err(), r.usable()); err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return getBlob(r.fs, r.dir, name)
}

// ListBlobs implements journal.Blobs.
func (r *Reader) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(ctx.Err(), r.usable()); err != nil {
		return nil, fmt.Errorf("list blobs %q: %w", prefix, err)
	}
	return listBlobs(r.fs, r.dir, prefix)
}

// Append returns ErrReadOnly.
func (r *Reader) Append(_ context.Context, slot journal.Slot, _ []byte) error {
	return fmt.Errorf("append slot %d: %w", slot, ErrReadOnly)
}

// PutBlob returns ErrReadOnly.
func (r *Reader) PutBlob(_ context.Context, name string, _ []byte) error {
	return fmt.Errorf("put blob %q: %w", name, ErrReadOnly)
}

// DeleteBlob returns ErrReadOnly.
func (r *Reader) DeleteBlob(_ context.Context, name string) error {
	return fmt.Errorf("delete blob %q: %w", name, ErrReadOnly)
}

// Trim returns ErrReadOnly.
func (r *Reader) Trim(_ context.Context, before journal.Slot) (int, error) {
	return 0, fmt.Errorf("trim before slot %d: %w", before, ErrReadOnly)
}

// Close implements journal.Journal.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.closeAll()
	return nil
}

func (r *Reader) closeAll() {
	for _, seg := range r.segs {
		_ = seg.close() // it was only read from
	}
}
