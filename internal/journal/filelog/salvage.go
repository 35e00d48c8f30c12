package filelog

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Salvage gives yield every whole record of the segments in dir, in the order of
// the files, whatever lies between them: for a log that Open refuses. gap, if it is
// not empty, says what could not be read just before the record; at the end yield
// is given slot 0 with the last gap, if there is one. It stops at the first error
// of yield. It takes no lock and changes nothing.
func Salvage(dir string, yield func(slot journal.Slot, rec []byte, gap string) error) error {
	fs := osFS{}
	names, err := fs.ReadDir(filepath.Join(dir, journalDir))
	if err != nil {
		return fmt.Errorf("salvage journal %s: %w", dir, err)
	}
	s := salvage{yield: yield}
	for _, name := range names {
		if first, ok := parseSegment(name); ok {
			if err := s.segment(fs, segmentPath(dir, first)); err != nil {
				return fmt.Errorf("salvage journal %s: %w", dir, err)
			}
		}
	}
	if s.gap != "" {
		return yield(0, nil, s.gap)
	}
	return nil
}

type salvage struct {
	yield func(journal.Slot, []byte, string) error
	next  journal.Slot // after the last record; 0: none yet
	gap   string
}

// segment looks for frames at every place where one can start.
func (s *salvage) segment(fs vfs, path string) (err error) {
	f, err := fs.Open(path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	w := &window{r: f, size: min(size, math.MaxUint32)}
	b, err := w.at(0, headerSize)
	if err != nil {
		return err
	}
	head, err := decodeHeader(b)
	if err != nil {
		s.gap = fmt.Sprintf("%s: %v", path, err)
		return nil
	}
	seed := head.seed()
	for off := int64(headerSize); off < w.size; {
		b, err := w.at(off, frameHeaderSize)
		if err != nil {
			return err
		}
		if skip := zeros(w.buf[off-w.off:]); skip > 0 {
			off += int64(skip)
			continue
		}
		frame, ok := decodeFrameHeader(b, seed)
		if ok && !frame.end && off+frame.size() <= w.size {
			if b, err = w.at(off, frame.size()); err != nil {
				return err
			}
			if rec, err := decodeRecord(b, seed, frame.slot); err == nil {
				if err := s.record(frame.slot, rec); err != nil {
					return err
				}
				off += frame.size()
				continue
			}
		}
		if ok && frame.end {
			off += frameHeaderSize
			continue
		}
		if s.gap == "" {
			s.gap = fmt.Sprintf("%s is damaged at offset %d", path, off)
		}
		off += frameAlign
	}
	return nil
}

func (s *salvage) record(slot journal.Slot, rec []byte) error {
	if s.gap == "" && s.next != 0 && slot > s.next {
		s.gap = fmt.Sprintf("slots %d to %d are missing", s.next, slot-1)
	}
	err := s.yield(slot, rec, s.gap)
	s.gap, s.next = "", slot+1
	return err
}
