package objectlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// A frame is what one object holds: the magic, a CRC-32C, the payload. The
// checksum covers the object's name below the prefix, the journal's id and
// the payload, so that an object that was altered, moved to another name, or
// brought in from another journal does not pass.
const (
	frameMagic  = "xbs1"
	frameHeader = len(frameMagic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeFrame returns the frame with payload for the object of that name.
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
		return nil, fmt.Errorf("object %s is no frame: %w", name, journal.ErrCorrupt)
	}
	payload := frame[frameHeader:]
	if binary.LittleEndian.Uint32(frame[len(frameMagic):]) != frameSum(name, id, payload) {
		return nil, fmt.Errorf("object %s does not match its checksum: %w", name, journal.ErrCorrupt)
	}
	return payload, nil
}

func frameSum(name string, id journal.ID, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(name))
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, id[:])
	return crc32.Update(sum, castagnoli, payload)
}

// frames reads the objects of one journal that hold frames.
type frames struct {
	bucket *bucket.Bucket
	id     journal.ID // of the journal, which every frame's checksum covers
}

// encode returns the frame that belongs under name.
func (f frames) encode(name string, payload []byte) []byte { return encodeFrame(name, f.id, payload) }

// get returns the payload under name, of at most most bytes, or
// bucket.ErrAbsent, and when the store looked. A frame that does not match its
// checksum is read twice more, in case it was altered on the way.
func (f frames) get(ctx context.Context, name string, most int) (payload []byte, at time.Time, err error) {
	for range 3 {
		var frame []byte
		err = f.bucket.Again(ctx, func() (err error) {
			frame, at, err = f.bucket.Get(ctx, name, int64(frameHeader+most))
			return err
		})
		if errors.Is(err, bucket.ErrTooLong) {
			return nil, at, fmt.Errorf("%w: %w", err, journal.ErrCorrupt)
		}
		if err != nil {
			return nil, at, err
		}
		if payload, err = decodeFrame(name, f.id, frame); err == nil {
			return payload, at, nil
		}
	}
	return nil, at, err
}

// record returns the record at slot or bucket.ErrAbsent, and when the store looked.
func (f frames) record(ctx context.Context, slot journal.Slot) ([]byte, time.Time, error) {
	return f.get(ctx, slotName(slot), maxRecord)
}
