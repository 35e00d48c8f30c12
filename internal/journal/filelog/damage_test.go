package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// smallJournal returns a journal of several segments with padding of every
// length in its frames, at rest, and what it holds.
func smallJournal(t *testing.T, closed bool) (*memFS, [][]byte) {
	t.Helper()
	disk := newMemFS(testRNG())
	l := mustOpen(t, disk, 4<<10)
	var want [][]byte
	for i := range 26 {
		want = append(want, bytes.Repeat([]byte{byte('a' + i)}, 400+i))
		mustAppend(t, l, journal.Slot(i+1), want[i])
	}
	if closed {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return disk.crash(never, testRNG()), want
}

func (m *memFS) contents() map[string]string {
	out := make(map[string]string)
	for name, file := range m.names {
		out[name] = string(file.data)
	}
	return out
}

// readDisk opens the journal on disk and reads all of it.
func readDisk(t *testing.T, disk *memFS) ([][]byte, error) {
	l, err := Open(t.Context(), dir, Options{fs: disk})
	if err != nil {
		return nil, err
	}
	return readFrom(l, l.floor)
}

// Flip every byte of a journal, one at a time: either all records are still
// there, or the damage is reported, with the file, and the disk left alone.
func TestBitFlips(t *testing.T) {
	for _, closed := range []bool{true, false} {
		disk, want := smallJournal(t, closed)
		names, found, lost := disk.contents(), 0, 0
		for name := range names {
			used := len(strings.TrimRight(names[name], "\x00"))
			for off := range min(len(names[name]), used+100) {
				copied := disk.crash(never, testRNG())
				copied.names[name].data[off] ^= 1 << (off % 8)
				before := copied.contents()
				got, err := readDisk(t, copied)
				switch {
				case err == nil && len(got) == len(want):
				case err == nil && !closed && len(got) == len(want)-1:
					lost++ // the last record, which cannot be told from a torn one
				case err == nil:
					t.Fatalf("%s with a bit of byte %d flipped (closed: %v): %d records, want %d or an error", name, off, closed, len(got), len(want))
				default:
					found++
					if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) {
						t.Fatalf("%s with a bit of byte %d flipped: %v, want ErrCorrupt", name, off, err)
					}
					if !strings.Contains(err.Error(), name) {
						t.Fatalf("%s with a bit of byte %d flipped: the error does not name the file: %v", name, off, err)
					}
					if strings.HasPrefix(err.Error(), "open journal") && !maps.Equal(before, copied.contents()) {
						t.Fatalf("%s with a bit of byte %d flipped: Open changed the disk and failed", name, off)
					}
				}
				for i := range got {
					if !bytes.Equal(got[i], want[i]) {
						t.Fatalf("%s with a bit of byte %d flipped: slot %d is wrong", name, off, i+1)
					}
				}
			}
		}
		if found < 8000 || lost > 500 {
			t.Errorf("closed: %v: damage was found %d times, and cost the last record %d times", closed, found, lost)
		}
	}
}

func TestDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(disk *memFS)
		want   error
		says   string
	}{
		{"a whole sector of zeros in the last segment", func(d *memFS) {
			clear(d.names[lastSegment(d)].data[headerSize+500:][:sector])
		}, journal.ErrCorrupt, "at offset"},
		{"half of the last segment is missing", func(d *memFS) {
			f := d.names[lastSegment(d)]
			clear(f.data[headerSize:][:1200])
		}, journal.ErrCorrupt, "at offset 64: the frame of slot"},
		{"meta.json is missing", func(d *memFS) { delete(d.names, dir+"/meta.json") }, journal.ErrCorrupt, "meta.json is missing"},
		{"the first segment is missing", func(d *memFS) { delete(d.names, segmentPath(dir, 1)) }, journal.ErrCorrupt, "holds slot 1 is missing"},
		{"all segments are missing", func(d *memFS) {
			maps.DeleteFunc(d.names, func(name string, _ *inode) bool { return strings.HasSuffix(name, ".log") })
		}, journal.ErrCorrupt, "holds slot 1 is missing"},
		{"a segment in the middle is missing", func(d *memFS) { delete(d.names, nthSegment(d, 1)) }, journal.ErrCorrupt, nthSegmentName},
		{"the last segment is missing", func(d *memFS) { delete(d.names, lastSegment(d)) }, journal.ErrCorrupt, "is missing: the log had records up to slot"},
		{"a segment is empty", func(d *memFS) { d.names[lastSegment(d)].data = nil }, journal.ErrCorrupt, "not the start of a segment"},
		{"a segment has another's name", func(d *memFS) {
			d.names[lastSegment(d)].data = bytes.Clone(d.names[nthSegment(d, 0)].data)
		}, journal.ErrCorrupt, "it is the segment from slot 1"},
		{"a segment is from another journal", func(d *memFS) {
			h, _ := decodeHeader(d.names[lastSegment(d)].data)
			h.id[0] ^= 1
			copy(d.names[lastSegment(d)].data, h.encode())
		}, journal.ErrCorrupt, "journal "},
		{"meta.json of a newer xb", func(d *memFS) {
			d.names[dir+"/meta.json"].data = []byte(`{"format":9,"shape":"round"}`)
		}, journal.ErrNewerFormat, "use the xb that wrote it"},
		{"a segment of a newer xb", func(d *memFS) {
			h, _ := decodeHeader(d.names[lastSegment(d)].data)
			h.version = journal.FormatVersion + 1
			copy(d.names[lastSegment(d)].data, h.encode())
		}, journal.ErrNewerFormat, "use the xb that wrote it"},
		{"meta.json is not JSON", func(d *memFS) {
			d.names[dir+"/meta.json"].data = []byte("hello")
		}, journal.ErrCorrupt, "meta.json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk, _ := smallJournal(t, true)
			tc.damage(disk)
			before := disk.contents()
			_, err := readDisk(t, disk)
			if !errors.Is(err, tc.want) || !strings.Contains(fmt.Sprint(err), strings.ReplaceAll(tc.says, nthSegmentName, nthSegment(disk, 0))) {
				t.Fatalf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
			if strings.HasPrefix(err.Error(), "open journal") && !maps.Equal(before, disk.contents()) {
				t.Error("Open changed the disk and failed")
			}
			r, err := openReader(t.Context(), dir, disk)
			if err == nil {
				_, err = readFrom(r, 1)
			}
			if !errors.Is(err, tc.want) && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a reader got %v, want %v", err, tc.want)
			}
		})
	}
}

const nthSegmentName = "<the first segment>"

func nthSegment(d *memFS, n int) string {
	names, _ := d.ReadDir(dir + "/" + journalDir)
	if len(names) == 0 {
		return ""
	}
	return dir + "/" + journalDir + "/" + names[n]
}

func lastSegment(d *memFS) string {
	names, _ := d.ReadDir(dir + "/" + journalDir)
	return nthSegment(d, len(names)-1)
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
	clear(gap[headerSize : headerSize+8])
	f.Add(gap, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, until uint64) {
		if len(data) >= headerSize {
			if got, err := decodeHeader(data); err == nil && !bytes.Equal(got.encode(), data[:headerSize]) {
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
		// What was found is exactly what would have been written.
		again := make([]byte, headerSize)
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
			t.Fatal("what was found is not what was written")
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

func FuzzMeta(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"000102030405060708090a0b0c0d0e0f","floor":1,"crc32c":"00000000"}`))
	f.Add([]byte(`{"format":9}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMeta(data)
		if err == nil && m.floor == 0 {
			t.Fatal("floor 0 was accepted")
		}
		if err != nil && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) && !errors.Is(err, journal.ErrOlderFormat) {
			t.Fatalf("decodeMeta = %v", err)
		}
	})
}
