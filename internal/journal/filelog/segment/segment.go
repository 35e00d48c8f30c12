// Package segment is one file of a file journal: its bytes, the frames in it, and
// the end at which the journal's one writer appends. It never decides which of
// several files counts. The README of filelog draws the bytes.
package segment

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
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

// Segment is one file of the journal. Once it has a successor it is not written
// any more. Its methods are safe for concurrent use.
type Segment struct {
	First journal.Slot
	Path  string

	mu   sync.Mutex
	dead bool // closed for good
	// All of these are set by load or Create at once; before that, file and scan
	// are nil.
	file disk.File
	size int64 // of the file at that moment
	head header
	seed uint32   // head.seed()
	scan *scanned // Invariant: of what is durable; its offsets only ever grow
}

// At is the segment of dir that starts with first, not loaded.
func At(dir string, first journal.Slot) *Segment {
	return &Segment{First: first, Path: Path(dir, first)}
}

// Path is the file of the segment of dir that starts with first.
func Path(dir string, first journal.Slot) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.log", first))
}

// ParseName is the inverse of Path, given the file's name without its directory.
func ParseName(name string) (first journal.Slot, ok bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return journal.Slot(n), err == nil && n > 0
}

// Load opens the segment of the journal id, for writing too if write is set, and
// finds its frames, unless that was done before. If the segment is the last of the
// journal, until is 0: a torn frame at its end is passed over. Otherwise until is the
// slot with which its successor starts: all slots before it must be there. Damage
// is journal.ErrCorrupt.
func (s *Segment) Load(fs disk.FS, id journal.ID, write bool, until journal.Slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead:
		return os.ErrClosed
	case s.scan != nil:
		return nil
	}
	f, head, size, err := openFile(fs, s.Path, write, id, s.First)
	if err != nil {
		return err
	}
	found, err := scan(f, size, head, newScan(), until)
	if err != nil {
		return errors.Join(s.damage(err), f.Close())
	}
	s.file, s.size, s.head, s.seed, s.scan = f, size, head, head.seed(), &found
	return nil
}

// openFile opens the file at path and checks that its header is the one that
// belongs there.
func openFile(fs disk.FS, path string, write bool, id journal.ID, first journal.Slot) (disk.File, header, int64, error) {
	fail := func(err error) (disk.File, header, int64, error) {
		return nil, header{}, 0, fmt.Errorf("open segment %s: %w", path, err)
	}
	f, err := fs.Open(path, write)
	if err != nil {
		return fail(err)
	}
	size, err := f.Size()
	b := make([]byte, min(size, HeaderSize))
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
func (s *Segment) damage(err error) error {
	if errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("segment %s is damaged %w", s.Path, err)
	}
	return fmt.Errorf("read segment %s: %w", s.Path, err)
}

// Create makes the segment of dir that starts with first and holds recs, durably
// and at once: until it has returned nil, a crash leaves all of it or nothing.
func Create(fs disk.FS, dir string, id journal.ID, first journal.Slot, recs [][]byte) (*Segment, error) {
	s := At(dir, first)
	s.head = header{version: journal.FormatVersion, id: id, first: first, salt: randomSalt()}
	s.seed = s.head.seed()
	b, found := s.head.encode(), newScan()
	for i, rec := range recs {
		b = appendFrame(b, s.seed, first+journal.Slot(i), rec)
		found.offsets = append(found.offsets, uint32(len(b)))
	}
	if err := disk.Replace(fs, s.Path, s.Path+disk.TmpSuffix, b); err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	f, err := fs.Open(s.Path, true)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	s.file, s.size, s.scan = f, int64(len(b)), &found
	return s, nil
}

func randomSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}

// bytesPerRead bounds the piece of a file that is read at once, unless one
// record is longer.
const bytesPerRead = 4 << 20

// Next is the slot after the last record of the segment, which is loaded.
func (s *Segment) Next() journal.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.First + journal.Slot(len(s.scan.offsets)-1)
}

// Read returns records from slot from on, at least one and at most limit, all of
// them below until. The segment must be loaded, and hold all slots below until.
func (s *Segment) Read(from, until journal.Slot, limit int) ([][]byte, error) {
	s.mu.Lock()
	offsets, f, seed := s.scan.offsets, s.file, s.seed
	s.mu.Unlock()
	offsets = offsets[from-s.First : until-s.First+1]
	n := 1
	for n < limit && n+1 < len(offsets) && offsets[n+1]-offsets[0] <= bytesPerRead {
		n++
	}
	start := int64(offsets[0])
	buf := make([]byte, int64(offsets[n])-start)
	if _, err := f.ReadAt(buf, start); err != nil {
		return nil, fmt.Errorf("read segment %s: %w", s.Path, err)
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

// grow notes that one more frame ends at end and is durable.
func (s *Segment) grow(end int64) {
	s.mu.Lock()
	s.scan.offsets = append(s.scan.offsets, uint32(end))
	s.mu.Unlock()
}

// Close lets go of the file. A Read under way ends well or with an error; a later
// one ends with an error.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.file == nil {
		s.dead = true
		return nil
	}
	s.dead = true
	return s.file.Close()
}

// Same says whether the file at the segment's path is still the one that is
// loaded: a repair puts another in its place.
func (s *Segment) Same(fs disk.FS, id journal.ID) bool {
	f, head, _, err := openFile(fs, s.Path, false, id, s.First)
	if err != nil {
		return false
	}
	_ = f.Close() // only read from
	return s.file != nil && head == s.head
}

// Extend is Load for a last segment, which may have grown since the last time. No
// other method may run beside it.
func (s *Segment) Extend(fs disk.FS, id journal.ID) error {
	if s.scan == nil {
		return s.Load(fs, id, false, 0)
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
