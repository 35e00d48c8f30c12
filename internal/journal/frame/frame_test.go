package frame_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/frame"
)

const format = frame.Format("xbt1")

// TestFrames: whichever bit of a frame is flipped, and whichever name, journal or driver it is
// taken for, it does not pass.
func TestFrames(t *testing.T) {
	id := journal.ID{1}
	whole := format.Encode("slot/7", id, []byte("payload"))
	if got, err := format.Decode("slot/7", id, whole); err != nil || string(got) != "payload" {
		t.Fatalf("the frame holds %q, %v", got, err)
	}
	corrupt := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%s: %v, want that it is corrupt", what, err)
		}
	}
	for bit := range 8 * len(whole) {
		flipped := slices.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		_, err := format.Decode("slot/7", id, flipped)
		corrupt("a frame with a flipped bit", err)
	}
	_, err := format.Decode("slot/8", id, whole)
	corrupt("a frame under another name", err)
	_, err = format.Decode("slot/7", journal.ID{2}, whole)
	corrupt("a frame in another journal", err)
	_, err = frame.Format("xbt2").Decode("slot/7", id, whole)
	corrupt("a frame of another driver", err)
}

func FuzzDecode(f *testing.F) {
	id := journal.ID{1}
	for _, payload := range []string{"", "x", "a longer payload"} {
		whole := format.Encode("slot/7", id, []byte(payload))
		f.Add(whole)
		f.Add(whole[:len(whole)-1])
	}
	f.Add([]byte(format))
	f.Fuzz(func(t *testing.T, found []byte) {
		payload, err := format.Decode("slot/7", id, found)
		if err != nil {
			if !errors.Is(err, journal.ErrCorrupt) {
				t.Errorf("error %v is not ErrCorrupt", err)
			}
			// What is no frame is payload all the same.
			got, err := format.Decode("n", id, format.Encode("n", id, found))
			if err != nil || !bytes.Equal(got, found) {
				t.Errorf("payload %x came back as %x, %v", found, got, err)
			}
			return
		}
		if !bytes.Equal(format.Encode("slot/7", id, payload), found) {
			t.Errorf("frame %x decodes to %x, which encodes otherwise", found, payload)
		}
		if _, err := format.Decode("slot/8", id, found); err == nil {
			t.Errorf("frame %x passes under another name", found)
		}
	})
}
