package segment

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func TestSuspectFrom(t *testing.T) {
	const b = suspectBlock
	for _, tc := range []struct {
		offsets []uint32
		want    int
	}{
		{[]uint32{64}, 0},
		{[]uint32{64, 100}, 0},
		{[]uint32{64, 100, 200}, 0},
		{[]uint32{64, b, b + 100}, 1},     // ends where the block starts
		{[]uint32{64, b + 8, b + 100}, 0}, // ends in it
		{[]uint32{64, 100, b - 8, b + 8, b + 100}, 2},
		{[]uint32{64, 100, 3 * b, 3*b + 8}, 2},
		{[]uint32{64, 100, 3*b + 8}, 0},
	} {
		if got := suspectFrom(tc.offsets); got != tc.want {
			t.Errorf("suspectFrom(%v) = %d, want %d", tc.offsets, got, tc.want)
		}
	}
}

func FuzzScan(f *testing.F) {
	h := header{version: 1, first: 5, salt: 99}
	whole := h.encode()
	for i, rec := range []string{"one", "", "three is a bit longer"} {
		whole = appendFrame(whole, h.seed(), h.first+journal.Slot(i), []byte(rec))
	}
	f.Add(whole, uint64(0))
	f.Add(whole, uint64(8))
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...), uint64(0))
	f.Add(appendFrameHeader(bytes.Clone(whole), h.seed(), frame{end: true, slot: 8}), uint64(0))
	f.Add(whole[:len(whole)-9], uint64(0))
	gap := bytes.Clone(whole)
	clear(gap[HeaderSize : HeaderSize+8])
	f.Add(gap, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, until uint64) {
		if len(data) >= HeaderSize {
			if got, err := decodeHeader(data); err == nil && !bytes.Equal(got.encode(), data[:HeaderSize]) {
				t.Fatal("a header was accepted that encode does not write")
			}
		}
		found, err := scan(bytes.NewReader(data), int64(len(data)), h, newScan(), journal.Slot(until))
		if err != nil {
			if !errors.Is(err, journal.ErrCorrupt) {
				t.Fatalf("scan = %v, want ErrCorrupt", err)
			}
			return
		}
		n := len(found.offsets) - 1
		if until != 0 && h.first+journal.Slot(n) < journal.Slot(until) {
			t.Fatalf("scan found %d records, fewer than there must be", n)
		}
		// The records that were found encode to the same bytes.
		again := make([]byte, HeaderSize)
		if n > 0 {
			copy(again, data)
		}
		for i := range n {
			a, b := found.offsets[i], found.offsets[i+1]
			rec, err := decodeRecord(data[a:b:b], h.seed(), h.first+journal.Slot(i))
			if err != nil {
				t.Fatalf("record %d was found and does not decode", i)
			}
			again = appendFrame(again, h.seed(), h.first+journal.Slot(i), rec)
		}
		if n > 0 && !bytes.Equal(again, data[:len(again)]) {
			t.Fatal("the records that were found encode to other bytes")
		}
		if until == 0 && !found.torn { // clean: nothing but zeros, and a mark at most
			if rest := bytes.Trim(data[min(len(data), int(found.end())):], "\x00"); len(rest) > frameHeaderSize {
				t.Fatalf("%d bytes after the end were called clean", len(rest))
			}
		}
		// Scanning on from any point finds the same.
		part := scanned{offsets: append([]uint32(nil), found.offsets[:n/2+1]...)}
		if rest, err := scan(bytes.NewReader(data), int64(len(data)), h, part, journal.Slot(until)); err != nil || len(rest.offsets) != n+1 || rest.torn != found.torn {
			t.Fatalf("scanning on from record %d: %v, %v", n/2, rest, err)
		}
	})
}
