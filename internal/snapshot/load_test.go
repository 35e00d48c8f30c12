package snapshot_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// TestLoadHoldsLittle: whatever blobs somebody left, what they claim to
// hold is bounded by what the state at their slot could have been.
func TestLoadHoldsLittle(t *testing.T) {
	const slot = 9
	dir := snapshot.Folder(slot)
	store := memlog.New(memlog.Options{}).Open()
	blob := func(raw []byte) string {
		data := record.Compress(nil, raw)
		name := fmt.Sprintf("%s%x", dir, sha256.Sum256(data))
		if err := store.PutBlob(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
		return name
	}
	first, chains := blob([]byte{slot, 2, 0, 0, 0}), blob(make([]byte, (slot+1)*32))
	bomb := blob(make([]byte, 256<<20))
	part := blob(append([]byte{1, 'a', 4, 2, 4, 0, 0x80, 0x80, 0x80, 0x02}, make([]byte, 4<<20+1)...))
	for name, m := range map[string]struct {
		chains string
		parts  []string
	}{
		"a long first part":  {chains, []string{bomb, part}},
		"a long part":        {chains, []string{first, bomb}},
		"long chains":        {bomb, []string{first, part}},
		"one part, often":    {chains, append([]string{first}, repeated(part, 8)...)},
		"one part, always":   {chains, append([]string{first}, repeated(part, 1000)...)},
		"more than there be": {chains, append([]string{first}, many(dir, 1_000_000)...)},
		"another's blob":     {chains, []string{first, "snapshot/00000000000000000001/" + part[len(dir):]}},
	} {
		data, err := json.Marshal(map[string]any{
			"format": journal.FormatVersion, "journal": store.Info().ID.String(), "slot": slot, "chains": m.chains, "parts": m.parts,
		})
		if err != nil {
			t.Fatal(err)
		}
		data = data[:min(len(data), journal.MaxBlob)]
		if err := store.PutBlob(t.Context(), dir+"manifest.json", data); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = snapshot.Load(t.Context(), store, store.Info().ID, slot)
		runtime.ReadMemStats(&after)
		// Decompressors keep some for the next time; a manifest is as long as it is.
		got, limit := after.TotalAlloc-before.TotalAlloc, uint64(160<<20+8*len(data))
		if !errors.Is(err, snapshot.ErrBad) || got > limit {
			t.Errorf("%s: took %d bytes of memory, of %d allowed (%v)", name, got, limit, err)
		}
	}
}

func repeated(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}

func many(dir string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%064x", dir, i))
	}
	return out
}
