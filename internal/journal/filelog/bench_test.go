package filelog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// BenchmarkAppend takes turns, so that a disk that others use too is as slow
// for each: an Append, a bare pwrite and fdatasync of as many bytes into a file
// that is preallocated, and one into a file that was written before. It reports
// the median of each.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := Open(b.Context(), b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			rec, slot := make([]byte, size), journal.Slot(0)
			turns := []struct {
				name string
				do   func() error
				took []time.Duration
			}{
				{name: "append", do: func() error { slot++; return l.Append(b.Context(), slot, rec) }},
				{name: "prealloc", do: rawWrites(b, segment.FrameSize(size), false)},
				{name: "written", do: rawWrites(b, segment.FrameSize(size), true)},
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range turns {
					start := time.Now()
					if err := turns[i].do(); err != nil {
						b.Fatal(err)
					}
					turns[i].took = append(turns[i].took, time.Since(start))
				}
			}
			for _, turn := range turns {
				slices.Sort(turn.took)
				b.ReportMetric(float64(turn.took[len(turn.took)/2].Microseconds()), turn.name+"-µs")
			}
			b.ReportMetric(0, "ns/op") // of all three together: says nothing
		})
	}
}

// rawWrites returns a function that writes size bytes behind the last ones and
// syncs them, in files of 64 MiB: written with zeros before, or only reserved.
func rawWrites(b *testing.B, size int64, written bool) func() error {
	const total = 64 << 20
	var f disk.File
	dir, rec, off := b.TempDir(), make([]byte, size), int64(total)
	b.Cleanup(func() { _ = f.Close() })
	return func() (err error) {
		if off+size > total {
			if f, err = (disk.OS{}).Create(filepath.Join(dir, rand.Text())); err != nil {
				return err
			}
			if err = f.Allocate(total); err == nil && written {
				_, err = f.WriteAt(make([]byte, total), 0)
			}
			if err = errors.Join(err, f.Sync()); err != nil {
				return err
			}
			off = 0
		}
		if _, err := f.WriteAt(rec, off); err != nil {
			return err
		}
		off += size
		return f.Sync()
	}
}

// BenchmarkAppendMemory is Append on a file system that syncs to nowhere.
func BenchmarkAppendMemory(b *testing.B) {
	dir := "/dev/shm"
	if _, err := os.Stat(dir); err != nil {
		b.Skip("there is no file system in memory at", dir)
	}
	dir, err := os.MkdirTemp(dir, "filelog")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := Open(b.Context(), dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	rec, ctx, slot := make([]byte, 256), b.Context(), journal.Slot(0)
	b.ReportAllocs()
	for b.Loop() {
		slot++
		if err := l.Append(ctx, slot, rec); err != nil {
			b.Fatal(err)
		}
		if slot%100_000 == 0 {
			if _, err := l.Trim(ctx, slot); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkRead(b *testing.B) {
	l, err := Open(b.Context(), b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const n = 1000
	for slot := journal.Slot(1); slot <= n; slot++ {
		if err := l.Append(b.Context(), slot, make([]byte, 1024)); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(n * 1024)
	for b.Loop() {
		if recs, err := l.Read(b.Context(), 1, n); err != nil || len(recs) != n {
			b.Fatal(len(recs), err)
		}
	}
}
