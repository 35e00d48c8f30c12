// Package memlog is a journal in the memory of one process, for tests and for
// servers that are thrown away. It never touches a disk or a network.
package memlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
)

// Options describe a Store. The zero value is ready for use.
type Options struct {
	// Depth is Info.Depth: how many Appends at consecutive slots may be in
	// flight at once. 0 means 8.
	Depth int
	// MaxRecord is Info.MaxRecord, in bytes. 0 means 16 MiB.
	MaxRecord int
}

// Store is one journal with its blobs. It lives as long as something refers to
// it; handles on it come from Open, as many as there are replicas to play.
type Store struct {
	info journal.Info

	mu    sync.Mutex
	floor journal.Slot            // the lowest slot that is not trimmed
	recs  [][]byte                // floor, floor+1, ... up to the tail
	ahead map[journal.Slot][]byte // held, but past a slot that is empty
	blobs map[string][]byte
}

// New returns an empty store with an ID of its own.
func New(opts Options) *Store {
	if opts.Depth == 0 {
		opts.Depth = 8
	}
	if opts.MaxRecord == 0 {
		opts.MaxRecord = 16 << 20
	}
	s := &Store{
		info:  journal.Info{MaxRecord: opts.MaxRecord, Depth: opts.Depth},
		floor: 1,
		ahead: make(map[journal.Slot][]byte),
		blobs: make(map[string][]byte),
	}
	rand.Read(s.info.ID[:]) // never fails: crypto/rand ends the process instead
	return s
}

// Open returns a handle of its own on the store. Closing one handle leaves the
// others, and what is stored, as they are.
func (s *Store) Open() *Log { return &Log{store: s} }

// next is the slot after the tail. The caller holds mu.
func (s *Store) next() journal.Slot { return s.floor + journal.Slot(len(s.recs)) }

// Log is one handle on a Store. It implements journal.Store.
type Log struct {
	store  *Store
	closed bool // guarded by store.mu
}

var _ journal.Store = (*Log)(nil)

// lock takes the store's mutex for one call, unless the call must not happen.
func (l *Log) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.store.mu.Lock()
	if l.closed {
		l.store.mu.Unlock()
		return nil, journal.ErrClosed
	}
	return l.store.mu.Unlock, nil
}

// Info implements journal.Journal.
func (l *Log) Info() journal.Info { return l.store.info }

// Append implements journal.Journal.
func (l *Log) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return fmt.Errorf("append slot %d: %w", slot, err)
	}
	defer unlock()
	s := l.store
	next := s.next()
	switch {
	case len(rec) > s.info.MaxRecord:
		return fmt.Errorf("append slot %d: %d bytes, at most %d: %w", slot, len(rec), s.info.MaxRecord, journal.ErrTooLarge)
	case slot < next || s.ahead[slot] != nil:
		return fmt.Errorf("append slot %d: %w", slot, journal.ErrTaken)
	case slot-next >= journal.Slot(s.info.Depth):
		return fmt.Errorf("append slot %d: the tail is at %d, depth %d: %w", slot, next-1, s.info.Depth, journal.ErrAhead)
	}
	s.ahead[slot] = append(make([]byte, 0, len(rec)), rec...) // never nil, even when empty
	for rec, ok := s.ahead[next]; ok; rec, ok = s.ahead[next] {
		s.recs = append(s.recs, rec)
		delete(s.ahead, next)
		next++
	}
	return nil
}

// Read implements journal.Journal.
func (l *Log) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	defer unlock()
	s := l.store
	if from < s.floor {
		return nil, fmt.Errorf("read slot %d: the floor is %d: %w", from, s.floor, journal.ErrTrimmed)
	}
	if from >= s.next() || limit <= 0 {
		return nil, nil
	}
	held := s.recs[from-s.floor:]
	held = held[:min(limit, len(held))]
	out := make([][]byte, len(held))
	for i, rec := range held {
		out[i] = append(make([]byte, 0, len(rec)), rec...)
	}
	return out, nil
}

// Peek implements journal.Journal.
func (l *Log) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("peek at slot %d: %w", slot, err)
	}
	defer unlock()
	s := l.store
	rec, ahead := s.ahead[slot]
	switch {
	case slot < s.floor:
		return nil, fmt.Errorf("peek at slot %d: the floor is %d: %w", slot, s.floor, journal.ErrTrimmed)
	case slot < s.next():
		rec = s.recs[slot-s.floor]
	case !ahead:
		return nil, nil
	}
	return append(make([]byte, 0, len(rec)), rec...), nil
}

// Trim implements journal.Trimmer.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return 0, fmt.Errorf("trim before slot %d: %w", before, err)
	}
	defer unlock()
	s := l.store
	if before > s.next() {
		return 0, fmt.Errorf("trim before slot %d: the tail is at %d", before, s.next()-1)
	}
	if before <= s.floor {
		return 0, nil
	}
	deleted = int(before - s.floor)
	s.recs = slices.Clone(s.recs[deleted:]) // lets go of what was trimmed
	s.floor = before
	return deleted, nil
}

// PutBlob implements journal.Blobs.
func (l *Log) PutBlob(ctx context.Context, name string, data []byte) error {
	if err := blobname.Check(name); err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, err)
	}
	defer unlock()
	l.store.blobs[name] = bytes.Clone(data)
	return nil
}

// GetBlob implements journal.Blobs.
func (l *Log) GetBlob(ctx context.Context, name string) ([]byte, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", name, err)
	}
	defer unlock()
	data, ok := l.store.blobs[name]
	if !ok {
		return nil, fmt.Errorf("get blob %s: %w", name, journal.ErrNoBlob)
	}
	return bytes.Clone(data), nil
}

// ListBlobs implements journal.Blobs.
func (l *Log) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("list blobs %s: %w", prefix, err)
	}
	defer unlock()
	var names blobname.List
	for name := range l.store.blobs {
		if strings.HasPrefix(name, prefix) {
			names.Add(name)
		}
	}
	return names.Sorted(), nil
}

// DeleteBlob implements journal.Blobs.
func (l *Log) DeleteBlob(ctx context.Context, name string) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	defer unlock()
	delete(l.store.blobs, name)
	return nil
}

// Close implements journal.Journal. It closes this handle only.
func (l *Log) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.closed = true
	return nil
}
