package objectlog

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

var testID = journal.ID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

// TestFrameBytes pins the format: these are the bytes of README.md's example.
func TestFrameBytes(t *testing.T) {
	frame := format.Encode(slotName(1), testID, []byte("hello"))
	const want = "786273314da859f168656c6c6f"
	if got := hex.EncodeToString(frame); got != want {
		t.Errorf("frame = %s, want %s", got, want)
	}
	if got := slotName(1); got != "journal/00000000000000000001" {
		t.Errorf("slot 1 is named %s", got)
	}
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte(`{"format":1,"journal":"00112233445566778899aabbccddeeff","created":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"format":99}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := decodeMeta(data)
		if err == nil && id.String() == "" || err != nil && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) && !errors.Is(err, journal.ErrOlderFormat) {
			t.Errorf("decodeMeta(%q) = %v, %v", data, id, err)
		}
	})
}

func FuzzSlotOf(f *testing.F) {
	f.Add("00000000000000000012")
	f.Add("+0000000000000000012")
	f.Add("12")
	f.Fuzz(func(t *testing.T, digits string) {
		if slot, ok := slotOf(digits); ok && slotName(slot) != slotPrefix+digits {
			t.Errorf("%q is slot %d, whose name is %s", digits, slot, slotName(slot))
		}
	})
}
