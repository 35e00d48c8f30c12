package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Take takes in the record at the slot after the last: it decodes the record, says
// whether it belongs there, and extends the chain by it, whatever it is. An error that
// wraps ErrMalformed or ErrForeign makes the slot void. ErrFormat says that this build
// cannot go on, and ErrForked that no replica can. The body may share memory with rec.
func (c *Chains) Take(id journal.ID, rec []byte) (h Header, body []byte, err error) {
	h, body, err = Parse(rec)
	switch {
	case err == nil:
		err = c.Check(id, &h)
	case errors.Is(err, ErrFormat) && h.Journal != id:
		err = fmt.Errorf("record is of journal %s: %w", h.Journal, ErrForeign)
	}
	c.Extend(DigestOf(rec))
	return h, body, err
}

// SawHeld says whether rec is a record of the journal whose writer had applied what slot
// held. A writer anchors its records at the last slot that it has applied. So a record
// that is anchored at slot, or past it, proves that slot was held, even if it is empty
// now.
func SawHeld(id journal.ID, rec []byte, slot journal.Slot) bool {
	h, _, err := Parse(rec)
	return err == nil && h.Journal == id && h.Anchor >= slot
}

// FloorMark is the body of a Floor record: slots below Slot may be deleted.
type FloorMark struct {
	Slot journal.Slot
}

// Append appends the mark's bytes to dst: slot 8.
func (m FloorMark) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(m.Slot))
}

// ParseFloorMark decodes the body of a Floor record.
func ParseFloorMark(b []byte) (m FloorMark, err error) {
	if len(b) != 8 {
		return m, fmt.Errorf("floor of %d bytes: %w", len(b), ErrMalformed)
	}
	m.Slot = journal.Slot(binary.LittleEndian.Uint64(b))
	return m, nil
}
