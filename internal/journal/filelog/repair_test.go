package filelog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// failOnce makes the next call of op on a name with part in it fail with err.
func failOnce(fs *memFS, op, part string, err error) {
	fs.before = func(o, name string) error {
		if o == op && strings.Contains(name, part) {
			fs.before = nil
			return err
		}
		return nil
	}
}

func mustOpen(t *testing.T, fs disk.FS, size int64) *Log {
	t.Helper()
	l, err := Open(t.Context(), dir, Options{SegmentSize: size, fs: fs})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t *testing.T, l *Log, slot journal.Slot, rec []byte) {
	t.Helper()
	if err := l.Append(t.Context(), slot, rec); err != nil {
		t.Fatal(err)
	}
}

// wantRecords checks what s holds from slot 1 on.
func wantRecords(t *testing.T, s journal.Store, want ...[]byte) {
	t.Helper()
	got, err := readFrom(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("the journal holds %d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("slot %d holds %d other bytes", i+1, len(got[i]))
		}
	}
}

// After an fdatasync that failed, the page cache shows a record that the disk
// need not have. It must not be shown before it is durable again.
func TestSyncFails(t *testing.T) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 0)
	one, two := []byte("one"), bytes.Repeat([]byte("two"), 2000)
	mustAppend(t, l, 1, one)
	failOnce(fs, "sync", ".log", unix.EIO)
	err := l.Append(t.Context(), 2, two)
	if !errors.Is(err, unix.EIO) || errors.Is(err, journal.ErrTaken) {
		t.Fatalf("Append whose fdatasync fails = %v, want EIO", err)
	}
	wantRecords(t, l, one)
	failed := l.tail.Segment

	err = l.Append(t.Context(), 2, two)
	if !errors.Is(err, journal.ErrTaken) { // it could be read, so it was saved
		t.Fatalf("Append again = %v, want ErrTaken", err)
	}
	if l.tail.Segment == failed {
		t.Fatal("the log goes on in the file that failed")
	}
	wantRecords(t, l, one, two)
	wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), one, two)
	mustAppend(t, l, 3, one)
	wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), one, two, one)
}

// The same, and the process dies before it can repair anything.
func TestSyncFailsThenKilled(t *testing.T) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 0)
	mustAppend(t, l, 1, []byte("one"))
	two := bytes.Repeat([]byte("two"), 2000)
	failOnce(fs, "sync", ".log", unix.EIO)
	if err := l.Append(t.Context(), 2, two); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	fs.unlock()
	l = mustOpen(t, fs, 0) // reads the page cache
	wantRecords(t, l, []byte("one"), two)
	wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), []byte("one"), two)
}

func TestRepairFailsThenWorks(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "rename", "syncdir"} {
		fs := newMemFS(testRNG())
		l := mustOpen(t, fs, 0)
		mustAppend(t, l, 1, []byte("one"))
		failOnce(fs, "write", ".log", unix.EIO)
		if err := l.Append(t.Context(), 2, []byte("two")); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		failOnce(fs, op, "", unix.EIO)
		if err := l.Append(t.Context(), 2, []byte("two")); !errors.Is(err, unix.EIO) {
			t.Fatalf("Append while the repair fails in %s = %v, want EIO", op, err)
		}
		wantRecords(t, l, []byte("one"))
		wantRecords(t, mustOpen(t, fs.crash(always, testRNG()), 0), []byte("one"))
		mustAppend(t, l, 2, []byte("two"))
		wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), []byte("one"), []byte("two"))
	}
}

// A new segment may be on the disk although making it failed. A record that
// would still fit into the old one must not go there: it would be lost.
func TestRollFails(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "rename", "syncdir"} {
		fs := newMemFS(testRNG())
		l := mustOpen(t, fs, 4<<10)
		small, large := []byte("small"), make([]byte, 5000)
		mustAppend(t, l, 1, small)
		failOnce(fs, op, "", unix.EIO)
		if err := l.Append(t.Context(), 2, large); !errors.Is(err, unix.EIO) {
			t.Fatalf("Append while %s fails = %v, want EIO", op, err)
		}
		wantRecords(t, mustOpen(t, fs.crash(always, testRNG()), 0), small)
		mustAppend(t, l, 2, small)
		mustAppend(t, l, 3, large)
		for _, keep := range []func() bool{never, always} {
			wantRecords(t, mustOpen(t, fs.crash(keep, testRNG()), 0), small, small, large)
		}
	}
}

func TestDiskFull(t *testing.T) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 4<<10)
	fs.capacity = 16 << 10
	rec := bytes.Repeat([]byte("r"), 1000)
	var want [][]byte
	for {
		err := l.Append(t.Context(), l.view.next, rec)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil || len(want) > 100 {
			t.Fatalf("Append %d on a disk that fills up = %v", l.view.next, err)
		}
		want = append(want, rec)
	}
	if len(want) < 12 {
		t.Errorf("the disk was full after %d records of 1000 bytes, and has room for 16 KiB", len(want))
	}
	for range 3 {
		if err := l.Append(t.Context(), l.view.next, rec); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make some, and writes go on") {
			t.Fatalf("Append on a full disk = %v, want ENOSPC, and what to do", err)
		}
	}
	wantRecords(t, l, want...)
	if err := l.PutBlob(t.Context(), "b", make([]byte, 10_000)); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("PutBlob on a full disk = %v, want ENOSPC", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, fs, 4<<10) // starts on a full disk too
	wantRecords(t, l, want...)

	fs.capacity = 0 // space is back
	mustAppend(t, l, l.view.next, rec)
	want = append(want, rec)
	wantRecords(t, l, want...)
	wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), want...)
}

func TestTrimFreesADiskThatIsFull(t *testing.T) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 4<<10)
	for slot := journal.Slot(1); slot <= 12; slot++ {
		mustAppend(t, l, slot, make([]byte, 1000))
	}
	fs.capacity = fs.used() + 200 // enough for meta.json, not for a segment
	if err := l.Append(t.Context(), 13, make([]byte, 3000)); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("Append on a full disk = %v, want ENOSPC", err)
	}
	if _, err := l.Trim(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 13, make([]byte, 3000))
}

// tornLog returns a journal that lost power in the middle of its third Append,
// with the torn frame there.
func tornLog(t *testing.T) (disk *memFS, want [][]byte) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 16<<10)
	want = [][]byte{[]byte("one"), []byte("two")}
	mustAppend(t, l, 1, want[0])
	mustAppend(t, l, 2, want[1])
	fs.before = func(op, name string) error {
		if op == "sync" {
			n := 0
			disk = fs.crash(func() bool { n++; return n != 4 }, testRNG()) // one sector is missing
		}
		return nil
	}
	mustAppend(t, l, 3, bytes.Repeat([]byte("three"), 1000))
	return disk, want
}

func TestTornTailIsCut(t *testing.T) {
	disk, want := tornLog(t)
	var said bytes.Buffer
	l, err := Open(t.Context(), dir, Options{fs: disk, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	wantRecords(t, l, want...)
	if !strings.Contains(said.String(), "slot=3") {
		t.Errorf("the log says %q, want it to name the slot that was cut", &said)
	}
	disk = disk.crash(never, testRNG())
	end, _ := l.tail.Torn()
	for name, file := range disk.names {
		if strings.HasSuffix(name, ".log") && int64(len(bytes.TrimRight(file.data, "\x00"))) > end {
			t.Errorf("%s still has the torn record", name)
		}
	}
}

// A repair of a long segment copies its last block only, and where the two
// files overlap the new one counts.
func TestRepairOverlaps(t *testing.T) {
	fs := newMemFS(testRNG())
	l := mustOpen(t, fs, 1<<20)
	var want [][]byte
	for slot := journal.Slot(1); slot <= 30; slot++ {
		want = append(want, bytes.Repeat([]byte{byte(slot)}, 10_000))
		mustAppend(t, l, slot, want[slot-1])
	}
	failOnce(fs, "sync", ".log", unix.EIO)
	if err := l.Append(t.Context(), 31, []byte("failed")); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	err := l.Append(t.Context(), 31, []byte("failed"))
	if errors.Is(err, journal.ErrTaken) {
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, []byte("failed"))
	if n := len(l.view.segs); n != 2 || l.view.segs[1].First < 20 {
		t.Fatalf("%d segments, the last from slot %d; want 2, and most of the first left alone", n, l.view.last().First)
	}
	wantRecords(t, l, want...)
	wantRecords(t, mustOpen(t, fs.crash(never, testRNG()), 0), want...)
	r, err := openReader(t.Context(), dir, fs)
	if err != nil {
		t.Fatal(err)
	}
	wantRecords(t, r, want...)
}

// Bytes that are a frame of another segment are no frame here.
func TestFrameInsideRecord(t *testing.T) {
	disk, _ := tornLog(t)
	other, looks := newMemFS(testRNG()), []byte("looks like slot 4")
	of := mustOpen(t, other, 0)
	for slot := journal.Slot(1); slot <= 3; slot++ {
		mustAppend(t, of, slot, nil)
	}
	mustAppend(t, of, 4, looks)
	path := segment.Path(filepath.Join(dir, journalDir), 1)
	rec := other.names[path].data[segment.HeaderSize+3*segment.FrameSize(0):][:segment.FrameSize(len(looks))]
	data := disk.names[path].data
	n := copy(data[len(bytes.TrimRight(data, "\x00"))+16&^7:], rec)
	if n != len(rec) {
		t.Fatal("no room in the segment for this test")
	}
	l := mustOpen(t, disk, 0) // and not ErrCorrupt
	if l.view.next != 3 {
		t.Fatalf("the next slot is %d, want 3", l.view.next)
	}
}

// The files that a crash leaves half-made are gone after Open.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	fs := newMemFS(testRNG())
	_ = mustOpen(t, fs, 0).Close()
	for _, name := range []string{"meta.json.tmp", "journal/00000000000000000009.log.tmp", "blobs/b.blob.3.tmp"} {
		f, err := fs.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(io.NewOffsetWriter(f, 0), "half")
	}
	l := mustOpen(t, fs, 0)
	if names, err := l.ListBlobs(t.Context(), ""); err != nil || len(names) != 0 {
		t.Errorf("ListBlobs = %q, %v; want none", names, err)
	}
	for name := range fs.names {
		if strings.HasSuffix(name, disk.TmpSuffix) {
			t.Errorf("%s is still there", name)
		}
	}
}
