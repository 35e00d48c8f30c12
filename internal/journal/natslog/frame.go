package natslog

import (
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/frame"
)

// format is of the frames that messages hold.
const format = frame.Format("xbn1")

// decodeFrame returns the payload of the message for name, which shares message's memory, or
// ErrCorrupt.
func decodeFrame(name string, id journal.ID, message []byte) ([]byte, error) {
	payload, err := format.Decode(name, id, message)
	if err != nil {
		return nil, fmt.Errorf("the message for %s %w", name, err)
	}
	return payload, nil
}
