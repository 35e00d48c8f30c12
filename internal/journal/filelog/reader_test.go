package filelog

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func TestReaderFollowsAWriter(t *testing.T) {
	disk := newMemFS(testRNG())
	l := mustOpen(t, disk, 4<<10)
	r, err := openReader(t.Context(), dir, disk)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info().ID != l.Info().ID || r.Info().Exclusive {
		t.Errorf("Info = %+v beside a writer with %+v", r.Info(), l.Info())
	}
	var want [][]byte
	for slot := journal.Slot(1); slot <= 40; slot++ {
		rec := []byte(strings.Repeat("x", 100*int(slot%13)))
		if slot == 25 { // goes on in a new file, perhaps of the same name
			failOnce(disk, "sync", ".log", unix.EIO)
			if err := l.Append(t.Context(), slot, rec); !errors.Is(err, unix.EIO) {
				t.Fatal(err)
			}
		}
		if err := l.Append(t.Context(), slot, rec); err != nil && !errors.Is(err, journal.ErrTaken) {
			t.Fatal(err)
		}
		want = append(want, rec)
		if slot%3 == 0 {
			wantRecords(t, r, want...)
		}
	}
	if err := l.PutBlob(t.Context(), "snap/1", []byte("blob")); err != nil {
		t.Fatal(err)
	}
	if data, err := r.GetBlob(t.Context(), "snap/1"); err != nil || string(data) != "blob" {
		t.Errorf("GetBlob = %q, %v", data, err)
	}
	if names, err := r.ListBlobs(t.Context(), "snap/"); err != nil || len(names) != 1 {
		t.Errorf("ListBlobs = %q, %v", names, err)
	}

	fresh, err := openReader(t.Context(), dir, disk) // has no file open that is about to go
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Trim(t.Context(), 30); err != nil {
		t.Fatal(err)
	}
	for _, slot := range []journal.Slot{1, 12} {
		if _, err := fresh.Read(t.Context(), slot, 10); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("Read(%d) of what the writer trimmed = %v, want ErrTrimmed", slot, err)
		}
	}
	if got, err := readFrom(fresh, 30); err != nil || len(got) != 11 {
		t.Errorf("%d records from the floor on, %v; want 11", len(got), err)
	}
}

func TestReaderChangesNothing(t *testing.T) {
	disk, want := tornLog(t)
	before := disk.contents()
	disk.before = func(op, name string) error {
		t.Errorf("%s %s", op, name)
		return nil
	}
	r, err := openReader(t.Context(), dir, disk)
	if err != nil {
		t.Fatal(err)
	}
	wantRecords(t, r, want...)
	ctx := t.Context()
	_, trim := r.Trim(ctx, 2)
	for i, err := range []error{r.Append(ctx, 3, nil), r.PutBlob(ctx, "b", nil), r.DeleteBlob(ctx, "b"), trim} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("write %d = %v, want ErrReadOnly", i, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(ctx, 1, 1); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Read after Close = %v, want ErrClosed", err)
	}
	if !maps.Equal(before, disk.contents()) {
		t.Error("the disk has changed")
	}
}

func TestReaderOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nothing")
	_, err := OpenReadOnly(t.Context(), path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("OpenReadOnly of nothing = %v, want one that names %s", err, path)
	}
}

// On the real file system, while a writer runs.
func TestReaderBesideAWriter(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), dir, Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	const records = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		defer l.Close()
		for slot := journal.Slot(1); slot <= records; slot++ {
			if err := l.Append(bg, slot, killRecord(slot)); err != nil {
				t.Error(err)
				return
			}
			if slot == 200 {
				if _, err := l.Trim(bg, 100); err != nil {
					t.Error(err)
				}
			}
		}
	})
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for slot := journal.Slot(1); slot <= records && !t.Failed(); {
		recs, err := r.Read(t.Context(), slot, 10)
		if errors.Is(err, journal.ErrTrimmed) {
			slot = 100
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			if string(rec) != string(killRecord(slot)) {
				t.Fatalf("slot %d is wrong", slot)
			}
			slot++
		}
	}
	wg.Wait()
}
