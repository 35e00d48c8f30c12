package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

var someHeader = Header{
	Journal:     ours,
	Writer:      0x1122334455667788,
	Number:      42,
	Anchor:      7,
	AnchorChain: Chain{0xaa, 0xbb},
	Kind:        Batch,
	Turns:       0x1234,
}

func TestParse(t *testing.T) {
	text := bytes.Repeat([]byte("a body that compresses "), 100)
	for _, body := range [][]byte{nil, {0}, []byte("short"), text} {
		for _, compress := range []bool{false, true} {
			for _, kind := range []Kind{Batch, Floor, Snapshot} {
				h := someHeader
				h.Kind = kind
				rec := Append([]byte("before"), &h, body, compress)[len("before"):]
				if len(rec) > len(body)+Overhead {
					t.Errorf("%d bytes for a body of %d", len(rec), len(body))
				}
				if compress && len(body) == len(text) && len(rec) > len(text)/4 {
					t.Errorf("%d bytes for a body of %d that compresses well", len(rec), len(body))
				}
				back, got, err := Parse(rec)
				if err != nil {
					t.Fatal(err)
				}
				if back != h || !bytes.Equal(got, body) {
					t.Errorf("%+v, %q came back as %+v, %q", h, body, back, got)
				}
			}
		}
	}
}

// Whatever bit is flipped, whatever is cut off or put on: it is no record.
func TestParseDamaged(t *testing.T) {
	for _, compress := range []bool{false, true} {
		rec := Append(nil, &someHeader, bytes.Repeat([]byte("body "), 40), compress)
		for i := range len(rec) * 8 {
			bad := bytes.Clone(rec)
			bad[i/8] ^= 1 << (i % 8)
			if _, _, err := Parse(bad); !errors.Is(err, ErrMalformed) {
				t.Errorf("bit %d flipped: %v", i, err)
			}
		}
		for n := range rec {
			if _, _, err := Parse(rec[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d of %d bytes: %v", n, len(rec), err)
			}
		}
		if _, _, err := Parse(append(bytes.Clone(rec), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

// reseal gives a changed record the checksum that it needs to be looked at.
func reseal(rec []byte) []byte {
	end := len(rec) - 4
	binary.LittleEndian.PutUint32(rec[end:], crc32.Checksum(rec[:end], castagnoli))
	return rec
}

// Records with a good checksum that are void all the same.
func TestParseVoid(t *testing.T) {
	stored := func(flags byte, body []byte) []byte {
		rec := Append(nil, &someHeader, body, false)
		rec[77] = flags
		return reseal(rec)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := enc.EncodeAll(make([]byte, MaxBody), nil)
	beyond := enc.EncodeAll(make([]byte, MaxBody+1), nil)
	half := enc.EncodeAll(make([]byte, MaxBody/2+1), nil)

	if _, body, err := Parse(stored(flagZstd, at)); err != nil || len(body) != MaxBody {
		t.Errorf("the longest body: %d bytes, %v", len(body), err)
	}
	with := func(at int, b byte) []byte {
		rec := Append(nil, &someHeader, []byte("body"), false)
		rec[at] = b
		return reseal(rec)
	}
	for name, rec := range map[string][]byte{
		"kind 0":                         with(76, 0),
		"kind 4":                         with(76, 4),
		"an unknown flag":                with(77, 2),
		"a length beside the body's":     with(80, 5),
		"compressed, but no zstd":        stored(flagZstd, []byte("body")),
		"a frame that is cut":            stored(flagZstd, at[:len(at)-1]),
		"a longer body":                  stored(flagZstd, beyond),
		"two frames that are one longer": stored(flagZstd, append(bytes.Clone(half), half...)),
		"a longer body, not compressed":  stored(0, make([]byte, MaxBody+1)),
	} {
		if _, _, err := Parse(rec); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecompressAll: a part of a snapshot is as long as what one key was before.
func TestDecompressAll(t *testing.T) {
	long := make([]byte, MaxBody+1)
	if got, err := DecompressAll(Compress(nil, long)); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes came back as %d, %v", len(long), len(got), err)
	}
}

// TestParseOtherFormat: a record that another version wrote is not void, which
// would lose what it says; bytes that only look like one are.
func TestParseOtherFormat(t *testing.T) {
	rec := Append(nil, &someHeader, []byte("body"), false)
	rec[3]++
	if _, _, err := Parse(rec); !errors.Is(err, ErrMalformed) {
		t.Errorf("with a wrong checksum: %v", err)
	}
	rec = reseal(rec)
	if _, _, err := NewChains(someHeader.Journal).Take(someHeader.Journal, rec); !errors.Is(err, ErrFormat) {
		t.Errorf("of this journal: %v", err)
	}
	other := someHeader.Journal
	other[0]++
	if _, _, err := NewChains(other).Take(other, rec); !errors.Is(err, ErrForeign) || errors.Is(err, ErrMalformed) {
		t.Errorf("of another journal: %v", err)
	}
}

func TestSnapshotMark(t *testing.T) {
	m := SnapshotMark{Slot: 1 << 40, Hash: [32]byte{1, 2, 3}}
	b := m.Append(nil)
	back, err := ParseSnapshotMark(b)
	if err != nil || back != m {
		t.Errorf("%+v came back as %+v, %v", m, back, err)
	}
	for _, bad := range [][]byte{nil, b[1:], append(bytes.Clone(b), 0)} {
		if _, err := ParseSnapshotMark(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

func TestFloorMark(t *testing.T) {
	m := FloorMark{Slot: 1 << 40}
	b := m.Append(nil)
	back, err := ParseFloorMark(b)
	if err != nil || back != m {
		t.Errorf("%+v came back as %+v, %v", m, back, err)
	}
	for _, bad := range [][]byte{nil, b[1:], append(bytes.Clone(b), 0)} {
		if _, err := ParseFloorMark(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

// Take extends the chain whatever the record is, and says why it is void.
func TestTake(t *testing.T) {
	a, b := longChains(5), longChains(5)
	h := Header{Journal: ours, Number: 1, Anchor: 3, AnchorChain: a.ring[3], Kind: Batch}
	good := Append(nil, &h, []byte("body"), false)
	got, body, err := a.Take(ours, good)
	if err != nil || got != h || string(body) != "body" {
		t.Errorf("%+v, %q, %v", got, body, err)
	}
	b.Extend(DigestOf(good))
	for _, bad := range []struct {
		rec  []byte
		want error
	}{
		{[]byte("no record"), ErrMalformed},
		{nil, ErrMalformed},
		{Append(nil, &Header{Journal: theirs, Kind: Batch}, nil, false), ErrForeign},
	} {
		if _, _, err := a.Take(ours, bad.rec); !errors.Is(err, bad.want) {
			t.Errorf("%q: %v", bad.rec, err)
		}
		b.Extend(DigestOf(bad.rec))
	}
	if *a != *b {
		t.Error("the chains differ")
	}
}

func FuzzParse(f *testing.F) {
	put := mvcc.AppendRequests(nil, []*mvcc.Request{{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: "k"}, Value: []byte("v")}}}})
	f.Add(Append(nil, &someHeader, put, false))
	f.Add(Append(nil, &someHeader, bytes.Repeat(put, 50), true))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, rec []byte) {
		if len(rec) >= Overhead {
			rec = reseal(bytes.Clone(rec)) // or nothing gets past the checksum
		}
		h, body, err := Parse(rec)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrFormat) {
				t.Error(err)
			}
			return
		}
		if len(body) > MaxBody {
			t.Errorf("%d bytes of body", len(body))
		}
		if len(body) > 64<<10 {
			return // to compress it again only makes fuzzing slow
		}
		for _, compress := range []bool{false, true} {
			back, again, err := Parse(Append(nil, &h, body, compress))
			if err != nil || back != h || !bytes.Equal(again, body) {
				t.Errorf("%+v with %d bytes came back as %+v with %d, %v", h, len(body), back, len(again), err)
			}
		}
	})
}

func FuzzParseSnapshotMark(f *testing.F) {
	f.Add(SnapshotMark{Slot: 9}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseSnapshotMark(b); err == nil && !bytes.Equal(m.Append(nil), b) {
			t.Error("does not encode to what it was decoded from")
		}
	})
}
