package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
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
	return readFrom(l, l.view.floor)
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
			clear(d.names[lastSegment(d)].data[segment.HeaderSize+500:][:sector])
		}, journal.ErrCorrupt, "at offset"},
		{"half of the last segment is missing", func(d *memFS) {
			f := d.names[lastSegment(d)]
			clear(f.data[segment.HeaderSize:][:1200])
		}, journal.ErrCorrupt, "at offset 64: the frame of slot"},
		{"meta.json is missing", func(d *memFS) { delete(d.names, dir+"/meta.json") }, journal.ErrCorrupt, "meta.json is missing"},
		{"the first segment is missing", func(d *memFS) { delete(d.names, segment.Path(dir+"/"+journalDir, 1)) }, journal.ErrCorrupt, "holds slot 1 is missing"},
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
			changeHeader(d.names[lastSegment(d)].data, func(b []byte) { b[16] ^= 1 }) // its id
		}, journal.ErrCorrupt, "journal "},
		{"meta.json of a newer xb", func(d *memFS) {
			d.names[dir+"/meta.json"].data = []byte(`{"format":9,"shape":"round"}`)
		}, journal.ErrNewerFormat, "use the xb that wrote it"},
		{"a segment of a newer xb", func(d *memFS) {
			changeHeader(d.names[lastSegment(d)].data, func(b []byte) { b[8]++ }) // its format
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

// changeHeader changes the header of the segment data, and mends its checksum.
func changeHeader(data []byte, change func(b []byte)) {
	b := data[:segment.HeaderSize]
	change(b)
	clear(b[12:16])
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b, castagnoli))
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
