package snapshot

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal/memlog"
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
