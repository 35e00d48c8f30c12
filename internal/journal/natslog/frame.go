package natslog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// A frame is what one message holds: the magic, a CRC-32C, the payload. The checksum
// covers what the message is, the journal's id and the payload, so that a message that
// was altered, or belongs elsewhere, does not pass.
const (
	frameMagic  = "xbn1"
	frameHeader = len(frameMagic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeFrame returns the frame with payload for the message of that name.
func encodeFrame(name string, id journal.ID, payload []byte) []byte {
	frame := make([]byte, frameHeader+len(payload))
	copy(frame, frameMagic)
	binary.LittleEndian.PutUint32(frame[len(frameMagic):], frameSum(name, id, payload))
	copy(frame[frameHeader:], payload)
	return frame
}

// decodeFrame returns the payload, which shares frame's memory, or ErrCorrupt.
func decodeFrame(name string, id journal.ID, frame []byte) ([]byte, error) {
	if len(frame) < frameHeader || string(frame[:len(frameMagic)]) != frameMagic {
		return nil, fmt.Errorf("the message for %s is no frame: %w", name, journal.ErrCorrupt)
	}
	payload := frame[frameHeader:]
	if binary.LittleEndian.Uint32(frame[len(frameMagic):]) != frameSum(name, id, payload) {
		return nil, fmt.Errorf("the message for %s does not match its checksum: %w", name, journal.ErrCorrupt)
	}
	return payload, nil
}

func frameSum(name string, id journal.ID, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(name))
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, id[:])
	return crc32.Update(sum, castagnoli, payload)
}
