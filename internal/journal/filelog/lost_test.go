package filelog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// TestLostEnd: if a journal is cut off anywhere, or a file of it is gone, it is not
// served as if it had ended there. The one exception is a journal that was not
// closed: the loss of what was written since its last segment began goes unnoticed.
func TestLostEnd(t *testing.T) {
	for _, closed := range []bool{true, false} {
		disk, want := smallJournal(t, closed)
		noted, err := readMeta(disk, dir)
		if err != nil {
			t.Fatal(err)
		}
		least := int(noted.tail)
		if closed && least != len(want) {
			t.Fatalf("a journal of %d records was closed with slot %d for its end", len(want), least)
		}
		tried := 0
		for name, text := range disk.contents() {
			cut := func(what string, how func(*memFS)) {
				tried++
				copied := disk.crash(never, testRNG())
				how(copied)
				got, err := readDisk(t, copied)
				if err == nil && len(got) < least {
					t.Errorf("%s %s (closed: %v): served with %d records, %d had been written at least", name, what, closed, len(got), least)
				}
				if err != nil && !errors.Is(err, journal.ErrCorrupt) {
					t.Errorf("%s %s: %v, want ErrCorrupt", name, what, err)
				}
			}
			if strings.HasSuffix(name, metaName) || strings.HasSuffix(name, ".log") {
				cut("deleted", func(m *memFS) { delete(m.names, name) })
			}
			used := len(strings.TrimRight(text, "\x00"))
			for n := 0; n < used; n += 8 {
				cut("cut", func(m *memFS) { m.names[name].data = m.names[name].data[:n] })
				cut("zeroed from there", func(m *memFS) { clear(m.names[name].data[n:]) })
			}
		}
		t.Logf("closed: %v: %d ways", closed, tried)
	}
}

// TestAcceptLoss: with AcceptLoss, a log that lost its end goes on with what is left,
// for good.
func TestAcceptLoss(t *testing.T) {
	disk, want := smallJournal(t, true)
	delete(disk.names, lastSegment(disk))
	if _, err := readDisk(t, disk); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), "accept-loss") {
		t.Fatalf("without a word: %v", err)
	}
	l, err := Open(t.Context(), dir, Options{fs: disk, AcceptLoss: true})
	if err != nil {
		t.Fatal(err)
	}
	left := int(l.view.next - 1)
	if left == 0 || left >= len(want) {
		t.Fatalf("%d records are left of %d", left, len(want))
	}
	mustAppend(t, l, l.view.next, []byte("goes on"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readDisk(t, disk); err != nil || len(got) != left+1 {
		t.Errorf("%d records, %v; want %d", len(got), err, left+1)
	}
}

// TestSalvage: of a damaged log, whole records are given and gaps are named.
func TestSalvage(t *testing.T) {
	path := t.TempDir()
	l, err := Open(t.Context(), path, Options{SegmentSize: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for slot := journal.Slot(1); slot <= 40; slot++ {
		mustAppend(t, l, slot, []byte(strings.Repeat("x", 300)))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(path, journalDir, "*.log"))
	if err != nil || len(segments) < 4 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	text, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	text[segment.HeaderSize+2*segment.FrameSize(300)+50] ^= 1 // in slot 3
	if err := errors.Join(os.WriteFile(segments[0], text, 0o600), os.Remove(segments[2]), os.Remove(filepath.Join(path, metaName))); err != nil {
		t.Fatal(err)
	}
	var slots []journal.Slot
	var gaps []string
	err = Salvage(path, func(slot journal.Slot, rec []byte, gap string) error {
		if gap != "" {
			gaps = append(gaps, gap)
		}
		if slot != 0 {
			slots = append(slots, slot)
		}
		if slot != 0 && len(rec) != 300 {
			t.Errorf("slot %d has %d bytes", slot, len(rec))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(gaps) != 2 || !strings.Contains(gaps[0], "is damaged at offset") || !strings.Contains(gaps[1], "are missing") {
		t.Errorf("gaps are %q", gaps)
	}
	if slices.Contains(slots, 3) || !slices.Contains(slots, 4) || !slices.Contains(slots, 40) || !slices.IsSorted(slots) {
		t.Errorf("slots are %v", slots)
	}
}
