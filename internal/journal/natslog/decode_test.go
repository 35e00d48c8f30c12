package natslog

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// TestFrameBytes pins the format, and the words for a message that does not have it.
func TestFrameBytes(t *testing.T) {
	got := hex.EncodeToString(format.Encode("slot/7", journal.ID{1}, []byte("hello")))
	if want := "78626e31306cf77d68656c6c6f"; got != want {
		t.Errorf("frame = %s, want %s", got, want)
	}
	_, err := decodeFrame("slot/7", journal.ID{1}, []byte("hello"))
	if want := "the message for slot/7 is no frame"; !errors.Is(err, journal.ErrCorrupt) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("of another message: %v, want %s", err, want)
	}
}

// FuzzHead: whatever a head says, what follows from it is bounded.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"size":3000000,"chunk":1048576,"part":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","sum":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`))
	f.Add([]byte(`{"size":1e30}`))
	f.Add([]byte(`{"size":67108864,"chunk":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHead(data)
		if err != nil {
			if !errors.Is(err, journal.ErrCorrupt) {
				t.Errorf("decodeHead = %v, want %v", err, journal.ErrCorrupt)
			}
			return
		}
		if n := h.chunks(); n < 0 || n > journal.MaxBlob/leastChunk || h.Size > journal.MaxBlob || h.Size > n*h.Chunk || len(h.Part) != 26 {
			t.Errorf("%+v was let through, with %d chunks", h, n)
		}
	})
}

// TestLeads: a leader that has heard from no majority of the replicas lately is not
// believed to lead still.
func TestLeads(t *testing.T) {
	heard := func(ago ...time.Duration) *jetstream.ClusterInfo {
		info := &jetstream.ClusterInfo{}
		for _, d := range ago {
			info.Replicas = append(info.Replicas, &jetstream.PeerInfo{Active: d})
		}
		return info
	}
	for name, test := range map[string]struct {
		replicas int
		cluster  *jetstream.ClusterInfo
		want     bool
	}{
		"one replica, no cluster":       {1, nil, true},
		"one replica in a cluster":      {1, heard(), true},
		"both others lately":            {3, heard(time.Second, time.Millisecond), true},
		"one other lately":              {3, heard(time.Hour, time.Second), true},
		"both others long ago":          {3, heard(4*time.Second, 5*time.Second), false},
		"never from any":                {3, heard(0, 0), false},
		"it names no others":            {3, nil, false},
		"two of four others":            {5, heard(time.Second, time.Second, time.Hour, 0), true},
		"one of four others, of a liar": {5, &jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{nil, nil, {Active: 1}}}, false},
	} {
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: test.replicas}, Cluster: test.cluster}
		if got := leads(info); got != test.want {
			t.Errorf("%s: leads = %v, want %v", name, got, test.want)
		}
	}
}
