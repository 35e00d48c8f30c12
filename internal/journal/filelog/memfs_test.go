package filelog

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

// memFS is a file system in memory that crashes and fails to order. It is as
// forgetful as POSIX allows: until a sync, any part of a write may be lost or
// kept, in units of a sector, and so may any change of a directory.
type memFS struct {
	// before is called before every call that changes something, or makes a
	// change durable. An error fails the call, in the worst way it can fail.
	before func(op, name string) error
	rng    *rand.Rand // decides what a failed call leaves behind

	mu       sync.Mutex
	names    map[string]*inode // what is seen
	durable  map[string]*inode // what survives
	pending  []dirOp           // what may survive
	capacity int64             // bytes in all files, 0 for no bound
	locked   bool
}

// inode is a file's content.
type inode struct {
	data    []byte // what is seen: the page cache
	durable []byte
	pending []fileOp
	bad     bool // a block of it is beyond repair: no sync works any more
}

// dirOp takes the name from away and puts the file at to, either if not empty.
type dirOp struct {
	from, to string
	file     *inode
}

// fileOp sets the size (data nil), or writes data at off.
type fileOp struct {
	off  int64
	data []byte
	size int64
}

const sector = 512

func newMemFS(rng *rand.Rand) *memFS {
	return &memFS{rng: rng, names: make(map[string]*inode), durable: make(map[string]*inode)}
}

// crash returns what the disk may hold after a power failure now. keep says
// what survives of each unsynced change or sector.
func (m *memFS) crash(keep func() bool, rng *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := maps.Clone(m.durable)
	for _, op := range m.pending {
		if keep() {
			op.apply(names)
		}
	}
	out := newMemFS(rng)
	twin := make(map[*inode]*inode)
	for name, file := range names {
		if twin[file] == nil {
			twin[file] = file.crash(keep)
		}
		out.names[name] = twin[file]
	}
	out.durable = maps.Clone(out.names)
	return out
}

func (op dirOp) apply(names map[string]*inode) {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.to != "" {
		names[op.to] = op.file
	}
}

func (n *inode) crash(keep func() bool) *inode {
	data := slices.Clone(n.durable)
	for _, op := range n.pending {
		data = op.apply(data, keep)
	}
	return &inode{data: data, durable: slices.Clone(data)}
}

// apply does what keep lets through of op, sector by sector.
func (op fileOp) apply(data []byte, keep func() bool) []byte {
	if op.data == nil {
		if keep() {
			data = resize(data, op.size)
		}
		return data
	}
	for off, rest := op.off, op.data; len(rest) > 0; {
		n := min(int64(len(rest)), sector-off%sector)
		if keep() {
			data = resize(data, max(int64(len(data)), off+n))
			copy(data[off:], rest[:n])
		}
		off, rest = off+n, rest[n:]
	}
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

func always() bool { return true }
func never() bool  { return false }

// change is the start of every call that changes something.
func (m *memFS) change(op, name string) error {
	if m.before == nil {
		return nil
	}
	return m.before(op, name)
}

func (m *memFS) used() (n int64) {
	for _, file := range m.names {
		n += int64(len(file.data))
	}
	return n
}

// unlock is what the end of the process does to its lock.
func (m *memFS) unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked = false
}

func (m *memFS) MkdirAll(string) error { return nil } // all directories exist
func (m *memFS) Writable(string) error { return nil }

func (m *memFS) Create(name string) (disk.File, error) {
	err := m.change("create", name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.names[name] != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: name, Err: err}
	}
	op := dirOp{to: name, file: &inode{}}
	op.apply(m.names)
	m.pending = append(m.pending, op)
	return &memFile{fs: m, name: name, inode: op.file, write: true}, nil
}

func (m *memFS) Open(name string, write bool) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] == nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{fs: m, name: name, inode: m.names[name], write: write}, nil
}

func (m *memFS) Rename(from, to string) error { return m.move("rename", from, to) }
func (m *memFS) Remove(name string) error     { return m.move("remove", name, "") }

func (m *memFS) move(op, from, to string) error {
	err := m.change(op, from)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.names[from] == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &os.PathError{Op: op, Path: from, Err: err}
	}
	o := dirOp{from: from, to: to, file: m.names[from]}
	o.apply(m.names)
	m.pending = append(m.pending, o)
	return nil
}

func (m *memFS) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *memFS) SyncDir(dir string) error {
	if err := m.change("syncdir", dir); err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = slices.DeleteFunc(m.pending, func(op dirOp) bool {
		if filepath.Dir(op.from+op.to) != dir && filepath.Dir(op.to) != dir && filepath.Dir(op.from) != dir {
			return false
		}
		op.apply(m.durable)
		return true
	})
	return nil
}

func (m *memFS) Lock(string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, &disk.HeldError{PID: 42}
	}
	m.locked = true
	return memLock{m}, nil
}

type memLock struct{ fs *memFS }

func (l memLock) Close() error {
	l.fs.unlock()
	return nil
}

// memFile is an open file of a memFS.
type memFile struct {
	fs     *memFS
	name   string
	write  bool
	inode  *inode
	closed bool
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, os.ErrClosed
	}
	if off >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// change does op to what is seen, and remembers it for the next sync.
func (f *memFile) change(op fileOp) {
	f.inode.data = op.apply(f.inode.data, always)
	f.inode.pending = append(f.inode.pending, op)
}

// enter is the start of every change to a file. The caller unlocks.
func (f *memFile) enter(op string) error {
	err := f.fs.change(op, f.name)
	f.fs.mu.Lock()
	switch {
	case f.closed:
		err = os.ErrClosed
	case !f.write:
		err = fs.ErrPermission
	}
	return err
}

func (f *memFile) fail(op string, err error) error {
	return &os.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.enter("write")
	defer f.fs.mu.Unlock()
	n := int64(len(p))
	if err == nil && f.fs.capacity > 0 {
		if free := f.fs.capacity - f.fs.used() + max(0, int64(len(f.inode.data))-off); n > free {
			n, err = max(0, free), unix.ENOSPC
		}
	} else if err != nil && n > 0 {
		n = f.fs.rng.Int64N(n) // a short write
	}
	if n > 0 {
		f.change(fileOp{off: off, data: slices.Clone(p[:n])})
	}
	if err != nil {
		return int(n), f.fail("write", err)
	}
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	err := f.enter("truncate")
	defer f.fs.mu.Unlock()
	if err != nil {
		return f.fail("truncate", err)
	}
	f.change(fileOp{size: size})
	return nil
}

func (f *memFile) Allocate(size int64) error {
	err := f.enter("allocate")
	defer f.fs.mu.Unlock()
	if grow := size - int64(len(f.inode.data)); err == nil && grow > 0 {
		if f.fs.capacity > 0 && f.fs.used()+grow > f.fs.capacity {
			err = unix.ENOSPC
		} else {
			f.change(fileOp{size: size})
		}
	}
	if err != nil {
		return f.fail("allocate", err)
	}
	return nil
}

// Sync that fails does what Linux does: part of the writes reach the disk, and
// the rest are seen until the next crash, but no later sync writes them.
func (f *memFile) Sync() error {
	err := f.enter("sync")
	defer f.fs.mu.Unlock()
	keep := always
	if err == nil && f.inode.bad && len(f.inode.pending) > 0 {
		err = unix.EIO
	}
	if err != nil {
		f.inode.bad = f.inode.bad || f.fs.rng.IntN(2) == 0
		err = f.fail("fdatasync", err)
		keep = func() bool { return f.fs.rng.IntN(2) == 0 }
	}
	for _, op := range f.inode.pending {
		f.inode.durable = op.apply(f.inode.durable, keep)
	}
	f.inode.pending = nil
	return err
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.inode.data)), nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	return nil
}
