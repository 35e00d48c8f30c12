package segment

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// scanned is what a scan found in a segment.
type scanned struct {
	// offsets are where the frames start, the first slot's first, and after
	// them where the last one ends. Never empty.
	offsets []uint32
	// torn says that after the last frame there is something that is neither
	// nothing nor a frame: a write that a crash cut short.
	torn bool
}

// end is where the next frame belongs.
func (s scanned) end() int64 { return int64(s.offsets[len(s.offsets)-1]) }

// scan reads the frames of a segment from where known ends: what an earlier scan
// found, or newScan.
//
// If the segment is the last of the journal, until is 0. What follows the last whole
// frame is then torn if no frame starts later on; if one does, the error is
// ErrCorrupt. If the segment has a successor, until is the slot with which that
// starts: all slots before it must be there, or the error is ErrCorrupt; the bytes
// after them do not matter.
func scan(r io.ReaderAt, size int64, h header, known scanned, until journal.Slot) (scanned, error) {
	w := &window{r: r, size: min(size, math.MaxUint32)} // so that offsets fit; no segment is that large
	out := scanned{offsets: known.offsets}
	seed, off := h.seed(), known.end()
	slot := h.first + journal.Slot(len(known.offsets)-1)
	for ; until == 0 || slot < until; slot++ {
		n, err := w.frameAt(off, seed, slot)
		if err != nil {
			return scanned{}, err
		}
		if n == 0 {
			break
		}
		off += n
		out.offsets = append(out.offsets, uint32(off))
	}
	if until != 0 {
		if slot < until {
			return scanned{}, corrupt(off, "the frame of slot %d fails its checksum", slot)
		}
		return out, nil
	}
	rest, err := w.restAt(off, seed, slot)
	if err != nil {
		return scanned{}, err
	}
	if rest.later != 0 {
		return scanned{}, corrupt(off, "the frame of slot %d fails its checksum, and that of slot %d after it is whole", slot, rest.later)
	}
	out.torn = !rest.clean
	return out, nil
}

// newScan is what a scan of a whole segment starts from.
func newScan() scanned { return scanned{offsets: []uint32{HeaderSize}} }

// corruptError is damage at an offset of a segment.
type corruptError struct {
	off  int64
	what string
}

func corrupt(off int64, format string, args ...any) error {
	return &corruptError{off, fmt.Sprintf(format, args...)}
}

func (e *corruptError) Error() string {
	return fmt.Sprintf("at offset %d: %s: %v", e.off, e.what, journal.ErrCorrupt)
}
func (e *corruptError) Unwrap() error { return journal.ErrCorrupt }

// window reads a file in large pieces.
type window struct {
	r    io.ReaderAt
	size int64  // of the file
	buf  []byte // the bytes of the file from off on
	off  int64
}

const windowSize = 1 << 20

// at returns n bytes at off, fewer only at the end of the file. They are good
// until the next call.
func (w *window) at(off, n int64) ([]byte, error) {
	n = max(0, min(n, w.size-off))
	if off < w.off || off+n > w.off+int64(len(w.buf)) {
		want := max(n, min(windowSize, w.size-off))
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf, w.off = w.buf[:want], off
		got, err := w.r.ReadAt(w.buf, off)
		if int64(got) < want {
			if err == io.EOF { // it shrank under us: a writer is repairing it
				w.size, w.buf = off+int64(got), w.buf[:got]
				return w.at(off, n)
			}
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[off-w.off:][:n], nil
}

// frameAt returns the size of the record frame at off, if it is whole and
// holds slot, else 0.
func (w *window) frameAt(off int64, seed uint32, slot journal.Slot) (int64, error) {
	b, err := w.at(off, frameHeaderSize)
	if err != nil {
		return 0, err
	}
	f, ok := decodeFrameHeader(b, seed)
	if !ok || off+f.size() > w.size {
		return 0, nil
	}
	if b, err = w.at(off, f.size()); err != nil {
		return 0, err
	}
	if _, err := decodeRecord(b, seed, slot); err != nil {
		return 0, nil
	}
	return f.size(), nil
}

// rest is what follows the last whole frame of a segment.
type rest struct {
	clean bool         // nothing, or the mark of a clean end and nothing else
	later journal.Slot // of a frame whose header is whole, in spite of the gap
}

// restAt looks at all that follows off, where the frame of slot would be. The
// header of a later frame is proof that the frame of slot was once whole: it
// is written only after that one is durable.
func (w *window) restAt(off int64, seed uint32, slot journal.Slot) (rest, error) {
	out := rest{clean: true}
	b, err := w.at(off, frameHeaderSize)
	if err != nil {
		return rest{}, err
	}
	if f, ok := decodeFrameHeader(b, seed); ok && f.end && f.slot == slot {
		off += frameHeaderSize
	}
	for off < w.size {
		if _, err := w.at(off, frameHeaderSize); err != nil {
			return rest{}, err
		}
		b := w.buf[off-w.off:]
		if skip := zeros(b); skip > 0 {
			off += int64(skip)
			continue
		}
		out.clean = false
		if f, ok := decodeFrameHeader(b, seed); ok && f.slot > slot {
			out.later = f.slot
			return out, nil
		}
		off += frameAlign
	}
	return out, nil
}

// zeros returns how many bytes at the start of b are zero: all of them, or
// else a multiple of frameAlign.
func zeros(b []byte) int {
	n := 0
	for ; n+frameAlign <= len(b); n += frameAlign {
		if binary.LittleEndian.Uint64(b[n:]) != 0 {
			return n
		}
	}
	for _, c := range b[n:] {
		if c != 0 {
			return n
		}
	}
	return len(b)
}
