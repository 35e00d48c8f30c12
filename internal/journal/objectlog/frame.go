package objectlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/frame"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// format is of the frames that objects hold, by the objects' names below the prefix.
const format = frame.Format("xbs1")

// frames reads the objects of one journal that hold frames.
type frames struct {
	bucket *bucket.Bucket
	id     journal.ID // of the journal, which every frame's checksum covers
}

// encode returns the frame that belongs under name.
func (f frames) encode(name string, payload []byte) []byte { return format.Encode(name, f.id, payload) }

// get returns the payload under name, of at most most bytes, or
// bucket.ErrAbsent, and when the store looked. A frame that does not match its
// checksum is read twice more, in case it was altered on the way.
func (f frames) get(ctx context.Context, name string, most int) (payload []byte, at time.Time, err error) {
	for range 3 {
		var object []byte
		err = f.bucket.Again(ctx, func() (err error) {
			object, at, err = f.bucket.Get(ctx, name, int64(frame.Header+most))
			return err
		})
		if errors.Is(err, bucket.ErrTooLong) {
			return nil, at, fmt.Errorf("%w: %w", err, journal.ErrCorrupt)
		}
		if err != nil {
			return nil, at, err
		}
		if payload, err = format.Decode(name, f.id, object); err == nil {
			return payload, at, nil
		}
		err = fmt.Errorf("object %s %w", name, err)
	}
	return nil, at, err
}

// record returns the record at slot or bucket.ErrAbsent, and when the store looked.
func (f frames) record(ctx context.Context, slot journal.Slot) ([]byte, time.Time, error) {
	return f.get(ctx, slotName(slot), maxRecord)
}
