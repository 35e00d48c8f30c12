// Package frame is how a driver stores bytes under a name: with a magic and a CRC-32C before
// them. The checksum covers the name, the journal's id and the bytes, so that bytes that were
// altered, moved to another name, or brought in from another journal do not pass. It stores
// nothing itself.
package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Format is the magic of four bytes with which the frames of one driver begin.
type Format string

// Header is how many bytes of a frame are before its payload.
const Header = magicSize + 4

const magicSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the frame with payload that belongs under name.
func (f Format) Encode(name string, id journal.ID, payload []byte) []byte {
	frame := make([]byte, Header+len(payload))
	copy(frame[:magicSize], f)
	binary.LittleEndian.PutUint32(frame[magicSize:], sum(name, id, payload))
	copy(frame[Header:], payload)
	return frame
}

// Decode returns the payload of what was found under name, which shares frame's memory, or
// journal.ErrCorrupt. The error is part of a sentence whose subject is what was found.
func (f Format) Decode(name string, id journal.ID, frame []byte) ([]byte, error) {
	if len(frame) < Header || string(frame[:magicSize]) != string(f) {
		return nil, fmt.Errorf("is no frame: %w", journal.ErrCorrupt)
	}
	payload := frame[Header:]
	if binary.LittleEndian.Uint32(frame[magicSize:]) != sum(name, id, payload) {
		return nil, fmt.Errorf("does not match its checksum: %w", journal.ErrCorrupt)
	}
	return payload, nil
}

func sum(name string, id journal.ID, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(name))
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, id[:])
	return crc32.Update(sum, castagnoli, payload)
}
