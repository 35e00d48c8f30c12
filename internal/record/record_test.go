package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
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
	Agrees:      true,
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

// A record of which a bit is flipped, or bytes are cut off or added, is no record.
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
		"an unknown flag":                with(77, 4),
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

// claims are frames of a few bytes that stand for far more than what is allowed.
func claims(t testing.TB) map[string][]byte {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer // whose length is not in its header
	w, err := zstd.NewWriter(&stream)
	if err != nil {
		t.Fatal(err)
	}
	for range 256 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := enc.EncodeAll(make([]byte, 256<<20), nil)
	return map[string][]byte{
		"a length in the header":    bomb,
		"no length in the header":   stream.Bytes(),
		"many frames":               bytes.Repeat(enc.EncodeAll(make([]byte, 1<<20), nil), 256),
		"a length that is not true": {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0},
		"a window of gigabytes":     {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xb0, 1, 0, 0},
	}
}

// TestDecompressHoldsLittle: memory is bounded by what is allowed, not by what
// the bytes claim.
func TestDecompressHoldsLittle(t *testing.T) {
	for name, b := range claims(t) {
		for _, most := range []int{32 << 10, MaxBody} {
			var out []byte
			var err error
			_, _ = Decompress(Compress(nil, make([]byte, most)), most) // what it keeps for the next time
			got := allocated(func() { out, err = Decompress(b, most) })
			if limit := uint64(4*most + 1<<20); got > limit || len(out) > most {
				t.Errorf("%s: %d bytes took %d bytes of memory, of %d allowed (%v)", name, len(b), got, limit, err)
			}
		}
	}
	long := make([]byte, 1<<20)
	if got, err := Decompress(Compress(nil, long), len(long)); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes came back as %d, %v", len(long), len(got), err)
	}
}

// TestParseHoldsLittle: a small record cannot make its reader use much memory.
func TestParseHoldsLittle(t *testing.T) {
	op := []byte{2, 0, 0, 0, 0, 0} // an empty put
	body := append([]byte{1, 1, 0, 0xff, 0xff, 0x3f}, bytes.Repeat(op, 1<<20)...)
	big := Append(nil, &someHeader, body, true)
	if len(big) > 64<<10 {
		t.Fatalf("the record has %d bytes", len(big))
	}
	var err error
	got := allocated(func() {
		if _, body, err = Parse(big); err == nil {
			_, err = mvcc.ParseRequests(body)
		}
	})
	if got > 8*MaxBody || err == nil {
		t.Errorf("a record of %d bytes took %d bytes of memory (%v)", len(big), got, err)
	}
}

// allocated is how many bytes f asks the heap for. Nothing else may run.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestParseOtherFormat: a record that another version wrote is not void, because that
// would lose what it says. Bytes that only look like such a record are void.
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
	for _, b := range claims(f) {
		if len(b) > 64<<10 {
			continue // too long to make others of
		}
		rec := Append(nil, &someHeader, b, false)
		rec[77] = flagZstd
		f.Add(rec)
	}
	f.Fuzz(func(t *testing.T, rec []byte) {
		if len(rec) >= Overhead {
			rec = reseal(bytes.Clone(rec)) // or nothing gets past the checksum
		}
		var h Header
		var body []byte
		var err error
		// What a decompressor keeps for the next time comes on top.
		if got := allocated(func() { h, body, err = Parse(rec) }); got > 16*MaxBody {
			t.Errorf("a record of %d bytes took %d bytes of memory", len(rec), got)
		}
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
