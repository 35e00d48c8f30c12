package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// The bytes of a segment, all integers little-endian. README.md draws them.
const (
	HeaderSize      = 64 // of a segment, in bytes
	frameHeaderSize = 24
	frameAlign      = 8

	segmentMagic = "XBJOURNL"
	recordMagic  = 0x44434552 // "RECD"
	endMagic     = 0x4d444e45 // "ENDM"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the start of a segment.
type header struct {
	version uint32
	id      journal.ID
	first   journal.Slot
	// salt is random. It goes into the checksum of every frame's header, so
	// that bytes which only look like a frame, in a record or left over from
	// another file, are not taken for one.
	salt uint64
}

func (h header) encode() []byte {
	b := make([]byte, HeaderSize)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	copy(b[16:], h.id[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(h.first))
	binary.LittleEndian.PutUint64(b[40:], h.salt)
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b, castagnoli))
	return b
}

// decodeHeader reads what encode wrote. The error of a newer version is
// ErrNewerFormat; of anything else that encode does not write, ErrCorrupt.
func decodeHeader(b []byte) (header, error) {
	if len(b) < HeaderSize || string(b[:8]) != segmentMagic {
		return header{}, fmt.Errorf("this is not the start of a segment: %w", journal.ErrCorrupt)
	}
	h := header{
		version: binary.LittleEndian.Uint32(b[8:]),
		first:   journal.Slot(binary.LittleEndian.Uint64(b[32:])),
		salt:    binary.LittleEndian.Uint64(b[40:]),
	}
	copy(h.id[:], b[16:])
	if h.version > journal.FormatVersion {
		return header{}, journal.CheckFormat(int(h.version))
	}
	if string(h.encode()) != string(b[:HeaderSize]) {
		return header{}, fmt.Errorf("the segment's header fails its checksum: %w", journal.ErrCorrupt)
	}
	return h, nil
}

// seed is where the checksums of frame headers start in this segment.
func (h header) seed() uint32 {
	return crc32.Checksum(binary.LittleEndian.AppendUint64(nil, h.salt), castagnoli)
}

// frame is the header of a frame: a record, or the mark of a clean end.
type frame struct {
	end    bool         // the mark; it has no payload
	slot   journal.Slot // of the record; of the mark, the slot after the tail
	length int          // of the payload
	crc    uint32       // of the payload
}

// size is how far the next frame is from this one.
func (f frame) size() int64 { return FrameSize(f.length) }

// FrameSize is the size of a frame with a payload of n bytes.
func FrameSize(n int) int64 {
	return (frameHeaderSize + int64(n) + frameAlign - 1) &^ (frameAlign - 1)
}

// appendFrame appends the frame of a record to b. It allocates only to grow b.
func appendFrame(b []byte, seed uint32, slot journal.Slot, payload []byte) []byte {
	b = appendFrameHeader(b, seed, frame{slot: slot, length: len(payload), crc: crc32.Checksum(payload, castagnoli)})
	b = append(b, payload...)
	return append(b, padding(len(payload))...)
}

func appendFrameHeader(b []byte, seed uint32, f frame) []byte {
	start, magic := len(b), uint32(recordMagic)
	if f.end {
		magic = endMagic
	}
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.length))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.slot))
	b = binary.LittleEndian.AppendUint32(b, f.crc)
	return binary.LittleEndian.AppendUint32(b, crc32.Update(seed, castagnoli, b[start:]))
}

// padding is what follows a payload of n bytes up to the next frame.
func padding(n int) string {
	const zeros = "\x00\x00\x00\x00\x00\x00\x00\x00"
	return zeros[:FrameSize(n)-frameHeaderSize-int64(n)]
}

// decodeFrameHeader reads a frame's header. ok is false unless it is whole.
func decodeFrameHeader(b []byte, seed uint32) (f frame, ok bool) {
	if len(b) < frameHeaderSize {
		return frame{}, false
	}
	magic := binary.LittleEndian.Uint32(b)
	if magic != recordMagic && magic != endMagic {
		return frame{}, false
	}
	if binary.LittleEndian.Uint32(b[20:]) != crc32.Update(seed, castagnoli, b[:20]) {
		return frame{}, false
	}
	return frame{
		end:    magic == endMagic,
		length: int(binary.LittleEndian.Uint32(b[4:])),
		slot:   journal.Slot(binary.LittleEndian.Uint64(b[8:])),
		crc:    binary.LittleEndian.Uint32(b[16:]),
	}, true
}

var errBadFrame = errors.New("the frame fails its checksum")

// decodeRecord returns the payload of the frame that fills b, a part of b that
// cannot grow. The frame must be whole, and hold slot.
func decodeRecord(b []byte, seed uint32, slot journal.Slot) ([]byte, error) {
	f, ok := decodeFrameHeader(b, seed)
	if !ok || f.end || f.slot != slot || f.size() != int64(len(b)) {
		return nil, errBadFrame
	}
	payload := b[frameHeaderSize : frameHeaderSize+f.length : frameHeaderSize+f.length]
	if f.crc != crc32.Checksum(payload, castagnoli) || string(b[len(payload)+frameHeaderSize:]) != padding(f.length) {
		return nil, errBadFrame
	}
	return payload, nil
}
