package filelog

import (
	"fmt"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// Salvage gives yield every whole record of the segments in dir, in the order of
// the files, whatever lies between them: for a log that Open refuses. gap, if it is
// not empty, says what could not be read just before the record; at the end yield
// is given slot 0 with the last gap, if there is one. It stops at the first error
// of yield. It takes no lock and changes nothing.
func Salvage(dir string, yield func(slot journal.Slot, rec []byte, gap string) error) error {
	segments := filepath.Join(dir, journalDir)
	names, err := disk.OS{}.ReadDir(segments)
	if err != nil {
		return fmt.Errorf("salvage journal %s: %w", dir, err)
	}
	s := salvage{yield: yield}
	for _, name := range names {
		if first, ok := segment.ParseName(name); ok {
			if err := segment.Salvage(disk.OS{}, segment.Path(segments, first), s.record, s.damaged); err != nil {
				return fmt.Errorf("salvage journal %s: %w", dir, err)
			}
		}
	}
	if s.gap != "" {
		return yield(0, nil, s.gap)
	}
	return nil
}

// salvage tells what lies between the records that are found.
type salvage struct {
	yield func(journal.Slot, []byte, string) error
	next  journal.Slot // after the last record; 0: none yet
	gap   string       // what could not be read since the last record; empty: nothing
}

// damaged notes what could not be read: the start of the gap, or a whole file.
func (s *salvage) damaged(what string, all bool) {
	if s.gap == "" || all {
		s.gap = what
	}
}

// record yields one record, with the gap before it.
func (s *salvage) record(slot journal.Slot, rec []byte) error {
	if s.gap == "" && s.next != 0 && slot > s.next {
		s.gap = fmt.Sprintf("slots %d to %d are missing", s.next, slot-1)
	}
	err := s.yield(slot, rec, s.gap)
	s.gap, s.next = "", slot+1
	return err
}
