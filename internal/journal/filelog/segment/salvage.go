package segment

import (
	"errors"
	"fmt"
	"math"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

// Salvage gives record every whole record in the file at path, at whatever place it
// starts, and tells damaged of whatever else there is; all says that nothing of the
// file can be read. It stops at the first error of record.
func Salvage(fs disk.FS, path string, record func(slot journal.Slot, rec []byte) error, damaged func(what string, all bool)) (err error) {
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
	b, err := w.at(0, HeaderSize)
	if err != nil {
		return err
	}
	head, err := decodeHeader(b)
	if err != nil {
		damaged(fmt.Sprintf("%s: %v", path, err), true)
		return nil
	}
	for off := int64(HeaderSize); off < w.size; {
		size, err := w.salvageAt(off, head.seed(), record)
		if err != nil {
			return err
		}
		if size == 0 {
			damaged(fmt.Sprintf("%s is damaged at offset %d", path, off), false)
			size = frameAlign
		}
		off += size
	}
	return nil
}

// salvageAt returns the size of what is at off, zeros or a frame, and gives record
// the record if it is one. 0: it is neither.
func (w *window) salvageAt(off int64, seed uint32, record func(slot journal.Slot, rec []byte) error) (size int64, err error) {
	b, err := w.at(off, frameHeaderSize)
	if err != nil {
		return 0, err
	}
	if skip := zeros(w.buf[off-w.off:]); skip > 0 {
		return int64(skip), nil
	}
	f, ok := decodeFrameHeader(b, seed)
	switch {
	case !ok:
		return 0, nil
	case f.end:
		return frameHeaderSize, nil
	case off+f.size() > w.size:
		return 0, nil
	}
	if b, err = w.at(off, f.size()); err != nil {
		return 0, err
	}
	rec, err := decodeRecord(b, seed, f.slot)
	if err != nil {
		return 0, nil
	}
	return f.size(), record(f.slot, rec)
}
