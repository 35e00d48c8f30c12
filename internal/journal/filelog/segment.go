package filelog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// segment is one file of the journal. Once it has a successor it is not
// written any more.
type segment struct {
	first journal.Slot
	path  string

	mu   sync.Mutex
	dead bool     // closed for good
	file file     // nil until load or create
	head header   // set with file
	seed uint32   // head.seed()
	scan *scanned // nil until load or create; its offsets only ever grow

	// Where the writer is. Only the holder of Log.writer touches these.
	end     int64 // the next frame belongs here
	written int64 // up to here the file's blocks are written, if only with zeros
	alloc   int64 // how long the file is
	limit   int64 // how long it may become
}

// segmentPath is the file of the segment that starts with first.
func segmentPath(dir string, first journal.Slot) string {
	return filepath.Join(dir, journalDir, fmt.Sprintf("%020d.log", first))
}

// parseSegment is the inverse of segmentPath, given the file's name.
func parseSegment(name string) (first journal.Slot, ok bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return journal.Slot(n), err == nil && n > 0
}

// load opens the segment and finds its frames, unless that was done before.
// What until says is scan's affair.
func (s *segment) load(fs vfs, id journal.ID, write bool, until journal.Slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead:
		return os.ErrClosed
	case s.scan != nil:
		return nil
	}
	f, head, size, err := openSegment(fs, s.path, write, id, s.first)
	if err != nil {
		return err
	}
	found, err := scan(f, size, head, newScan(), until)
	if err != nil {
		return errors.Join(s.damage(err), f.Close())
	}
	s.file, s.head, s.seed, s.scan = f, head, head.seed(), &found
	s.end, s.alloc = found.end(), size
	return nil
}

// openSegment opens the file at path and checks that its header is the one
// that belongs there.
func openSegment(fs vfs, path string, write bool, id journal.ID, first journal.Slot) (file, header, int64, error) {
	fail := func(err error) (file, header, int64, error) {
		return nil, header{}, 0, fmt.Errorf("open segment %s: %w", path, err)
	}
	f, err := fs.Open(path, write)
	if err != nil {
		return fail(err)
	}
	size, err := f.Size()
	b := make([]byte, min(size, headerSize))
	if err == nil && len(b) > 0 {
		_, err = f.ReadAt(b, 0)
	}
	var head header
	if err == nil {
		head, err = decodeHeader(b)
	}
	if err == nil && (head.id != id || head.first != first) {
		err = fmt.Errorf("it is the segment from slot %d of journal %v, not that from slot %d of %v: %w",
			head.first, head.id, first, id, journal.ErrCorrupt)
	}
	if err != nil {
		_ = f.Close() // only read from
		return fail(err)
	}
	return f, head, size, nil
}

// damage names the file in an error of scan.
func (s *segment) damage(err error) error {
	if errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("segment %s is damaged %w", s.path, err)
	}
	return fmt.Errorf("read segment %s: %w", s.path, err)
}

// create makes the segment that starts with first and holds recs, durably and
// at once: until it has returned nil, a crash leaves it there or not.
func create(fs vfs, dir string, id journal.ID, first journal.Slot, recs [][]byte) (*segment, error) {
	path := segmentPath(dir, first)
	s := &segment{first: first, path: path, head: header{version: journal.FormatVersion, id: id, first: first, salt: randomSalt()}}
	s.seed = s.head.seed()
	b, found := s.head.encode(), newScan()
	for i, rec := range recs {
		b = appendFrame(b, s.seed, first+journal.Slot(i), rec)
		found.offsets = append(found.offsets, uint32(len(b)))
	}
	if err := replaceFile(fs, path, path+tmpSuffix, b); err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	f, err := fs.Open(path, true)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	s.file, s.scan = f, &found
	s.end, s.alloc = int64(len(b)), int64(len(b))
	return s, nil
}

func randomSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}

// tmpSuffix ends the names of files that are not yet what they will be.
const tmpSuffix = ".tmp"

// replaceFile makes path hold data, durably, in place of what was there, by way
// of the file tmp. After an error path is the old file or the new one.
func replaceFile(fs vfs, path, tmp string, data []byte) error {
	_ = fs.Remove(tmp) // of an earlier attempt
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		_ = fs.Remove(tmp) // else Open does it
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// bytesPerRead bounds the piece of a file that is read at once, unless one
// record is longer.
const bytesPerRead = 4 << 20

// read returns some of the records from slot on, at least one and at most limit,
// all of them below until and held by the segment, which is loaded.
func (s *segment) read(from, until journal.Slot, limit int) ([][]byte, error) {
	s.mu.Lock()
	offsets, f, seed := s.scan.offsets, s.file, s.seed
	s.mu.Unlock()
	offsets = offsets[from-s.first : until-s.first+1]
	n := 1
	for n < limit && n+1 < len(offsets) && offsets[n+1]-offsets[0] <= bytesPerRead {
		n++
	}
	start := int64(offsets[0])
	buf := make([]byte, int64(offsets[n])-start)
	if _, err := f.ReadAt(buf, start); err != nil {
		return nil, fmt.Errorf("read segment %s: %w", s.path, err)
	}
	recs := make([][]byte, n)
	for i := range recs {
		a, b := int64(offsets[i])-start, int64(offsets[i+1])-start
		rec, err := decodeRecord(buf[a:b:b], seed, from+journal.Slot(i))
		if err != nil {
			return nil, s.damage(corrupt(start+a, "the frame of slot %d fails its checksum", from+journal.Slot(i)))
		}
		recs[i] = rec
	}
	return recs, nil
}

// grow notes that a frame now ends at end and is durable.
func (s *segment) grow(end int64) {
	s.mu.Lock()
	s.scan.offsets = append(s.scan.offsets, uint32(end))
	s.mu.Unlock()
	s.end = end
}

// close lets go of the file. A read under way ends well, a later one does not.
func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.file == nil {
		s.dead = true
		return nil
	}
	s.dead = true
	return s.file.Close()
}
