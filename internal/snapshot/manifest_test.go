package snapshot

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// FuzzManifest: whatever a manifest says, reading it takes memory in proportion
// to its length, and what it names can be a snapshot of its slot.
func FuzzManifest(f *testing.F) {
	dir := Folder(3)
	f.Add([]byte(`{"slot":3,"chains":"` + dir + strings.Repeat("0", 64) + `","parts":["` + dir + strings.Repeat("1", 64) + `"]}`))
	f.Add([]byte(`{"slot":3,"parts":[` + strings.Repeat(`"",`, 5000) + `""]}`))
	f.Add([]byte(`{}`))
	store := memlog.New(memlog.Options{}).Open()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := store.PutBlob(t.Context(), dir+manifestName, data); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := ReadManifest(t.Context(), store, 3)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10+64*uint64(len(data)) {
			t.Errorf("a manifest of %d bytes took %d bytes of memory", len(data), got)
		}
		if err != nil && !errors.Is(err, ErrBad) {
			t.Error(err)
		}
		if err == nil && (m.Slot != 3 || len(m.Parts) == 0 || len(m.Parts) > 5) {
			t.Errorf("accepted %+v", m)
		}
	})
}

// TestPartsAreBoundedInSum: a snapshot of many parts, each no longer than a part may be, is
// given up once they are longer together than a state may be.
func TestPartsAreBoundedInSum(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	const each, most = 4 << 20, 16 << 20
	var names []string
	w := Written{manifest: Manifest{Slot: 1000}}
	for i := range 200 { // 800 MiB in all, of 40 KB
		name, err := w.putPart(t.Context(), store, append([]byte{1, byte('a' + i), 4, 2, 4, 0, 0x80, 0x80, 0x80, 0x02}, append(make([]byte, each), 0)...))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := getParts(t.Context(), store, names, most)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrBad) {
		t.Errorf("parts of %d bytes, where %d may be: %v", len(names)*each, most, err)
	}
	// Decompressors keep some for the next time.
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(most+2*loaders*mvcc.MaxPart); got > limit {
		t.Errorf("reading the first of them took %d bytes of memory, of %d allowed", got, limit)
	}
	if _, err := getParts(t.Context(), store, names[:3], most); err != nil {
		t.Errorf("parts of %d bytes: %v", 3*each, err)
	}
}
